"""The judgement of a gate: every word is planted, and its exit status."""

import dataclasses

import pytest

from command_line.gate.choose import Choice
from command_line.gate.judge import Word, judged
from harness.evidence import Group, Verdict, read
from harness.evidence.entries import recorded
from harness.evidence.waivers import read_waivers
from tests.evidence import samples
from tests.evidence.samples import ADD, ADD_GROUP, PUT, PUT_GROUP

NOT_RUN = "the time budget of 300 s was spent"
ALL = Choice({PUT: ("changed",), ADD: ("changed",)}, ())
ONLY_PUT = Choice({PUT: ("changed",)}, (ADD,))


def idle(group, requirement):
    return Group(group, requirement, Verdict.NOT_RUN, 0, message=NOT_RUN)


def without(*groups):
    """The green run, in which these groups did not start for lack of time."""
    records = samples.green()
    kept = [one for one in records if getattr(one, "group", None) not in groups]
    names = {PUT_GROUP: PUT, ADD_GROUP: ADD}
    return [*kept[:-1], *(idle(group, names[group]) for group in groups), kept[-1]]


def unknown():
    bad = samples.case(7, requirement=ADD, verdict=Verdict.UNKNOWN, message="the disk is full")
    return [*samples.green()[:6], bad, Group(ADD_GROUP, ADD, Verdict.UNKNOWN, 1, message="x"), samples.end(1)]


def lost_and_idle():
    """One group of the rest did not start for lack of time, and another one has no record: its worker died."""
    records = without(ADD_GROUP)
    plan = samples.plan()
    further = dataclasses.replace(plan.groups[-1], group=ADD_GROUP.replace("]", ",n=2]"))
    wider = dataclasses.replace(plan, groups=(*plan.groups, further))
    return [wider if type(one) is type(plan) else one for one in records[:-1]] + [samples.end(1)]


def waived(records):
    """The red run, in which a waiver excuses what failed."""
    content = b"""
[[waiver]]
requirement = "ATOMIC-ADD-001"
implementation = "iris_under_test"
issue = "https://example.org/issues/12"
reason = "the compiler reorders the store"
expires = 2026-11-21
"""
    run, *rest = records
    return [dataclasses.replace(run, waivers=recorded(content, read_waivers(content, "w"))), *rest]


def quarantined():
    run, *rest = samples.red()
    entry = {"group": ADD_GROUP, "failed": 3, "runs": 200, "issue": "https://example.org/31", "expires": "2026-11-21"}
    return [dataclasses.replace(run, quarantine={"sha256": "0" * 64, "entries": [entry]}), *rest]


def unsupported():
    """The green run, with one more requirement, which the library does not support."""
    run, plan, *rest = samples.green()
    free = dataclasses.replace(plan.requirements[0], id="HOST-FREE-001", needs=("Iris.free",))
    fields = {"requirements": (*plan.requirements, free), "capabilities": {"Iris.free": "missing"}}
    return [run, dataclasses.replace(plan, unsupported={free.id: "needs Iris.free"}, **fields), *rest]


def declared():
    run, plan, *rest = samples.green()
    return [
        run,
        dataclasses.replace(plan, declaration=("declares put, which is not there",)),
        *rest[:-1],
        samples.end(1),
    ]


def left_out():
    records = [one for one in samples.green() if getattr(one, "requirement", None) != ADD]
    plan = samples.plan()
    kept = tuple(each for each in plan.groups if each.requirement == PUT)
    smaller = dataclasses.replace(plan, groups=kept, left_out={ADD: "needs more GPUs than this machine has"})
    return [smaller if type(one) is type(plan) else one for one in records]


CASES = {
    "everything ran": (samples.green, ALL, Word.PASSED, 0),
    "a chosen group failed": (samples.red, ALL, Word.RED, 1),
    "a group of the rest failed": (samples.red, ONLY_PUT, Word.RED, 1),
    "the rest did not run": (lambda: without(ADD_GROUP), ONLY_PUT, Word.SHORT, 6),
    "a chosen group did not run": (lambda: without(PUT_GROUP), ONLY_PUT, Word.UNCLEAR, 3),
    "nothing ran": (lambda: without(PUT_GROUP, ADD_GROUP), ONLY_PUT, Word.UNCLEAR, 3),
    "a group could not be checked": (unknown, ALL, Word.UNCLEAR, 3),
    "the run did not end": (lambda: samples.green()[:-1], ALL, Word.UNCLEAR, 3),
    "a group left no record": (lambda: [*samples.green()[:6], samples.end(0)], ALL, Word.UNCLEAR, 3),
    "a group of the rest left no record": (lambda: [*samples.green()[:6], samples.end(1)], ONLY_PUT, Word.UNCLEAR, 3),
    "a group of the rest was lost and another one did not start": (lost_and_idle, ONLY_PUT, Word.UNCLEAR, 3),
    "a requirement was left out": (left_out, ONLY_PUT, Word.SHORT, 6),
    "what failed is waived": (lambda: waived(samples.red()), ALL, Word.WAIVED, 5),
    "a waiver is not needed": (lambda: waived([*samples.green()[:-1], samples.end(1)]), ALL, Word.RED, 1),
    "what failed is quarantined": (quarantined, ALL, Word.WAIVED, 5),
    "a requirement is unsupported": (unsupported, ALL, Word.UNSUPPORTED, 4),
    "a capability is declared and missing": (declared, ALL, Word.RED, 1),
    "nothing was planned": (
        lambda: [samples.run(), dataclasses.replace(samples.plan(), groups=()), samples.end(0)], ALL, Word.UNCLEAR, 3,
    ),
    "nothing was planned, and the library does not support a requirement": (
        lambda: [unsupported()[0], dataclasses.replace(unsupported()[1], groups=()), samples.end(0)],
        ALL, Word.UNCLEAR, 3,
    ),
    "a group passed without a case": (
        lambda: [*samples.green()[:6], Group(ADD_GROUP, ADD, Verdict.PASS, 0), samples.end(0)],
        ONLY_PUT, Word.UNCLEAR, 3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_word_has_its_status(tmp_path, name):
    records, choice, word, status = CASES[name]
    judgement = judged(read(samples.write(tmp_path / "e.jsonl", records())), choice)
    assert (judgement.word, judgement.word.status) == (word, status)


def test_a_failure_is_red_although_other_groups_did_not_run(tmp_path):
    records = [one for one in samples.red() if getattr(one, "group", None) != PUT_GROUP]
    evidence = read(samples.write(tmp_path / "e.jsonl", [*records[:-1], idle(PUT_GROUP, PUT), records[-1]]))
    assert judged(evidence, ALL).word is Word.RED


def test_a_red_figure_is_red_although_all_groups_passed(tmp_path):
    evidence = read(samples.write(tmp_path / "e.jsonl", samples.green()))
    assert judged(evidence, ALL, ["spills 0 -> 4"]).word is Word.RED


def test_what_another_check_could_not_tell_is_not_passed(tmp_path):
    evidence = read(samples.write(tmp_path / "e.jsonl", samples.green()))
    assert judged(evidence, ALL, unclear=["noise"]).word is Word.UNCLEAR


def test_the_headline_counts(tmp_path):
    evidence = read(samples.write(tmp_path / "e.jsonl", without(ADD_GROUP)))
    headline = judged(evidence, ONLY_PUT).headline
    assert headline == "passed, the rest of the level did not run: 1 of 2 groups ran, 1 did not run"


def test_failures_of_chosen_requirements_come_first(tmp_path):
    bad = samples.case(8, verdict=Verdict.FAIL)
    records = samples.red()
    records[3:6] = [bad, Group(PUT_GROUP, PUT, Verdict.FAIL, 1, failing_case=bad.id, message="x")]
    evidence = read(samples.write(tmp_path / "e.jsonl", records))
    assert [one.id for one in judged(evidence, ONLY_PUT).failures] == [PUT, ADD]
    assert [one.id for one in judged(evidence, Choice({ADD: ("changed",)}, (PUT,))).failures] == [ADD, PUT]


def judgement_of(tmp_path, records, choice, *more, **further):
    return judged(read(samples.write(tmp_path / "e.jsonl", records)), choice, *more, **further)


def test_what_is_waived_is_no_failure(tmp_path):
    assert judgement_of(tmp_path, waived(samples.red()), ALL).failures == ()
    assert [one.id for one in judgement_of(tmp_path, quarantined(), ALL).failures] == []


def test_a_group_that_was_lost_is_not_among_those_that_did_not_start(tmp_path):
    judgement = judgement_of(tmp_path, lost_and_idle(), ONLY_PUT)
    assert (judgement.idle_chosen, judgement.idle_rest) == ((), (ADD_GROUP,))
    assert len(judgement.unclear) == 1 and "n=2" in judgement.unclear[0]
    judgement = judgement_of(tmp_path, without(PUT_GROUP, ADD_GROUP), ONLY_PUT)
    assert (judgement.idle_chosen, judgement.idle_rest) == ((PUT_GROUP,), (ADD_GROUP,))
    assert (judgement.ran, judgement.planned) == (0, 2)


def test_doubts_are_stated_once(tmp_path):
    judgement = judgement_of(tmp_path, unknown(), ALL, unclear=["noise", "noise"])
    assert judgement.unclear == ("noise", f"{ADD_GROUP} could not be checked")
    judgement = judgement_of(tmp_path, without(PUT_GROUP), ONLY_PUT)
    assert judgement.unclear == (f"the time was too short for {PUT_GROUP}, which the change can affect",)
    judgement = judgement_of(tmp_path, without(PUT_GROUP, ADD_GROUP), ALL)
    assert judgement.unclear[-1] == f"the time was too short for {PUT_GROUP} and 1 more, which the change can affect"


def test_the_headline_of_a_red_gate(tmp_path):
    assert judgement_of(tmp_path, samples.red(), ALL).headline == "red: 2 of 2 groups ran, 1 of them did not pass"
    assert judgement_of(tmp_path, samples.green(), ALL).headline == "passed: 2 of 2 groups ran"


def test_requirements_that_the_choice_does_not_name_come_first(tmp_path):
    """A new requirement has no place in the choice: nothing is known about what it reaches."""
    bad = samples.case(8, verdict=Verdict.FAIL)
    records = samples.red()
    records[3:6] = [bad, Group(PUT_GROUP, PUT, Verdict.FAIL, 1, failing_case=bad.id, message="x")]
    judgement = judgement_of(tmp_path, records, Choice({ADD: ("changed",)}, ()))
    assert [one.id for one in judgement.failures] == [PUT, ADD]
