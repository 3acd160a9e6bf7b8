"""Reading evidence: only a complete run is green; every planted gap turns it red."""

import json

import pytest

from harness.errors import UsageError
from harness.evidence import Group, Plan, Verdict, case_id, read
from tests.evidence import samples
from tests.evidence.samples import ADD, ADD_GROUP, PUT, PUT_GROUP


def evidence_of(tmp_path, records):
    return read(samples.write(tmp_path / "evidence.jsonl", records))


def test_a_whole_run_is_green(tmp_path):
    evidence = evidence_of(tmp_path, samples.green())
    assert evidence.verdict() is Verdict.PASS
    assert evidence.gaps() == ()
    result = evidence.requirements()[PUT]
    assert (result.verdict, result.cases, result.kernels, result.gaps) == (Verdict.PASS, 2, (samples.KERNEL,), ())
    assert result.statement.startswith("put copies")


def test_a_failure_is_red_and_names_its_case(tmp_path):
    evidence = evidence_of(tmp_path, samples.red())
    assert evidence.verdict() is Verdict.FAIL
    assert {name: count for name, count in evidence.counts().items() if count} == {"pass": 1, "fail": 1}
    [case] = evidence.requirements()[ADD].failing
    assert (case.differs.rank, case.differs.index, case.differs.got, case.differs.wanted) == (3, 17, 5, 4)


@pytest.mark.parametrize("lost", range(len(samples.green())))
def test_no_line_may_be_lost(tmp_path, lost):
    records = samples.green()
    missing = records.pop(lost)
    assert evidence_of(tmp_path, records).verdict() is not Verdict.PASS, missing


def test_a_planned_group_without_an_end_did_not_run(tmp_path):
    evidence = evidence_of(tmp_path, [*samples.green()[:6], samples.end()])
    result = evidence.requirements()[ADD]
    assert result.verdict is Verdict.NOT_RUN
    assert result.gaps == (f"{ADD_GROUP} did not run",)


def test_many_groups_that_did_not_run_are_one_gap(tmp_path):
    groups = tuple(type(samples.plan().groups[0])(f"{PUT}[{n}]", PUT, "x") for n in range(50))
    result = evidence_of(tmp_path, [samples.run(), Plan(groups)]).requirements()[PUT]
    assert result.gaps == (f"50 of 50 groups did not run or did not end, the first is {PUT}[0]",)


def test_one_missing_group_spoils_its_requirement(tmp_path):
    records = samples.green()
    more = samples.plan()
    extra = type(more.groups[0])(f"{PUT}[ranks=8,dtype=fp16]", PUT, "x")
    records[1] = Plan((*more.groups, extra), more.requirements)
    assert evidence_of(tmp_path, records).requirements()[PUT].verdict is Verdict.NOT_RUN


@pytest.mark.parametrize(
    ("position", "replacement", "gap"),
    [
        (5, Group(PUT_GROUP, PUT, Verdict.PASS, 3), "counted 3 cases, 2 are recorded"),
        (4, samples.case(2, verdict=Verdict.FAIL), "passed, but one of its cases did not"),
        (5, Group("RMA-PUT-001[other]", PUT, Verdict.PASS, 0), "ran without being planned"),
        (8, samples.end(1), "status 1"),
        (0, samples.end(0), "run record is missing"),
    ],
)
def test_contradictions_are_gaps(tmp_path, position, replacement, gap):
    records = samples.green()
    records[position] = replacement
    evidence = evidence_of(tmp_path, records)
    gaps = [*evidence.gaps(), *(g for result in evidence.requirements().values() for g in result.gaps)]
    assert any(gap in text for text in gaps), gaps
    assert evidence.verdict() is not Verdict.PASS


def test_a_group_that_passes_without_a_case_is_a_gap(tmp_path):
    records = [samples.run(), samples.plan(), Group(PUT_GROUP, PUT, Verdict.PASS, 0), samples.end()]
    result = evidence_of(tmp_path, records).requirements()[PUT]
    assert result.verdict is Verdict.UNKNOWN
    assert result.gaps == (f"{PUT_GROUP} passed without a case",)


def test_a_group_that_ends_twice_keeps_its_worse_verdict(tmp_path):
    records = [*samples.green(), Group(PUT_GROUP, PUT, Verdict.FAIL, 0, message="second")]
    evidence = evidence_of(tmp_path, records)
    assert evidence.requirements()[PUT].verdict is Verdict.FAIL
    assert any("ended twice" in gap for gap in evidence.gaps())


def test_a_group_that_failed_without_a_case_says_why(tmp_path):
    group = Group(PUT_GROUP, PUT, Verdict.UNKNOWN, 0, message="the rank group did not start")
    result = evidence_of(tmp_path, [samples.run(), samples.plan(), group, samples.end(1)]).requirements()[PUT]
    assert result.gaps == (f"{PUT_GROUP}: the rank group did not start",)


def test_the_reduced_case_is_the_one_the_group_names(tmp_path):
    small, large = samples.case(1, verdict=Verdict.FAIL), samples.case(500, verdict=Verdict.FAIL)
    group = Group(PUT_GROUP, PUT, Verdict.FAIL, 2, failing_case=small.id)
    evidence = evidence_of(tmp_path, [samples.run(), samples.plan(), small, large, group, samples.end(1)])
    assert [case.id for case in evidence.requirements()[PUT].failing] == [small.id]


def test_a_case_is_found_by_an_unambiguous_beginning(tmp_path):
    evidence = evidence_of(tmp_path, samples.green())
    wanted = evidence.cases[0]
    assert evidence.case(wanted.id) == wanted
    assert evidence.case(wanted.id[:12]) == wanted
    assert evidence.case("") is None
    assert evidence.case("zz") is None


def test_another_schema_version_is_refused(tmp_path):
    path = tmp_path / "evidence.jsonl"
    path.write_text(json.dumps({"schema": 1, "record": "run"}) + "\n")
    with pytest.raises(UsageError, match=r"schema 1, and this version reads 2: read it with iris-harness 0\.1"):
        read(path)


def test_a_missing_file_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no evidence"):
        read(tmp_path / "evidence.jsonl")


def test_case_ids_depend_on_every_part():
    ids = {
        case_id("A", "A[1]", {"type": "T", "fields": {"n": 1}}),
        case_id("B", "A[1]", {"type": "T", "fields": {"n": 1}}),
        case_id("A", "A[2]", {"type": "T", "fields": {"n": 1}}),
        case_id("A", "A[1]", {"type": "T", "fields": {"n": 2}}),
    }
    assert len(ids) == 4
    assert case_id("A", "g", {"a": 1, "b": 2}) == case_id("A", "g", {"b": 2, "a": 1})
