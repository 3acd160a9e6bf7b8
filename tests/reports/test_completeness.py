"""A run is complete or partial, and each view shows which, in words and in colour."""

import dataclasses
import io
import re

import pytest
from rich.console import Console

from harness.evidence import Plan, Verdict, read
from reports import names_of, print_names, print_table, render_html, view_of
from tests.evidence import samples
from tests.evidence.samples import ADD, PUT
from tests.reports import runs
from tests.reports.runs import FUSED, GET
from tests.reports.test_html import Outline

SENTENCE = "Partial: 1 of 3 requirements and 1 case group were left out."
GREEN, YELLOW = "\x1b[32m", "\x1b[1;33m"


def evidence_of(tmp_path, records):
    return read(samples.write(tmp_path / "evidence.jsonl", records))


def in_colour(evidence, show=lambda evidence, console: print_table(view_of(evidence), console)):
    console = Console(file=io.StringIO(), width=150, force_terminal=True, color_system="standard", legacy_windows=False)
    show(evidence, console)
    return console.file.getvalue()


def uncoloured(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def words(page):
    return " ".join("".join(Outline(page).text).split())


def section(page, name):
    return re.search(rf'<section id="{name}".*?</section>', page, re.DOTALL)[0]


def test_a_complete_run_says_that_everything_ran_and_what_cannot_run_here(tmp_path):
    evidence = evidence_of(tmp_path, runs.complete())
    assert view_of(evidence).headline == (
        "All 2 requirements passed, and everything that was planned ran. 1 is not applicable here."
    )
    shown = in_colour(evidence)
    assert f"{GREEN}All 2 requirements passed" in shown
    assert "needs a GPU: FUSED-CAPTURE-001" in uncoloured(shown)
    page = render_html(evidence)
    assert "Partial" not in words(page)
    assert not {"banner", "verdict partial"} & {values.get("class") for _, values in Outline(page).tags}
    for piece in (FUSED, "a fused op can be captured into a graph", "needs a GPU"):
        assert piece in section(page, "not-applicable")


def test_a_partial_run_says_so_first_and_is_not_green(tmp_path):
    evidence = evidence_of(tmp_path, runs.partial())
    assert evidence.verdict() is Verdict.PASS
    headline = view_of(evidence).headline
    assert headline == f"{SENTENCE} All 2 requirements of this run passed."
    assert "everything" not in headline
    shown = in_colour(evidence)
    last = shown.strip().splitlines()[-1]
    assert last.startswith(f"{YELLOW}{SENTENCE}")
    assert GREEN not in last
    text = uncoloured(shown)
    assert "2 items left out of this run" in text
    assert f"{GET}: deselected by -k put" in text
    assert f"{PUT}[ranks=2,dtype=fp16]: this machine has 1 GPU" in text


def test_the_page_of_a_partial_run_has_a_banner_and_a_list(tmp_path):
    page = render_html(evidence_of(tmp_path, runs.partial()))
    assert "<title>partial, pass" in page
    banner = re.search(r'<p class="banner".*?</p>', page, re.DOTALL)[0]
    assert SENTENCE in banner
    assert 'class="verdict partial"' in page
    missing = section(page, "missing")
    for piece in (GET, "get copies exactly", "deselected by -k put", "[ranks=2,dtype=fp16]", "this machine has 1 GPU"):
        assert piece in missing
    assert FUSED not in missing
    assert "print-color-adjust: exact" in page


def test_a_partial_run_that_failed_shows_both(tmp_path):
    evidence = evidence_of(tmp_path, runs.partial(samples.red()))
    assert view_of(evidence).headline == f"{SENTENCE} 1 of 2 requirements passed, 1 failed."
    assert "<title>partial, fail" in render_html(evidence)


@pytest.mark.parametrize(
    ("left_out", "sentence"),
    [
        ({ADD: "why"}, "Partial: 1 of 2 requirements was left out."),
        ({PUT: "why", ADD: "why"}, "Partial: 2 of 2 requirements were left out."),
        ({f"{PUT}[ranks=8]": "why"}, "Partial: 1 case group was left out."),
        ({"world size 8": "why"}, "Partial: 1 other item was left out."),
    ],
)
def test_left_out_items_are_counted(tmp_path, left_out, sentence):
    plan = samples.plan()
    records = [samples.run(), Plan(plan.groups, plan.requirements, left_out=left_out), *samples.green()[2:]]
    assert view_of(evidence_of(tmp_path, records)).completeness.sentence == sentence


def test_many_are_counted_in_the_terminal(tmp_path):
    plan = samples.plan()
    left_out = {f"{PUT}[ranks={ranks}]": "why" for ranks in range(100)}
    records = [samples.run(), Plan(plan.groups, plan.requirements, left_out=left_out), *samples.green()[2:]]
    text = uncoloured(in_colour(evidence_of(tmp_path, records)))
    assert "Partial: 100 case groups were left out." in text
    assert "... and 95 more, in the report" in text


def test_a_lost_plan_is_not_complete(tmp_path):
    records = samples.green()
    records.pop(1)
    assert view_of(evidence_of(tmp_path, records)).completeness.label == "unknown"


def test_names_of_a_partial_run_are_not_green(tmp_path):
    (tmp_path / "whole").mkdir()
    part, whole = evidence_of(tmp_path, runs.partial()), evidence_of(tmp_path / "whole", runs.complete())
    names = names_of([part])
    assert names.headline == (
        "public names passed: 2 of 4 on emulated gfx942 (2 had nothing to run); partial: emulated gfx942"
    )
    shown = in_colour(names, print_names)
    assert "partial: emulated gfx942" in shown.splitlines()[-1]
    assert GREEN not in shown.splitlines()[-1]
    assert names_of([part, whole]).partial == ()


def test_case_ids_and_the_replay_command_are_in_each_view(tmp_path):
    evidence = evidence_of(tmp_path, samples.red())
    bad, good = samples.failing_case().id, samples.case(1).id
    page = render_html(evidence)
    for piece in (f'<code class="id">{bad}</code>', f'<code class="command">iris-harness replay {bad}</code>'):
        assert piece in section(page, "failures")
    for identity in (bad, good, samples.case(2).id):
        assert f">{identity}</" in section(page, "requirements")
    text = uncoloured(in_colour(evidence))
    assert re.search(rf"case id +{bad}\s", text)
    assert f"  replay  iris-harness replay {bad}\n" in text


def test_many_entries_that_did_not_run_are_grouped_by_reason(tmp_path):
    first, planned, *rest = runs.partial()
    left_out = {f"{GET}[number={number}]": "no GPU <b>" if number < 30 else "deselected" for number in range(40)}
    records = [first, dataclasses.replace(planned, left_out=left_out), *rest]
    part = section(render_html(evidence_of(tmp_path, records)), "missing")
    assert "<li><b>30</b> no GPU &lt;b&gt;</li>" in part and "<li><b>10</b> deselected</li>" in part
    assert "<details><summary>41 entries</summary>" in part
    few = section(render_html(evidence_of(tmp_path, runs.partial())), "missing")
    assert "<details open><summary>2 entries</summary>" in few
