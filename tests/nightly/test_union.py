"""The evidence of all attempts of a leg: no group is lost, and none counts twice."""

import dataclasses
from types import SimpleNamespace

import pytest

from command_line.nightly.leg import result_of
from command_line.nightly.union import attempts_of
from harness.errors import UsageError
from harness.evidence import End, Group, Verdict
from tests.evidence import samples
from tests.evidence.samples import ADD, ADD_GROUP, PUT, PUT_GROUP

PASSED_PUT = [samples.case(1), samples.case(2), Group(PUT_GROUP, PUT, Verdict.PASS, 2)]
PASSED_ADD = [samples.case(3, requirement=ADD), Group(ADD_GROUP, ADD, Verdict.PASS, 1)]


def attempt(folder, number, *records, plan=None, run="a"):
    place = folder / str(number)
    place.mkdir(parents=True)
    head = [samples.run(id=f"{run}{number}"), plan or samples.plan(), samples.kernel()]
    return samples.write(place / "evidence.jsonl", [*head, *records])


def left(*groups):
    plan = samples.plan()
    return dataclasses.replace(plan, groups=tuple(each for each in plan.groups if each.group in groups))


def test_a_group_that_was_cut_in_half_runs_again_and_its_half_does_not_count(tmp_path):
    attempt(tmp_path, 1, *PASSED_PUT, samples.case(3, requirement=ADD))  # killed within the second group
    first = attempts_of(tmp_path)
    assert first.left == [ADD_GROUP] and not first.ended and not first.complete
    attempt(tmp_path, 2, *PASSED_ADD, samples.end(), plan=left(ADD_GROUP))
    both = attempts_of(tmp_path)
    assert both.complete and both.ended and both.union.verdict() is Verdict.PASS
    assert {name: result.cases for name, result in both.union.requirements().items()} == {PUT: 2, ADD: 1}
    assert both.union.gaps() == ()


def test_a_line_that_was_cut_off_is_no_problem_and_other_damage_is(tmp_path):
    path = attempt(tmp_path, 1, *PASSED_PUT, samples.case(3, requirement=ADD))
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    attempt(tmp_path, 2, *PASSED_ADD, samples.end(), plan=left(ADD_GROUP))
    assert attempts_of(tmp_path).union.problems == []
    path.write_bytes(whole.replace(b'"seconds":0.25', b'"seconds":0.26', 1))
    assert attempts_of(tmp_path).union.problems, "an edited line is not a crash"


def test_two_verdicts_for_a_group_are_refused(tmp_path):
    attempt(tmp_path, 1, *PASSED_PUT)
    attempt(tmp_path, 2, *PASSED_PUT, *PASSED_ADD, samples.end())
    with pytest.raises(UsageError, match="two verdicts for RMA-PUT-001"):
        attempts_of(tmp_path)


def test_an_attempt_of_another_plan_is_refused(tmp_path):
    plan = samples.plan()
    attempt(tmp_path, 1, *PASSED_PUT, plan=left(PUT_GROUP))
    attempt(tmp_path, 2, *PASSED_ADD, plan=plan)
    with pytest.raises(UsageError, match=r"attempt 2 planned ATOMIC-ADD-001.*which attempt 1 did not"):
        attempts_of(tmp_path)


def test_a_group_that_kills_its_run_twice_is_left_out(tmp_path):
    attempt(tmp_path, 1, *PASSED_PUT, samples.case(3, requirement=ADD))
    assert attempts_of(tmp_path).deadly() == []
    attempt(tmp_path, 2, samples.case(3, requirement=ADD), plan=left(ADD_GROUP))
    assert attempts_of(tmp_path).deadly() == [ADD_GROUP]


def test_what_the_budget_left_counts_as_not_run_and_may_run_after_a_crash(tmp_path):
    spent = Group(ADD_GROUP, ADD, Verdict.NOT_RUN, 0, message="the time budget of 9 s was spent")
    attempt(tmp_path / "ended", 1, *PASSED_PUT, spent, samples.end(1))
    ended = attempts_of(tmp_path / "ended")
    assert ended.ended and ended.left == [ADD_GROUP] and ended.union.verdict() is Verdict.NOT_RUN
    attempt(tmp_path / "died", 1, *PASSED_PUT, spent)
    attempt(tmp_path / "died", 2, *PASSED_ADD, samples.end(), plan=left(ADD_GROUP))
    assert attempts_of(tmp_path / "died").union.verdict() is Verdict.PASS


def test_an_attempt_without_a_plan_counts_as_none(tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "evidence.jsonl").write_bytes(b'{"schema":2,"rec')
    (tmp_path / "2").mkdir()
    assert attempts_of(tmp_path).each == ()
    attempt(tmp_path, 3, *PASSED_PUT, *PASSED_ADD, samples.end())
    assert attempts_of(tmp_path).complete


@pytest.mark.parametrize("status", [0, 1, 2, 3])
def test_an_interrupted_run_did_not_reach_its_end_whatever_its_status(tmp_path, status):
    attempt(tmp_path, 1, *PASSED_PUT, End(status, "2026-11-21T02:01:00Z"))
    assert not attempts_of(tmp_path).ended and attempts_of(tmp_path).left == [ADD_GROUP]
    attempt(tmp_path, 2, *PASSED_ADD, samples.end(), plan=left(ADD_GROUP))
    assert attempts_of(tmp_path).union.verdict() is Verdict.PASS


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"implementation": {"name": "iris_under_test", "version": "2", "commit": "b" * 40}}, "implementation"),
        ({"seed": 8}, "seed"),
        ({"environment": {"packages": {"triton": "3.8.0"}}}, "packages"),
    ],
)
def test_an_attempt_of_another_library_is_refused(tmp_path, changes, name):
    attempt(tmp_path, 1, *PASSED_PUT)
    place = attempt(tmp_path, 2, plan=left(ADD_GROUP)).parent
    run = samples.run(id="a2")
    changed = {
        key: {**getattr(run, key), **value} if isinstance(value, dict) else value for key, value in changes.items()
    }
    records = [dataclasses.replace(run, **changed), left(ADD_GROUP), samples.kernel(), *PASSED_ADD, samples.end()]
    (place / "evidence.jsonl").unlink()
    samples.write(place / "evidence.jsonl", records)
    with pytest.raises(UsageError, match=f"attempt 2 ran with another {name} than attempt 1.*begin a new night"):
        attempts_of(tmp_path)


LEG = SimpleNamespace(name="puts", budget=300.0, requirements=())


def test_a_leg_is_red_for_what_no_group_shows(tmp_path):
    attempt(tmp_path, 1, *PASSED_PUT, *PASSED_ADD, samples.end())
    assert result_of(LEG, attempts_of(tmp_path)).verdict is Verdict.PASS
    attempt(tmp_path / "teardown", 1, *PASSED_PUT, *PASSED_ADD, samples.end(1))
    assert result_of(LEG, attempts_of(tmp_path / "teardown")).problems == ("pytest ended with status 1",)
    wrong = dataclasses.replace(samples.plan(), declaration=("the library declares put and does not have it",))
    attempt(tmp_path / "declared", 1, *PASSED_PUT, *PASSED_ADD, samples.end(1), plan=wrong)
    assert result_of(LEG, attempts_of(tmp_path / "declared")).verdict.red


def test_a_requirement_that_a_leg_names_and_leaves_out_did_not_run(tmp_path):
    plan = dataclasses.replace(left(PUT_GROUP), left_out={ADD: "needs 3 ranks, this run has 2"})
    attempt(tmp_path, 1, *PASSED_PUT, samples.end(), plan=plan)
    attempts = attempts_of(tmp_path)
    assert result_of(LEG, attempts).verdict is Verdict.PASS, "the leg names no requirement"
    named = SimpleNamespace(name="puts", budget=300.0, requirements=(PUT, ADD))
    assert result_of(named, attempts).verdict is Verdict.NOT_RUN
    assert result_of(named, attempts).groups[ADD] is Verdict.NOT_RUN
