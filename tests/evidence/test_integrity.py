"""Integrity of evidence: every change of a file's lines is reported, and every contradiction among valid lines."""

import dataclasses
import hashlib
import json

import pytest

from harness.evidence import Case, Difference, Evidence, Plan, PlannedGroup, Verdict, read, worker_path
from harness.evidence.chain import Chain
from tests.evidence import samples
from tests.evidence.samples import ADD, ADD_GROUP, NODES, PUT, PUT_GROUP

COUNT = len(samples.red())


def problems_of(tmp_path, records):
    return read(samples.write(tmp_path / "evidence.jsonl", records)).problems


def tampered(tmp_path, change):
    """Return the evidence of a run whose list of lines ``change`` has edited."""
    path = samples.write(tmp_path / "evidence.jsonl", samples.red())
    lines = path.read_bytes().splitlines(keepends=True)
    change(lines)
    path.write_bytes(b"".join(lines))
    return read(path)


def test_an_untouched_run_has_no_problem(tmp_path):
    assert problems_of(tmp_path, samples.green()) == []
    assert problems_of(tmp_path, samples.red()) == []
    assert problems_of(tmp_path, samples.on_gpus()) == []


def test_anybody_can_check_the_chain(tmp_path):
    """Check the chain by the recipe of docs/evidence.md, without code of the harness."""
    value = hashlib.sha256(f"{samples.RUN} ".encode()).hexdigest()
    for line in samples.write(tmp_path / "evidence.jsonl", samples.red()).read_bytes().splitlines(keepends=True):
        body, _, stated = line.rpartition(b',"chain":"')
        value = hashlib.sha256(value.encode() + body + b"}").hexdigest()
        assert stated == value.encode() + b'"}\n'


@pytest.mark.parametrize("number", range(COUNT - 1))  # without its last line a run has not ended: another gap
def test_a_line_that_is_removed(tmp_path, number):
    evidence = tampered(tmp_path, lambda lines: lines.pop(number))
    assert any("lines are missing" in problem for problem in evidence.problems)
    assert evidence.verdict() is not Verdict.PASS


@pytest.mark.parametrize("number", range(COUNT))
def test_a_line_that_is_repeated(tmp_path, number):
    assert tampered(tmp_path, lambda lines: lines.insert(number, lines[number])).problems


@pytest.mark.parametrize("number", range(COUNT - 1))
def test_lines_that_are_swapped(tmp_path, number):
    def swap(lines):
        lines[number], lines[number + 1] = lines[number + 1], lines[number]

    assert tampered(tmp_path, swap).problems


@pytest.mark.parametrize("number", range(COUNT))
def test_every_value_of_every_line_is_covered_by_its_hash(tmp_path, number):
    """Each key of each record is changed to another value of its kind, and removed; the hash stays as it was."""
    path = samples.write(tmp_path / "evidence.jsonl", samples.red())
    lines = path.read_bytes().splitlines(keepends=True)
    whole = json.loads(lines[number])
    for key, value in whole.items():
        other = value + "0" if isinstance(value, str) else value + 1 if isinstance(value, int) else [value]
        for edited in ({**whole, key: other}, {k: v for k, v in whole.items() if k != key}):
            changed = [*lines]
            changed[number] = json.dumps(edited, separators=(",", ":")).encode() + b"\n"
            path.write_bytes(b"".join(changed))
            if key == "schema" and number == 0 and edited.get("schema") == 3:
                continue  # refused as another version: tests/evidence/test_reading.py
            assert read(path).problems, f"{key} of line {number}"


@pytest.mark.parametrize("old", [b'"verdict":"fail"', b'"got":5', b'"run":"a1b2c3"', b":", b"}"])
def test_one_edit_makes_one_problem(tmp_path, old):
    def edit(lines):
        at = next(number for number, line in enumerate(lines) if b'"differs"' in line)
        lines[at] = lines[at].replace(old, old + b" ", 1)

    [problem] = tampered(tmp_path, edit).problems
    assert problem == "evidence.jsonl line 7 does not match its hash: it, or a line before it, was changed"


def test_many_problems_are_counted(tmp_path):
    evidence = tampered(tmp_path, lambda lines: lines.extend([b"junk\n"] * 5000))
    assert len(evidence.problems) == 21
    assert evidence.problems[-1] == "4,980 more lines or contradictions like these"


def test_records_of_two_runs_are_not_one(tmp_path):
    other = samples.write(tmp_path / "other.jsonl", [samples.run(id="other"), samples.plan(), samples.end()])
    evidence = tampered(tmp_path, lambda lines: lines.append(other.read_bytes().splitlines(keepends=True)[2]))
    assert "belongs to run 'other', not to 'a1b2c3'" in evidence.problems[0]


def test_a_worker_of_another_run_is_not_taken_for_ours(tmp_path):
    path = samples.write(tmp_path / "evidence.jsonl", samples.green()[:-1])
    samples.write(worker_path(path, "gw0"), [samples.run(id="other"), samples.plan()])
    assert "belongs to run 'other'" in read(path).problems[0]


def test_a_worker_that_was_not_absorbed(tmp_path):
    path = samples.write(tmp_path / "evidence.jsonl", samples.green())
    samples.write(worker_path(path, "gw0"), [samples.plan()])
    assert (
        read(path).problems[0] == "evidence-gw0.jsonl is a worker's file, which the run did not absorb before its end"
    )


def replaced(records, at, **changes):
    return [*records[:at], dataclasses.replace(records[at], **changes), *records[at + 1 :]]


def moved(records, start, to):
    records = [*records]
    records.insert(to, records.pop(start))
    return records


def second_plan(**changes):
    """Green records with a plan after the first; workers of one run write the same plan."""
    return [*GREEN[:2], dataclasses.replace(GREEN[1], **changes), *GREEN[2:]]


def planned(group, requirement, nodeid):
    return Plan((*samples.plan().groups[1:], PlannedGroup(group, requirement, nodeid)), samples.plan().requirements)


GREEN, RED = samples.green(), samples.red()
TABLE = samples.plan().requirements
MORE = dataclasses.replace(TABLE[0], id="CCL-X-001")
FREE = dataclasses.replace(TABLE[0], id="FREE-001", needs=("Iris.free", "ccl.{op}"), api="extended")


def unsupported(names, **changes):
    """Return a whole run that does not support ``names``; its library lacks Iris.free."""
    values = {"requirements": (*TABLE, FREE), "capabilities": {"Iris.free": "missing"}, "unsupported": names, **changes}
    return replaced(GREEN, 1, **values)


SOMETIMES, ALWAYS = {"runs": 5, "failed": 2}, {"runs": 5, "failed": 5}
FIRST_SHARD, SECOND_SHARD = ({"index": index, "of": 2, "plan": "0" * 64} for index in (1, 2))


def shards(second, **changes):
    """Return the green run in two shards, one for each group; ``changes`` are of the second one's plan."""
    first = dataclasses.replace(GREEN[1], groups=GREEN[1].groups[:1], shard=FIRST_SHARD)
    further = dataclasses.replace(Plan(GREEN[1].groups[1:]), shard=second, **changes)
    return [GREEN[0], first, *GREEN[2:6], further, *GREEN[6:]]


OTHER_CASE = {"type": "Copy", "fields": {"count": 9, "dtype": "fp16"}}


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        # ids
        (replaced(GREEN, 3, case=OTHER_CASE), "which is not the id of its content"),
        (replaced(GREEN, 3, id="0" * 16), "which is not the id of its content"),
        ([GREEN[0], *GREEN], "which must be the first"),
        # order
        (moved(GREEN, 0, 2), "is a plan record, but the first record must be the run's"),
        (moved(GREEN, 1, 5), "which no earlier plan names"),
        (moved(GREEN, 4, 5), "which has ended already"),
        ([*GREEN, samples.case(4)], "comes after the end of the run"),
        ([*GREEN, samples.end()], "comes after the end of the run"),
        # a case and its group
        (replaced(GREEN, 3, nodeid=NODES[ADD]), "another requirement or node id than planned"),
        (replaced(GREEN, 7, requirement=PUT), "another requirement than planned"),
        (replaced(RED, 6, verdict=Verdict.PASS, message=""), "passed, and also a failure of it"),
        (replaced(GREEN, 3, fault="a fault"), "passed, and also a failure of it"),
        (replaced(GREEN, 3, message="rank 0 differs"), "passed, and also a failure of it"),
        (replaced(GREEN, 3, fault_source="device.py:1"), "passed, and also a failure of it"),
        (replaced(GREEN, 3, differs=Difference("heap", 0, 0, 1, 2)), "passed, and also a failure of it"),
        ([*GREEN[:4], GREEN[3], dataclasses.replace(GREEN[5], cases=2), *GREEN[6:]], "again"),
        ([*GREEN[:6], GREEN[5], *GREEN[6:]], f"ends {PUT_GROUP}, which ended twice"),
        (replaced(RED, 7, failing_case="0" * 16), "has no record"),
        (replaced(GREEN, 5, failing_case=samples.case(1).id), "which passed"),
        (replaced(RED, 7, verdict=Verdict.PASS), "passed, and names a failing case"),
        # plans
        ([*GREEN[:2], planned(PUT_GROUP, ADD, NODES[ADD]), *GREEN[2:]], "differently than before"),
        ([GREEN[0], planned(PUT_GROUP, ADD, NODES[PUT]), *GREEN[2:]], f"not named after its requirement {ADD}"),
        ([GREEN[0], planned(f"{PUT}[]", PUT, "t.py::test"), *GREEN[2:]], f"not named after its requirement {PUT}"),
        ([GREEN[0], planned(PUT_GROUP, PUT, NODES[ADD]), *GREEN[2:]], "whose node id has other parameters"),
        ([GREEN[0], planned(PUT_GROUP, PUT, "x[ranks=2-fp16]"), *GREEN[2:]], "whose node id has other parameters"),
        ([GREEN[0], planned("X-1[ranks=4]", "X-1", "x"), *GREEN[2:]], "whose requirement is not in its table"),
        (replaced(GREEN, 1, not_applicable={PUT: "no GPU"}), "a plan calls it not applicable"),
        (second_plan(groups=(), not_applicable={PUT: "no GPU"}), f"plans groups of {PUT}, and a plan calls it not"),
        (second_plan(groups=(), requirements=()), "differs from the plan before it"),
        (
            second_plan(requirements=(*TABLE, MORE), not_applicable={MORE.id: "no GPU"}),
            "differs from the plan before it",
        ),
        (replaced(GREEN, 1, not_applicable={"ZZ": "no GPU"}), "gives a reason for ZZ, which is not in its table"),
        (replaced(GREEN, 1, left_out={"ZZ[ranks=4]": "-k"}), "gives a reason for ZZ, which is not in its table"),
        (replaced(GREEN, 1, left_out={PUT_GROUP: "-k"}), f"leaves {PUT_GROUP} out, which is planned"),
        (replaced(GREEN, 1, left_out={PUT: "-k"}), f"leaves {PUT} out, which is planned"),
        (
            replaced(GREEN, 1, requirements=(*TABLE, MORE), not_applicable={MORE.id: "a"}, left_out={MORE.id: "b"}),
            f"calls {MORE.id} both not applicable and left out",
        ),
        # what the library does not support
        (unsupported({PUT: "needs put"}), f"calls {PUT} unsupported, which is planned"),
        (unsupported({PUT_GROUP: "needs put"}), f"calls {PUT_GROUP} unsupported, which is planned"),
        (unsupported({"ZZ": "needs put"}), "gives a reason for ZZ, which is not in its table"),
        (unsupported({FREE.id: "needs f"}, capabilities={}), "lists no capability that it needs as missing"),
        (unsupported({FREE.id: "needs f"}, capabilities={"Iris.free": "present"}), "no capability that it needs as"),
        (unsupported({FREE.id: "needs f"}, capabilities={"Iris.close": "missing"}), "no capability that it needs as"),
        (unsupported({FREE.id: "x"}, left_out={FREE.id: "-k"}), f"calls {FREE.id} both unsupported and left out"),
        (
            unsupported({FREE.id: "x"}, not_applicable={FREE.id: "no GPU"}),
            f"calls {FREE.id} both not applicable and unsupported",
        ),
        (replaced(GREEN, 3, verdict=Verdict.UNSUPPORTED, message="x"), "ran and is unsupported"),
        (replaced(GREEN, 5, verdict=Verdict.UNSUPPORTED), "ran and is unsupported"),
        # flaky groups
        (replaced(RED, 7, verdict=Verdict.FLAKY), "is flaky, and its case failed in none of its executions"),
        (replaced(RED, 7, repeats=SOMETIMES), "is fail, and its case failed in 2 of 5 of its executions"),
        (replaced(RED, 7, verdict=Verdict.FLAKY, repeats=ALWAYS), "is flaky, and its case failed in 5 of 5 of its"),
        (
            replaced(RED, 7, verdict=Verdict.FLAKY, repeats=SOMETIMES, failing_case=None),
            "is flaky, and names no failing case",
        ),
        (replaced(RED, 6, verdict=Verdict.FLAKY), "ran and is flaky"),
        # shards
        (shards({**SECOND_SHARD, "index": 1, "plan": "1" * 64}), "is of shard 1, which has a plan already"),
        (shards({**SECOND_SHARD, "index": 3}), "is of shard 3 of another division into shards"),
        (shards({**SECOND_SHARD, "of": 3}), "is of shard 2 of another division into shards"),
        (shards({**SECOND_SHARD, "plan": "1" * 64}), "is of shard 2 of another division into shards"),
        (shards(None), "differs from the plan before it"),
        (shards(SECOND_SHARD, groups=samples.plan().groups), f"plans {PUT_GROUP}, which another shard has run"),
        (shards(SECOND_SHARD, requirements=TABLE), "states more than the groups of its shard"),
        (shards(SECOND_SHARD, left_out={ADD: "-k"}), "states more than the groups of its shard"),
        (shards(SECOND_SHARD, api="published"), "states more than the groups of its shard"),
        (shards(SECOND_SHARD, declaration=("x",)), "states more than the groups of its shard"),
        # what counts and what is measured
        ([*GREEN[:-1], samples.end(0, **{"pass": 3})], "counts 3 groups with verdict pass, 2 are recorded"),
        ([*RED[:-1], samples.end(1, fail=0)], "counts 0 groups with verdict fail, 1 are recorded"),
        ([*GREEN[:5], samples.telemetry(samples.case(77)), *GREEN[5:]], "measures a case without an earlier record"),
    ],
)
def test_what_is_in_order_and_contradicts_itself(tmp_path, records, problem):
    """Such a file has a valid chain: its writer has a bug, or the person who changed it computed a new chain."""
    problems = problems_of(tmp_path, records)
    assert any(problem in text for text in problems), problems
    assert read(tmp_path / "evidence.jsonl").verdict() is not Verdict.PASS


REASONS = {
    "not_applicable": {FREE.id: "no GPU"}, "left_out": {FREE.id: "-k"}, "unsupported": {FREE.id: "needs Iris.free"},
}  # fmt: skip
OTHER = dataclasses.replace(TABLE[0], statement="It may.")


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        ("left_out", "not_applicable", f"calls {FREE.id} both not applicable and left out"),
        ("not_applicable", "left_out", f"calls {FREE.id} both not applicable and left out"),
        ("unsupported", "not_applicable", f"calls {FREE.id} both not applicable and unsupported"),
        ("not_applicable", "unsupported", f"calls {FREE.id} both not applicable and unsupported"),
        ("left_out", "unsupported", f"calls {FREE.id} both unsupported and left out"),
        ("unsupported", "left_out", f"calls {FREE.id} both unsupported and left out"),
        (None, {"left_out": {PUT: "-k"}}, f"leaves {PUT} out, which is planned"),
        (None, {"left_out": {PUT_GROUP: "-k"}}, f"leaves {PUT_GROUP} out, which is planned"),
        (None, {"unsupported": {PUT: "x"}}, f"calls {PUT} unsupported, which is planned"),
        (None, {"unsupported": {PUT_GROUP: "x"}}, f"calls {PUT_GROUP} unsupported, which is planned"),
        (None, {"requirements": (OTHER, *TABLE[1:])}, f"states {PUT} differently than before"),
    ],
)
def test_a_plan_that_contradicts_the_plan_before_it(tmp_path, first, second, problem):
    """Each plan by itself has no problem: the second one's groups are none."""
    values = {"requirements": (*TABLE, FREE), "capabilities": {"Iris.free": "missing"}}
    one = dataclasses.replace(GREEN[1], **values, **({first: REASONS[first]} if first else {}))
    more = {second: REASONS[second]} if isinstance(second, str) else second
    other = dataclasses.replace(GREEN[1], **{**values, "groups": (), **more})
    problems = problems_of(tmp_path, [GREEN[0], one, other, *GREEN[2:]])
    assert any(problem in text for text in problems), problems
    assert not any(problem in text for text in problems_of(tmp_path, [GREEN[0], one, *GREEN[2:]]))


@pytest.mark.parametrize(
    "records",
    [
        shards(SECOND_SHARD),
        [*shards(SECOND_SHARD)[:2], *shards(SECOND_SHARD)[1:]],  # two workers of the first shard
        replaced(RED, 7, verdict=Verdict.FLAKY, repeats=SOMETIMES),
        replaced(RED, 7, repeats=ALWAYS),
    ],
)  # fmt: skip
def test_what_is_in_order_and_consistent(tmp_path, records):
    assert read(samples.write(tmp_path / "evidence.jsonl", records)).problems == []


def test_a_kernel_without_a_record_is_a_gap(tmp_path):
    evidence = read(samples.write(tmp_path / "evidence.jsonl", [*GREEN[:2], *GREEN[3:]]))
    assert evidence.gaps() == ("1 kernels that ran have no kernel record",)


def test_plans_of_several_workers_are_one(tmp_path):
    plan = dataclasses.replace(samples.plan(), left_out={f"{PUT}[ranks=2]": "deselected"})
    evidence = read(samples.write(tmp_path / "evidence.jsonl", [GREEN[0], plan, plan, *GREEN[2:]]))
    assert evidence.problems == []
    assert evidence.missing() == (f"{PUT}[ranks=2]: deselected",)


def test_complete_and_partial(tmp_path):
    def missing(**changes):
        records = replaced(GREEN, 1, **changes)
        evidence = read(samples.write(tmp_path / "evidence.jsonl", records))
        assert evidence.verdict() is Verdict.PASS, "no verdict is changed"
        assert evidence.complete is (not evidence.missing())
        return evidence.missing()

    table = samples.plan().requirements
    more = dataclasses.replace(table[0], id="CCL-X-001")
    assert missing() == ()
    (at,) = (i for i, record in enumerate(GREEN) if isinstance(record, Case) and record.group == ADD_GROUP)
    replay = read(samples.write(tmp_path / "replay.jsonl", replaced(GREEN, at, phase="replay")))
    assert replay.problems == []
    assert replay.missing() == (f"{ADD_GROUP}: only one case was repeated",)
    assert missing(requirements=(*table, more)) == ("CCL-X-001: not planned",)
    assert missing(requirements=(*table, more), not_applicable={"CCL-X-001": "no GPU"}) == ()
    assert missing(requirements=(*table, more), left_out={"CCL-X-001": "-k"}) == ("CCL-X-001: -k",)
    assert missing(left_out={f"{PUT}[ranks=8]": "8 GPUs"}) == (f"{PUT}[ranks=8]: 8 GPUs",)
    assert missing(requirements=()) == ("no plan with the suite's requirements was written",)


def test_what_is_unsupported_is_neither_green_nor_red_nor_left_out(tmp_path):
    evidence = read(samples.write(tmp_path / "evidence.jsonl", unsupported({FREE.id: "needs Iris.free"})))
    assert evidence.problems == [] and evidence.gaps() == () and evidence.complete
    assert evidence.verdict() is Verdict.UNSUPPORTED
    assert {name: count for name, count in evidence.counts().items() if count} == {"pass": 2, "unsupported": 1}
    result = evidence.requirements()[FREE.id]
    assert (result.verdict, result.groups, result.gaps, result.cases) == (Verdict.UNSUPPORTED, {}, (), 0)


def test_one_group_of_a_requirement_that_is_unsupported(tmp_path):
    group = f"{PUT}[ranks=4,op=gather]"
    table = (dataclasses.replace(TABLE[0], needs=("ccl.{op}",)), *TABLE[1:])
    records = unsupported({group: "needs ccl.gather"}, requirements=table, capabilities={"ccl.gather": "missing"})
    evidence = read(samples.write(tmp_path / "evidence.jsonl", records))
    assert evidence.problems == [] and evidence.complete
    result = evidence.requirements()[PUT]
    assert result.verdict is Verdict.UNSUPPORTED, "its other group passed"
    assert set(result.groups.values()) == {Verdict.PASS, Verdict.UNSUPPORTED}


def test_a_failure_of_another_group_counts_more_than_what_is_unsupported(tmp_path):
    values = {"requirements": (*TABLE, FREE), "capabilities": {"Iris.free": "missing"}, "unsupported": {FREE.id: "x"}}
    evidence = read(samples.write(tmp_path / "evidence.jsonl", replaced(RED, 1, **values)))
    assert evidence.verdict() is Verdict.FAIL and evidence.counts()["unsupported"] == 1


def test_a_wrong_declaration_is_red(tmp_path):
    records = [*replaced(GREEN, 1, declaration=("iris_capabilities.toml declares put, which is not there",))]
    records[-1] = dataclasses.replace(records[-1], exit_status=1)
    evidence = read(samples.write(tmp_path / "evidence.jsonl", records))
    assert evidence.verdict() is Verdict.FAIL and evidence.gaps() == ()


def test_groups_named_as_the_suite_names_them(tmp_path):
    """A value may hold what separates values in node ids."""
    name, node = f"{PUT}[ranks=4,op=all-gather,dtype=fp16]", "t.py::test[op=all-gather-ranks=4-dtype=fp16]"
    plan = Plan((PlannedGroup(name, PUT, node),), samples.plan().requirements)
    assert problems_of(tmp_path, [samples.run(), plan]) == []


def test_long_names_cost_a_problem_and_no_time(tmp_path):
    """Comparing these parameters one by one would take minutes."""
    name, node = f"{PUT}[{'a' * 2_000_000}b]", "t.py::test[" + "-".join("b" * 1_000_000) + "]"
    plan = Plan((PlannedGroup(name, PUT, node),), samples.plan().requirements)
    [problem] = problems_of(tmp_path, [samples.run(), plan])
    assert problem.endswith(
        f" plans a group with a name of 2,000,014 characters, 1,000 are allowed: RMA-PUT-001[{'a' * 48}..."
    ), "the first 60 characters"


@pytest.mark.parametrize(("length", "problems"), [(1000, 0), (1001, 1)])
def test_the_longest_name_that_is_allowed(tmp_path, length, problems):
    name = f"{PUT}[n={'1' * (length - len(PUT) - 4)}]"
    assert len(name) == length
    plan = Plan((PlannedGroup(name, PUT, "t.py::test"),), samples.plan().requirements)
    assert len(problems_of(tmp_path, [samples.run(), plan])) == problems


def test_a_hash_under_another_key_does_not_end_a_line():
    """The line is as long, and the hash stands where it should be; another key of the content states it too."""
    chain, body = Chain("run"), b'{"run":"run","sequence":0}'
    written, value = chain.sealed(body)
    line = written.rstrip()
    plain = {"run": "run", "sequence": 0, "chain": value}
    assert Chain("run").problem_with(line, plain) is None
    assert Chain("run").problem_with(line.replace(b',"chain":', b',"chaIn":'), plain) == "does not end with its hash"
    assert Chain("run").problem_with(line, {**plain, "chain": "0" * 64}) == "does not end with its hash"


@pytest.mark.parametrize("number", ["1", None, True])
def test_a_sequence_number_that_is_not_a_number_is_one_problem(number):
    """True equals 1 in Python. The hashes are right: a person who changes a file can compute them."""
    writer, reader, problems = Chain("run"), Chain("run"), []
    for sequence in (0, number, 2, 3):
        written, value = writer.sealed(b"{}")
        writer.advance(value)
        plain = {"run": "run", "sequence": sequence, "chain": value}
        problems.append(reader.problem_with(written.rstrip(), plain))
    wrong = f"has sequence number {number!r} instead of 1: lines are missing, repeated or moved"
    assert problems == [None, wrong, None, None]


def test_many_requirements_cost_no_more_each():
    """The work is counted, not timed: every planned group is visited once, not once per requirement."""
    looked = 0

    class Counted(PlannedGroup):
        def __getattribute__(self, name):
            nonlocal looked
            looked += name == "requirement"
            return super().__getattribute__(name)

    names = [f"R-{number}" for number in range(100)]
    evidence = Evidence(plan={f"{name}[x=1]": Counted(f"{name}[x=1]", name, "t") for name in names})
    assert len(evidence.requirements()) == 100
    assert looked <= 300
