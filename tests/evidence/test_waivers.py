"""Waivers: which failures they excuse, which of them are red, and what a reader derives again."""

import dataclasses
import datetime
import hashlib

import pytest

from harness.errors import UsageError
from harness.evidence import Case, Group, PlannedGroup, Verdict, case_id, read
from harness.evidence.entries import recorded
from harness.evidence.waivers import Waiver, problems_with, read_waivers
from tests.evidence import samples
from tests.evidence.samples import ADD, ADD_GROUP, PUT

FILE = b"""
[[waiver]]
requirement = "ATOMIC-ADD-001"
implementation = "iris_under_test"
issue = "https://example.org/issues/12"
reason = "the compiler reorders the store"
expires = 2026-11-21
"""


def evidence_of(tmp_path, content=FILE, records=None):
    """Return the evidence of a run with these waivers; ``ATOMIC-ADD-001`` fails in it."""
    entries = recorded(content, read_waivers(content, "waivers.toml")) if content is not None else None
    run, *rest = records or samples.red()
    return read(samples.write(tmp_path / "evidence.jsonl", [dataclasses.replace(run, waivers=entries), *rest]))


def with_(old, new):
    assert old in FILE
    return FILE.replace(old, new)


def test_a_failure_with_a_waiver_is_waived_and_not_a_pass(tmp_path):
    evidence = evidence_of(tmp_path)
    assert evidence.problems == [] and evidence.gaps() == ()
    assert evidence.requirements()[ADD].verdict is Verdict.WAIVED
    assert evidence.requirements()[ADD].groups == {ADD_GROUP: Verdict.FAIL}, "its group still failed"
    assert evidence.requirements()[PUT].verdict is Verdict.PASS
    assert evidence.verdict() is Verdict.WAIVED and not evidence.verdict().red
    assert list(evidence.waived()) == [ADD] and evidence.waiver_problems() == ()


def test_lifted_waivers(tmp_path):
    lifted = evidence_of(tmp_path).without_waivers()
    assert lifted.verdict() is Verdict.FAIL and lifted.waived() == {}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            b"2026-11-21",
            b"2026-11-20",
            "waiver of ATOMIC-ADD-001 expired on 2026-11-20: https://example.org/issues/12",
        ),
        (
            b"iris_under_test",
            b"iris",
            "nothing: it is for implementation iris, and the run has iris_under_test",
        ),
        (b"issue =", b'version = "0.9"\nissue =', "matches nothing: it is for version 0.9, and the run has 0.1.0"),
        (b"issue =", b'device = "rocm"\nissue =', "matches nothing: it is for device rocm, and the run has emulated"),
        (b"issue =", b'arch = "gfx950"\nissue =', "matches nothing: it is for arch gfx950, and the run has gfx942"),
        (b"ATOMIC-ADD-001", b"GONE-001", "GONE-001 matches nothing: GONE-001 is not a requirement of the run"),
    ],
)
def test_a_wrong_waiver_is_red_and_waives_nothing(tmp_path, old, new, problem):
    evidence = evidence_of(tmp_path, with_(old, new))
    [line] = evidence.waiver_problems()
    assert problem in line
    assert evidence.requirements()[ADD].verdict is Verdict.FAIL and evidence.verdict() is Verdict.FAIL


def test_a_waiver_of_a_requirement_that_passes_is_red(tmp_path):
    """Also where nothing fails: the run is then red only for its waiver."""
    evidence = evidence_of(tmp_path, records=[*samples.green()[:-1], samples.end(1)])
    assert evidence.waiver_problems() == (
        "the waiver of ATOMIC-ADD-001 is not needed: the requirement passed; remove it",
    )
    assert evidence.verdict() is Verdict.FAIL and evidence.gaps() == ()


def test_a_waiver_of_a_requirement_that_is_not_planned_is_red(tmp_path):
    """A requirement that the run left out, for example."""
    run, plan, *rest = samples.green()
    plan = dataclasses.replace(plan, groups=plan.groups[:1], left_out={ADD: "deselected"})
    records = [run, plan, *rest[:4], rest[-1]]
    evidence = evidence_of(tmp_path, records=records)
    assert evidence.problems == []
    assert evidence.waiver_problems() == (
        "the waiver of ATOMIC-ADD-001 matches nothing: ATOMIC-ADD-001 is not in the plan",
    )


@pytest.mark.parametrize("verdict", [Verdict.UNKNOWN, Verdict.NOT_RUN])
def test_what_could_not_be_checked_or_did_not_run_is_not_waived(tmp_path, verdict):
    records = samples.red()
    if verdict is Verdict.NOT_RUN:
        records = [each for each in records if getattr(each, "group", "") != ADD_GROUP]
    else:
        records = [
            dataclasses.replace(each, verdict=verdict)
            if isinstance(each, (Case, Group)) and each.group == ADD_GROUP
            else each
            for each in records
        ]
    evidence = evidence_of(tmp_path, records=records)
    assert evidence.requirements()[ADD].verdict is verdict and evidence.verdict().red
    assert evidence.waived() == {}


def test_a_contradiction_in_the_evidence_is_not_waived(tmp_path):
    records = [
        dataclasses.replace(each, cases=5) if isinstance(each, Group) and each.group == ADD_GROUP else each
        for each in samples.red()
    ]
    assert evidence_of(tmp_path, records=records).requirements()[ADD].verdict is Verdict.FAIL


def test_a_group_that_could_not_be_checked_is_not_waived_with_one_that_failed(tmp_path):
    """The requirement failed, and its second group has no verdict: its waiver does not hide that."""
    run, plan, *rest = samples.red()
    other = "ATOMIC-ADD-001[ranks=4,dtype=int64]"
    planned = PlannedGroup(other, ADD, "conformance/atomics/test_add.py::test_add[int64]")
    unknown = dataclasses.replace(
        samples.case(9, requirement=ADD, verdict=Verdict.UNKNOWN),
        group=other,
        nodeid=planned.nodeid,
        id=case_id(ADD, other, samples.case(9).case),
    )
    end = Group(other, ADD, Verdict.UNKNOWN, 1, failing_case=unknown.id, message="no memory")
    records = [run, dataclasses.replace(plan, groups=(*plan.groups, planned)), *rest[:-1], unknown, end, rest[-1]]
    evidence = evidence_of(tmp_path, records=records)
    assert evidence.problems == []
    assert evidence.requirements()[ADD].verdict is Verdict.FAIL and evidence.waived() == {}


@pytest.mark.parametrize("record", [Case, Group])
def test_no_record_states_that_it_is_waived(tmp_path, record):
    """Only a reader derives this verdict."""
    records = [
        dataclasses.replace(each, verdict=Verdict.WAIVED)
        if isinstance(each, record) and each.group == ADD_GROUP
        else each
        for each in samples.red()
    ]
    evidence = evidence_of(tmp_path, content=None, records=records)
    assert any("ran and is waived" in problem for problem in evidence.problems)
    assert evidence.verdict().red


def test_a_file_of_waivers():
    assert read_waivers(b"", "w") == ()
    [waiver] = read_waivers(FILE, "w")
    assert waiver == Waiver(
        "ATOMIC-ADD-001",
        "iris_under_test",
        "https://example.org/issues/12",
        "the compiler reorders the store",
        "2026-11-21",
    )
    assert datetime.date.fromisoformat(waiver.expires)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xff", "w is not TOML"),
        (b"[[waiver]", "w is not TOML"),
        (b"waiver = 3", "w: expected only entries [[waiver]], got waiver"),
        (FILE + b"[other]\n", "w: expected only entries [[waiver]], got waiver, other"),
        (FILE + FILE, "w: ATOMIC-ADD-001 has several entries: write one"),
        (with_(b"issue", b"isue"), "w: waiver 1: unknown key 'isue'; the keys are requirement, implementation, issue"),
        (with_(b'reason = "the compiler reorders the store"', b""), "w: waiver 1 lacks reason"),
        (with_(b"the compiler reorders the store", b" "), "w: waiver 1: reason: expected text, got ' '"),
        (with_(b"2026-11-21", b'"soon"'), "w: waiver 1: expires: expected a date such as 2027-01-31, got 'soon'"),
        (with_(b"2026-11-21", b"2026-11-21T00:00:00"), "w: waiver 1: expires: expected a date"),
        (
            with_(b"https://example.org/issues/12", b"12"),
            "w: waiver 1: issue: expected a link such as https://example.org/12",
        ),
        (with_(b'"iris_under_test"', b"3"), "w: waiver 1: implementation: expected text, got 3"),
    ],
)
def test_a_file_with_a_mistake(content, problem):
    with pytest.raises(UsageError) as refused:
        read_waivers(content, "w")
    assert str(refused.value).startswith(problem) and "\n" not in str(refused.value)


def test_a_file_is_compared_with_what_the_run_recorded(tmp_path):
    evidence = evidence_of(tmp_path)
    assert list(problems_with(FILE, evidence.runs)) == []
    assert list(problems_with(None, evidence.runs)) == ["the run is recorded with waivers, and waivers.toml is missing"]
    assert "its digest differs" in next(problems_with(FILE + b"\n", evidence.runs))
    run = dataclasses.replace(evidence.runs[0], waivers={**evidence.runs[0].waivers, "entries": []})
    assert list(problems_with(FILE, [run])) == ["waivers.toml has other waivers than the run is recorded with"]
    run = dataclasses.replace(run, waivers=None)
    assert list(problems_with(FILE, [run])) == ["waivers.toml was added: the run is recorded without waivers"]


def test_a_file_that_cannot_be_read_is_a_problem_of_each_run(tmp_path):
    """A forger may record the digest of a file that is none of waivers."""
    evidence = evidence_of(tmp_path)
    content = FILE + b"[other]\n"
    waivers = {**evidence.runs[0].waivers, "sha256": hashlib.sha256(content).hexdigest()}
    forged = dataclasses.replace(evidence.runs[0], waivers=waivers)
    assert list(problems_with(content, [forged, evidence.runs[0]])) == [
        "waivers.toml: expected only entries [[waiver]], got waiver, other",
        "waivers.toml is not the file that the run is recorded with: its digest differs",
    ]
    without = dataclasses.replace(forged, waivers=None)
    assert list(problems_with(None, [without])) == [], "neither a file nor a record of one"


def test_a_waiver_as_plain_data_has_only_what_it_states():
    [waiver] = read_waivers(with_(b"issue =", b'arch = "gfx942"\nissue ='), "w")
    assert set(waiver.to_json()) == {"requirement", "implementation", "issue", "reason", "expires", "arch"}
    assert waiver.mismatch(samples.run()) is None
    assert waiver.mismatch(samples.run(arch="")) == "it is for arch gfx942, and the run has none"
