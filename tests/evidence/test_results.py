"""Results of requirements and of runs, derived from records: verdicts, gaps, what is missing, and what is excused."""

import dataclasses

import pytest

from harness.evidence import Evidence, Group, PlannedGroup, Requirement, Verdict, case_id
from harness.evidence.entries import recorded
from harness.evidence.waivers import read_waivers
from tests.evidence import samples
from tests.evidence.samples import ADD, ADD_GROUP, PUT, PUT_GROUP

GROUPS = [f"{PUT}[ranks=4,n={number}]" for number in range(6)]
WAIVER = f"""
[[waiver]]
requirement = "{ADD}"
implementation = "iris_under_test"
issue = "https://example.org/issues/12"
reason = "the compiler reorders the store"
expires = 2026-11-21
"""


def evidence(records=None, **fields):
    """Return the content of a file with these records, by default of the green run, with ``fields`` in place of its
    own."""
    content = Evidence()
    for record in samples.green() if records is None else records:
        match record.record:
            case "run":
                content.runs.append(record)
            case "plan":
                content.plan |= {group.group: group for group in record.groups}
                content.statements |= {requirement.id: requirement for requirement in record.requirements}
            case "kernel":
                content.kernels[record.hash] = record
            case "case":
                content.cases.append(record)
            case "group":
                content.groups.setdefault(record.group, []).append(record)
            case "end":
                content.ends.append(record)
    return dataclasses.replace(content, **fields)


def case(group, number=0, verdict=Verdict.PASS, requirement=PUT, **changes):
    drawn = samples.case(number)
    identity = case_id(requirement, group, drawn.case)
    changes = {"kernels": (), **changes}
    return dataclasses.replace(
        drawn, id=identity, requirement=requirement, group=group, nodeid="n", verdict=verdict, **changes
    )


def ended(group, verdict=Verdict.PASS, cases=1, requirement=PUT, **changes):
    return Group(group, requirement, verdict, cases, **changes)


def several(*verdicts, **fields):
    """Return the run of one requirement whose groups ended with these verdicts; None: the group has no record."""
    names = GROUPS[: len(verdicts)]
    groups = {name: [ended(name, verdict)] for name, verdict in zip(names, verdicts, strict=True) if verdict}
    cases = [case(name, verdict=verdict) for name, verdict in zip(names, verdicts, strict=True) if verdict]
    plan = {name: PlannedGroup(name, PUT, "n") for name in names}
    whole = {"plan": plan, "groups": groups, "cases": cases, "runs": [samples.run()], "ends": [samples.end()], **fields}
    return Evidence(**whole)


def test_a_run_in_which_everything_passed():
    content = evidence()
    add, put = content.requirements().values()
    assert (put.id, put.verdict, put.cases, put.seconds, put.gaps, put.failing) == (PUT, Verdict.PASS, 2, 0.5, (), ())
    assert put.kernels == (samples.KERNEL,) and put.groups == {PUT_GROUP: Verdict.PASS}
    assert (put.statement, put.source) == ("put copies exactly the masked elements to the peer", "iris_api.md, put")
    assert (put.form_of, put.form) == (None, None)
    assert (add.id, add.cases) == (ADD, 1)
    assert content.verdict() is Verdict.PASS and content.gaps() == () and content.missing() == ()
    assert content.whole and content.complete
    assert {name: count for name, count in content.counts().items() if count} == {"pass": 2}
    assert set(content.counts()) == {verdict.value for verdict in Verdict}


def test_a_form_of_a_requirement_is_named():
    statements = {PUT: Requirement(PUT, "s", "t", ("put",), form_of=ADD, form="by_context")}
    result = evidence(statements=statements).requirements()[PUT]
    assert (result.form_of, result.form) == (ADD, "by_context")
    result = evidence(statements={}).requirements()[PUT]
    assert (result.statement, result.source, result.form_of, result.form) == ("", "", None, None)


@pytest.mark.parametrize("count", [1, 3])
def test_few_groups_that_did_not_run_are_named(count):
    content = several(Verdict.PASS, *[None] * count)
    result = content.requirements()[PUT]
    assert result.gaps == tuple(f"{name} did not run" for name in GROUPS[1 : count + 1])
    assert result.verdict is Verdict.NOT_RUN and content.verdict() is Verdict.NOT_RUN


def test_many_groups_that_did_not_run_are_counted():
    result = several(Verdict.PASS, *[None] * 4).requirements()[PUT]
    assert result.gaps == (f"4 of 5 groups did not run or did not end, the first is {GROUPS[1]}",)


def test_a_group_with_cases_and_no_end_did_not_end():
    content = several(Verdict.PASS, None)
    content.cases.append(case(GROUPS[1]))
    result = content.requirements()[PUT]
    assert result.gaps == (f"{GROUPS[1]} did not end",) and result.verdict is Verdict.NOT_RUN


def test_a_contradiction_makes_a_pass_unknown_and_hides_no_failure():
    result = several(Verdict.PASS).requirements()[PUT]
    assert result.verdict is Verdict.PASS
    for change, gap in (
        ({"cases": 2}, f"{GROUPS[0]} counted 2 cases, 1 are recorded"),
        ({"cases": 0}, f"{GROUPS[0]} counted 0 cases, 1 are recorded"),
    ):
        content = several(Verdict.PASS, groups={GROUPS[0]: [ended(GROUPS[0], **change)]})
        assert content.requirements()[PUT].gaps == (gap,) and content.verdict() is Verdict.UNKNOWN
        content = several(Verdict.FAIL, groups={GROUPS[0]: [ended(GROUPS[0], Verdict.FAIL, **change)]})
        assert content.requirements()[PUT].gaps == (gap,) and content.verdict() is Verdict.FAIL


def test_a_group_and_its_cases_agree():
    content = several(Verdict.PASS)
    content.cases[0] = case(GROUPS[0], verdict=Verdict.FAIL)
    assert content.requirements()[PUT].gaps == (f"{GROUPS[0]} passed, but one of its cases did not",)
    content = several(Verdict.PASS, cases=[], groups={GROUPS[0]: [ended(GROUPS[0], cases=0)]})
    assert content.requirements()[PUT].gaps == (f"{GROUPS[0]} passed without a case",)
    for message, wanted in (("the disk is full", "the disk is full"), ("", "no case record states the reason")):
        content = several(Verdict.FAIL, groups={GROUPS[0]: [ended(GROUPS[0], Verdict.FAIL, message=message)]})
        content.cases[0] = case(GROUPS[0])
        assert content.requirements()[PUT].gaps == (f"{GROUPS[0]}: {wanted}",)


def test_a_group_that_nobody_planned_is_a_gap():
    content = several(Verdict.PASS, plan={})
    content.plan[ADD_GROUP] = PlannedGroup(ADD_GROUP, ADD, "n")
    assert content.requirements()[PUT].gaps == (f"{GROUPS[0]} ran without being planned",)


def test_a_group_that_ended_twice_counts_all_its_cases():
    twice = {GROUPS[0]: [ended(GROUPS[0], Verdict.FAIL), ended(GROUPS[0])]}
    content = several(Verdict.FAIL, groups=twice)
    content.cases.append(case(GROUPS[0], 1))
    result = content.requirements()[PUT]
    assert (result.groups, result.gaps, result.cases) == ({GROUPS[0]: Verdict.FAIL}, (), 2)


def test_the_reduced_case_is_the_named_one_else_the_last_that_did_not_pass():
    failed = [case(GROUPS[0], number, Verdict.FAIL) for number in range(3)]
    for named, wanted in ((failed[1].id, failed[1]), (None, failed[2]), ("gone", failed[2])):
        group = ended(GROUPS[0], Verdict.FAIL, 4, failing_case=named)
        content = several(Verdict.FAIL, cases=[*failed, case(GROUPS[0], 4)], groups={GROUPS[0]: [group]})
        assert content.requirements()[PUT].failing == (wanted,)


def test_what_is_unsupported_has_no_gap():
    content = several(Verdict.PASS, None, unsupported={GROUPS[1]: "needs copy", f"{ADD}": "needs atomic_add"})
    put, add = content.requirements()[PUT], content.requirements()[ADD]
    assert put.groups == {GROUPS[0]: Verdict.PASS, GROUPS[1]: Verdict.UNSUPPORTED} and put.gaps == ()
    assert (put.verdict, add.verdict, add.groups) == (Verdict.UNSUPPORTED, Verdict.UNSUPPORTED, {})
    content = several(unsupported={ADD: "needs atomic_add"})
    assert content.gaps() == () and content.verdict() is Verdict.UNSUPPORTED


def test_a_contradiction_makes_what_is_partly_unsupported_unknown():
    content = several(Verdict.PASS, None, unsupported={GROUPS[1]: "needs copy"})
    content.groups[GROUPS[0]] = [ended(GROUPS[0], cases=2)]
    assert content.requirements()[PUT].verdict is Verdict.UNKNOWN


def test_records_of_requirements_that_were_not_planned_have_a_result():
    content = evidence([samples.run(), samples.case(1), samples.end()])
    assert content.requirements()[PUT].gaps == (f"{PUT_GROUP} did not end",)
    content = evidence([samples.run(), Group(ADD_GROUP, ADD, Verdict.PASS, 0), samples.end()])
    assert list(content.requirements()) == [ADD]


def test_each_gap_of_a_run():
    assert evidence([]).gaps() == (
        "the run record is missing", "nothing was planned", "the run did not end: it was stopped, or it crashed",
    )  # fmt: skip
    assert evidence(runs=[samples.run(), samples.run()]).gaps() == ("2 runs wrote to one file",)
    assert evidence(problems=["line 3 is damaged"]).gaps() == ("line 3 is damaged",)
    assert evidence(kernels={}).gaps() == ("1 kernels that ran have no kernel record",)
    assert evidence(problems=["line 3 is damaged"]).verdict() is Verdict.UNKNOWN


def test_the_exit_status_agrees_with_the_groups():
    assert evidence(ends=[samples.end(1)]).gaps() == ("pytest ended with status 1",)
    assert evidence(samples.red()).gaps() == ()
    assert evidence(samples.red(), ends=[samples.end(2)]).gaps() == ("pytest ended with status 2",)
    assert evidence(samples.red(), ends=[samples.end(0)]).gaps() == ()
    wrong = evidence(ends=[samples.end(1)], declaration=("declares put, which is not there",))
    assert wrong.gaps() == () and wrong.verdict() is Verdict.FAIL
    assert evidence(declaration=("x",)).verdict() is Verdict.FAIL


def test_what_a_run_left_out_makes_it_partial_and_changes_no_verdict():
    assert evidence([]).missing() == ("no plan with the suite's requirements was written",)
    content = evidence(left_out={ADD: "deselected"})
    assert content.missing() == (f"{ADD}: deselected",) and not content.complete
    assert content.verdict() is Verdict.PASS
    further = {f"X-{number}": Requirement(f"X-{number}", "s", "t", ()) for number in range(5)}
    statements = {**evidence().statements, **further}
    content = evidence(
        statements=statements,
        not_applicable={"X-0": "no GPU"},
        left_out={"X-1": "-k"},
        unsupported={"X-2[ranks=2]": "needs x", "X-3": "needs y"},
    )
    assert content.missing() == ("X-1: -k", "X-4: not planned")


def test_a_repeated_case_makes_a_run_partial():
    content = several(Verdict.PASS, Verdict.PASS, statements={PUT: Requirement(PUT, "s", "t", ())})
    assert content.missing() == ()
    content.cases[1] = case(GROUPS[1], phase="replay")
    assert content.missing() == (f"{GROUPS[1]}: only one case was repeated",)


@pytest.mark.parametrize(("count", "listed"), [(1, "0"), (3, "0, 1, 2"), (4, "0, 1, 2 and others")])
def test_some_shards_of_a_run_are_no_whole_run(count, listed):
    shards = {number: {"of": 5} for number in reversed(range(count))}
    content = evidence(shards=shards, left_out={ADD: "-k"})
    assert not content.whole and not content.complete
    assert content.missing() == (
        f"all groups but those of shard {listed} of 5: iris-harness merge joins shards", f"{ADD}: -k",
    )  # fmt: skip
    assert evidence(shards={number: {"of": 5} for number in range(5)}).whole


def waived_run(records, **run):
    content = WAIVER.encode()
    entries = recorded(content, read_waivers(content, "w"))
    return evidence(records, runs=[samples.run(waivers=entries, **run)])


def test_a_waiver_excuses_failures_and_nothing_else():
    content = waived_run(samples.red())
    assert content.verdict() is Verdict.WAIVED and list(content.waived()) == [ADD]
    assert content.without_waivers().verdict() is Verdict.FAIL and content.without_waivers().waived() == {}
    assert waived_run(samples.red(), started="2026-11-22T00:00:00Z").verdict() is Verdict.FAIL
    content = waived_run(samples.red())
    content.groups[ADD_GROUP] = [Group(ADD_GROUP, ADD, Verdict.FAIL, 3)]
    assert content.requirements()[ADD].verdict is Verdict.FAIL, "its cases were counted wrongly"


def test_a_waiver_of_another_shard_is_no_problem():
    content = waived_run(samples.red())
    del content.groups[ADD_GROUP], content.plan[ADD_GROUP], content.cases[-1]
    [problem] = content.waiver_problems()
    assert problem == f"the waiver of {ADD} matches nothing: {ADD} is not in the plan"
    content.shards[0] = {"of": 2}
    assert content.waiver_problems() == ()


def test_a_wrong_waiver_is_a_failure_that_the_exit_status_shows():
    content = waived_run(samples.green())
    assert content.verdict() is Verdict.FAIL
    content.ends = [samples.end(1)]
    assert content.gaps() == ()


@pytest.mark.parametrize("verdict", [Verdict.FAIL, Verdict.FLAKY])
@pytest.mark.parametrize(("expires", "excused"), [("2026-11-21", True), ("2026-11-20", False)])
def test_a_quarantine_excuses_failures_until_its_last_day(verdict, expires, excused):
    entry = {"group": GROUPS[0], "failed": 3, "runs": 200, "issue": "https://example.org/31", "expires": expires}
    run = samples.run(quarantine={"entries": [entry]})
    content = several(verdict, Verdict.PASS, runs=[run])
    assert content.requirements()[PUT].groups[GROUPS[0]] is (Verdict.QUARANTINED if excused else verdict)
    assert several(Verdict.PASS, verdict, runs=[run]).requirements()[PUT].groups[GROUPS[1]] is verdict
    content.groups[GROUPS[0]] = [ended(GROUPS[0], verdict, cases=2)]
    assert content.requirements()[PUT].groups[GROUPS[0]] is verdict, "a contradiction is not excused"
    content = several(Verdict.UNKNOWN, runs=[run])
    assert content.requirements()[PUT].groups[GROUPS[0]] is Verdict.UNKNOWN
    assert several(Verdict.FAIL, runs=[]).quarantined() == {}


def test_the_last_record_of_a_case_is_found_by_an_unambiguous_beginning():
    first, second = case(GROUPS[0], message="first"), case(GROUPS[0], message="second")
    content = several(Verdict.PASS, cases=[first, second])
    assert content.case(first.id[:8]) is second and content.case("no") is None
    other = case(GROUPS[0], 1)
    content.cases.append(other)
    assert content.case("") is None and content.case(other.id) is other


def test_the_last_telemetry_around_a_case_is_found():
    one, other = samples.case(1), samples.case(2)
    records = [samples.telemetry(one), samples.telemetry(one, other), samples.telemetry()]
    content = evidence(telemetry=records)
    assert content.telemetry_of(one.id) is records[1] and content.telemetry_of("gone") is None
