"""Forms of one requirement: every report shows the statement once, with the forms below it; each counts by itself."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from junitparser import JUnitXml
from rich.console import Console

from harness.evidence import Evidence, Group, Plan, PlannedGroup, Requirement, Verdict, case_id, read
from reports import print_table, render_html, view_of, write_junit
from tests.evidence import samples

PUT, BETWEEN, METHOD, FUNCTION = "RMA-PUT-001", "RMA-PUT-002", "RMA-PUT-003", "RMA-PUT-004"
STATEMENT = "put copies exactly the masked elements to the peer."
TABLE = (
    Requirement(PUT, STATEMENT, "section 7"),
    Requirement(BETWEEN, "put returns at once.", "section 7"),
    Requirement(METHOD, f"As a method: {STATEMENT}", "section 8", (), PUT, "a method"),
    Requirement(FUNCTION, f"As a function: {STATEMENT}", "section 9", (), PUT, "a function"),
)


def evidence_of(folder: Path, *requirements: Requirement, left_out: tuple[str, ...] = ()) -> Evidence:
    """Return the evidence of a run in which all requirements passed, except those left out."""
    ran = [each.id for each in requirements if each.id not in left_out]
    groups = tuple(PlannedGroup(f"{name}[ranks=2]", name, f"test_put.py::test_{name[-1]}[ranks=2]") for name in ran)
    plan = Plan(groups, requirements, {}, dict.fromkeys(left_out, "deselected"))
    cases = []
    for group in groups:
        case = samples.case(1, group=group.group, nodeid=group.nodeid)
        identity = case_id(group.requirement, group.group, case.case)
        cases.append(dataclasses.replace(case, id=identity, requirement=group.requirement))
    ended = [Group(group.group, group.requirement, Verdict.PASS, 1) for group in groups]
    records = [samples.run(), plan, samples.kernel(), *cases, *ended, samples.end(0)]
    evidence = read(samples.write(folder / "evidence.jsonl", records))
    assert evidence.problems == [], evidence.problems
    return evidence


def printed(evidence: Evidence) -> str:
    file = io.StringIO()
    print_table(view_of(evidence), Console(file=file, width=160))
    return file.getvalue()


def test_forms_are_listed_below_their_requirement_and_counted(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, *TABLE)
    assert evidence.statements[METHOD] == TABLE[2], "the evidence has the whole sentence"
    report = view_of(evidence)
    assert [(row.result.id, row.form) for row in report.rows] == [
        (PUT, ""),
        (METHOD, "As a method"),
        (FUNCTION, "As a function"),
        (BETWEEN, ""),
    ]
    assert "All 4 requirements passed" in report.headline
    assert report.headline.endswith("Of these 4, 2 are further forms of requirements; each counts by itself.")
    lines = [line for line in printed(evidence).splitlines() if "RMA-PUT" in line]
    assert [line.startswith("  ") for line in lines] == [False, True, True, False]
    assert "As a method: store" in lines[1]


def test_the_statement_is_shown_once(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, *TABLE)
    page = render_html(evidence)
    assert page.count(STATEMENT) == 1 and ">As a method<" in page and "section 8" in page
    assert all(f'id="{each.id}"' in page for each in TABLE)
    write_junit(evidence, tmp_path / "junit.xml")
    text = (tmp_path / "junit.xml").read_text()
    assert text.count(STATEMENT) == 1
    suites = {
        suite.name: {p.name: p.value for p in suite.properties()}
        for suite in JUnitXml.fromfile(str(tmp_path / "junit.xml"))
    }
    assert suites[METHOD] == {"form_of": PUT, "form": "a method", "source": "section 8", "verdict": "pass"}


def test_a_form_whose_requirement_did_not_run_has_its_sentence(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, *TABLE, left_out=(PUT, METHOD))
    [function, _] = reversed(view_of(evidence).rows)
    assert (function.result.id, function.form) == (FUNCTION, "")
    assert function.result.statement == f"As a function: {STATEMENT}"
    missing = {absent.id: absent.statement for absent in view_of(evidence).completeness.missing}
    assert missing == {PUT: STATEMENT, METHOD: f"{PUT}, as a method"}
    page = render_html(evidence)
    assert page.count(STATEMENT) == 2 and f"As a function: {STATEMENT}" in page


@pytest.mark.parametrize(
    ("first", "second"),
    [((METHOD, "a"), (PUT, "b")), ((PUT, "itself"), (METHOD, "itself")), ((METHOD, None), (PUT, None))],
)
def test_forms_in_a_circle_hide_nothing(
    tmp_path: Path, first: tuple[str, str | None], second: tuple[str, str | None]
) -> None:
    """Check evidence with circular forms: it may come from an untrusted source."""
    circle = (Requirement(PUT, "s", "", (), *first), Requirement(METHOD, "t", "", (), *second))
    evidence = evidence_of(tmp_path, *circle)
    assert {row.result.id for row in view_of(evidence).rows} == {PUT, METHOD}
    assert all(name in printed(evidence) for name in (PUT, METHOD))
