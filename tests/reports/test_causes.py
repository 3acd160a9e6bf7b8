"""Causes: failing groups that fail alike are one card, with the fact in words and the spread over the plan."""

import dataclasses

import pytest

from harness.evidence import Case, Difference, Group, PlannedGroup, Requirement, Verdict, case_id, read
from reports import causes_of, render_html, render_junit
from reports.picture import picture_of
from reports.spread import parameters_of
from reports.symptoms import symptom_of
from tests.evidence import samples

STORE = Requirement("RMA-STORE-001", "store writes", "rma.md", ("IrisDeviceCtx.store",))
METHOD = Requirement(
    "RMA-STORE-002", "As a method: store writes", "rma.md", ("DeviceContext.store",), STORE.id, "a method"
)
ADD = Requirement("ATOMIC-ADD-001", "adds", "atomics.md", ("IrisDeviceCtx.atomic_add",))
DTYPES = ("int8", "int16", "int32", "fp16")
SENT = {"kind": "payload", "rank": 1, "element": 5}
KEPT = {"kind": "unwritten", "rank": 1, "byte": 9}


def detail(place="inside", region="slot for rank 0", got=SENT, wanted=SENT, **changes):
    counts = {"element": 3, "runs": [[3, 5]], "wrong": 2, "of": 8, "bytes": place != "inside"}
    return {"place": place, "region": region, **counts, "got": got, "wanted": wanted, **changes}


def case(group, requirement, differs=None, verdict=Verdict.FAIL, **changes):
    fields = {"n": 1, "mask": "even", "targets": [[1], []], **changes.pop("fields", {})}
    plain = {"type": "Copy", "fields": fields}
    values = {
        "message": "heap differs",
        "differs": differs,
        "repeat": "again",
        "kernels": (),
        "launches": {},
        **changes,
    }
    if verdict is Verdict.PASS:
        values |= {"message": "", "differs": None}
    return Case(
        case_id(requirement, group, plain), requirement, group, "t.py::t", plain, 0, "generate", verdict, **values
    )  # fmt: skip


def evidence_of(tmp_path, failing, requirements=(STORE, METHOD, ADD), passing=(), fences=(), waits=()):
    """Read a file in which each requirement has a group for each dtype; ``failing`` maps a group to a failing case,
    and each failing group has ``fences`` and ``waits``."""
    groups = [f"{each.id}[ranks=2,dtype={dtype}]" for each in requirements for dtype in DTYPES]
    planned = tuple(PlannedGroup(group, group.partition("[")[0], "t.py::t") for group in groups)
    records = [samples.run(), dataclasses.replace(samples.plan(), groups=planned, requirements=requirements)]
    for group in groups:
        owner = group.partition("[")[0]
        bad = failing.get(group)
        cases = [each for each in passing if each.group == group] + [bad or case(group, owner, verdict=Verdict.PASS)]
        end = Group(group, owner, bad.verdict if bad else Verdict.PASS, len(cases), bad.id if bad else None)
        end = dataclasses.replace(end, fences=fences if bad else (), waits=waits if bad else ())
        records += [*cases, end]
    evidence = read(samples.write(tmp_path / "evidence.jsonl", [*records, samples.end(1)]))
    assert evidence.problems == []
    return evidence


def failing(requirement, dtypes, *arguments, **changes):
    groups = [f"{requirement.id}[ranks=2,dtype={dtype}]" for dtype in dtypes]
    return {group: case(group, requirement.id, *arguments, **changes) for group in groups}


def test_groups_that_fail_alike_are_one_cause_with_its_spread(tmp_path):
    masked = Difference("guard", 1, 70, 0, 9, detail("masked", got={"kind": "zero"}, wanted=KEPT))
    [cause] = causes_of(evidence_of(tmp_path, failing(STORE, DTYPES, masked)))
    assert cause.title == "store wrote lanes that the mask switches off"
    assert cause.spread[:3] == (
        "4 of 4 groups of RMA-STORE-001",
        "IrisDeviceCtx.store only, not DeviceContext.store",
        "all 4 values of dtype",
    )
    assert cause.wrong == (
        "rank 1, slot for rank 0, element 3, which the mask switches off: got zero, expected memory that stays as it"
        " was; 2 bytes that nothing may write have changed"
    )


def test_two_facts_are_two_causes_and_two_operations_too(tmp_path):
    missing = Difference("slot", 1, 3, 9, 5, detail(got=KEPT))
    rank = Difference("slot", 1, 3, 9, 5, detail(got={**SENT, "rank": 0}))
    wrong = failing(STORE, DTYPES[:2], missing) | failing(STORE, DTYPES[2:], rank) | failing(ADD, DTYPES, missing)
    assert [(cause.title, len(cause.groups)) for cause in causes_of(evidence_of(tmp_path, wrong))] == [
        ("atomic_add left elements unwritten", 4),
        ("store delivered another rank's elements", 2),
        ("store left elements unwritten", 2),
    ]


def test_wrong_elements_of_one_requirement_with_one_fact_are_one_cause_whichever_store_wrote_them(tmp_path):
    part, whole = {"kind": "reduction", "without": 1}, {"kind": "reduction"}
    lacking = Difference("out", 1, 3, 9, 5, detail(region="out", got=part, wanted=whole))
    vague = Difference("out", 1, 3, 9, 5, detail(region="out", got={"kind": "unknown"}, wanted={"kind": "unknown"}))
    wrong = failing(STORE, DTYPES[:3], lacking) | failing(STORE, DTYPES[3:], vague)
    evidence = evidence_of(tmp_path, wrong | failing(ADD, DTYPES[:1], lacking))
    for number, group in enumerate(list(wrong)[:2]):
        place = f"/x/kernels/move.py:{number}:5 @ y.py:1"
        store = {"rank": 0, "kernel": "k", "instruction": "global_store", "source": place}
        evidence.groups[group] = [dataclasses.replace(evidence.groups[group][0], stores=(store,))]
    causes = {cause.title: cause for cause in causes_of(evidence)}
    assert set(causes) == {"store left out a member's part", "atomic_add left out a member's part"}
    cause = causes["store left out a member's part"]
    assert len(cause.groups) == 4
    assert cause.symptom.source.startswith("/x/kernels/move.py")
    assert "got the result without member 1's part, expected the whole result" in cause.wrong


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"got": {**SENT, "rank": 0}}, "delivered another rank's elements"),
        ({"got": {**SENT, "element": 6}}, "delivered elements of another place"),
        ({"got": {**SENT, "call": 1}}, "delivered the data of another call"),
        ({"got": {"kind": "zero"}}, "delivered zeros"),
        ({"got": {"kind": "unknown"}}, "gave values that no rank sent"),
        ({"got": {**KEPT, "rank": 0}}, "delivered memory of rank 0 that was never written"),
        ({"wanted": KEPT}, "wrote elements of slot for rank 0 that must stay as they were"),
        ({"region": "source"}, "changed its input"),
        ({"place": "after", "wanted": KEPT}, "wrote past the end of slot for rank 0"),
        ({"place": "before", "wanted": KEPT}, "wrote before the start of slot for rank 0"),
        ({"place": "outside", "region": "", "wanted": KEPT}, "wrote memory that it was not given"),
    ],
)
def test_the_first_wrong_fact_in_words(tmp_path, changes, words):
    differs = Difference("slot", 1, 3, 9, 5, detail(**changes))
    [cause] = causes_of(evidence_of(tmp_path, failing(STORE, DTYPES[:1], differs)))
    assert cause.title == f"store {words}"


def test_the_wrong_element_is_traced_back_to_its_rank_and_place(tmp_path):
    differs = Difference("slot for rank 0", 1, 3, 9, 5, detail(got={"kind": "payload", "rank": 2, "element": 5}))
    [cause] = causes_of(evidence_of(tmp_path, failing(STORE, DTYPES[:1], differs)))
    assert cause.wrong == (
        "rank 1, slot for rank 0, element 3: got rank 2's element 5, expected rank 1's element 5;"
        " 2 of 8 elements are wrong"
    )


def test_an_exception_is_one_cause_wherever_the_same_line_raises_it(tmp_path):
    frames = 'File "/x/iris/host/iris.py", line 7, in f\n    raise\n  File "/usr/lib/python3.11/abc.py", line 1, in g'
    wrong = {}
    for number, (group, bad) in enumerate(failing(STORE, DTYPES, traceback=frames).items()):
        wrong[group] = dataclasses.replace(bad, message=f"rank {number} raised ValueError: 4 is not 5")
    [cause] = causes_of(evidence_of(tmp_path, wrong))
    assert cause.title == "store raised ValueError: 4 is not 5"
    assert cause.symptom.source == "/x/iris/host/iris.py:7"


def test_faults_at_one_line_are_one_cause_across_operations_and_name_the_instruction(tmp_path):
    text = "{0}-byte access outside every known allocation: at 0x{0} by kernel k_{0}, instruction 'global_store v0'"
    wrong = {}
    for number, (group, bad) in enumerate((failing(STORE, DTYPES) | failing(ADD, DTYPES)).items()):
        fault = text.format(number)
        place = f"/copy{number}/device/gluon/context.py:99:{number} @ operations.py:5:1"
        message = f"rank 0 raised MemoryFault: {fault}"
        wrong[group] = dataclasses.replace(bad, message=message, fault=fault, fault_source=place)
    [cause] = causes_of(evidence_of(tmp_path, wrong))
    assert len(cause.groups) == 8
    assert cause.title.endswith("raised MemoryFault: access outside every known allocation")
    assert cause.symptom.instruction == "global_store v0"
    assert cause.symptom.calls == ("operations.py:5:1",)


def test_a_hang_is_a_cause_with_each_stack_once(tmp_path):
    stacks = {"0": "File iris/ccl/wait.py:12", "1": "File iris/ccl/wait.py:12"}
    wrong = failing(STORE, DTYPES[:2], message="the case did not end within 30 s", stacks=stacks)
    evidence = evidence_of(tmp_path, wrong)
    [cause] = causes_of(evidence)
    assert cause.title == "store did not end: its ranks wait"
    assert cause.symptom.source == "iris/ccl/wait.py:12"
    assert "Stack of ranks 0, 1" in render_html(evidence)


def test_a_hang_of_a_kernel_names_the_waiting_statement_and_the_polled_words(tmp_path):
    state = (
        "running wavefront 0 at 's_sleep 1' (amd.py:{0}:5 @ device/signals.py:75:5 @ kernels/move.py:143:5"
        " @ kernels/move.py:201:5), 9 turns used, polling 0x10{0} (inside symmetric heap of rank 0, [0x10, 0x90),"
        " 5 bytes before its end), which holds 0x2, by 'global_load_dword v2, v[0:1], off sc0 sc1',"
        " compared with 0x3 by 'v_cmp_ne_u32_e32 vcc, s4, v2' [0]"
    )
    idle = "no kernel is running on the emulated device"
    wrong = {
        group: dataclasses.replace(bad, stacks={"0": state.format(number), "1": idle})
        for number, (group, bad) in enumerate(failing(STORE, DTYPES, message="the case did not end").items())
    }
    [cause] = causes_of(evidence_of(tmp_path, wrong))
    assert cause.symptom.source == "kernels/move.py:143:5"
    assert "in symmetric heap of rank 0, which holds 0x2 and is compared with 0x3" in cause.symptom.waits[0]
    assert cause.symptom.waits[1] == "rank 1 runs no kernel"


SIGNAL = {
    "rank": 1, "owner": 0, "offset": 68, "value": 2, "kernel": "move", "instruction": "global_atomic_swap v0, v1, off",
    "source": "kernels/signals.py:70:9",
}  # fmt: skip
WAIT = {
    "rank": 0, "memory": "symmetric heap", "owner": 0, "offset": 68, "size": 4, "held": 2, "wanted": 3,
    "instruction": "global_load_dword v0, v1, off", "source": "kernels/signals.py:76:5", "writers": [SIGNAL],
}  # fmt: skip


def test_a_hang_names_who_wrote_the_word_for_which_a_rank_waits(tmp_path):
    """The record of the second execution replaces what the stacks state about the same rank."""
    text = "[state]\nrunning wavefront 0 at 's_sleep 1' (kernels/move.py:112:5), polling 0x8 (inside heap, ...), which"
    stacks = {
        "0": f"{text} holds 0x2, by 'global_load_dword'",
        "1": "[state]\nno kernel is running on the emulated device",
    }
    evidence = evidence_of(tmp_path, failing(STORE, DTYPES, message="did not end", stacks=stacks), waits=(WAIT,))
    [cause] = causes_of(evidence)
    recorded, other = cause.waits
    assert recorded == (
        "rank 0 polls byte 68 of the symmetric heap of rank 0, which holds 0x2 and is compared with 0x3, at"
        " kernels/signals.py:76:5. Last written: rank 1 wrote 0x2 by global_atomic_swap of move at"
        " kernels/signals.py:70:9"
    )
    assert other == "rank 1 runs no kernel"
    assert "Last written: rank 1 wrote 0x2" in render_html(evidence)


def test_a_hang_in_weak_memory_only_names_the_missing_fence(tmp_path):
    stacks = {"0": "[state]\nno kernel is running on the emulated device"}
    evidence = evidence_of(tmp_path, failing(STORE, DTYPES, message="did not end", stacks=stacks), fences=(LACK,))
    [cause] = causes_of(evidence)
    assert cause.title == "store did not end in weak memory: ring_triton lacks buffer_wbl2 sc0 sc1"
    assert cause.waits == ("rank 0 runs no kernel",)


LACK = {
    "kernel": "ring_triton",
    "missing": "buffer_wbl2 sc0 sc1",
    "instruction": "global_atomic_swap v0, v0, s[60:61] sc1",
    "source": "kernels/all_reduce.py:100 (in kernels/all_reduce.py:200)",
    "other": "global_store_dword v0, v1, s[0:1]",
    "other_source": "kernels/all_reduce.py:123",
}


def test_a_missing_fence_is_a_cause_with_its_instruction_and_line(tmp_path):
    differs = Difference("slot", 1, 3, 9, 5, detail(got={"kind": "zero"}))
    evidence = evidence_of(tmp_path, failing(STORE, DTYPES, differs), fences=(LACK,))
    [cause] = causes_of(evidence)
    assert cause.title == "store delivered zeros in weak memory: ring_triton lacks buffer_wbl2 sc0 sc1"
    assert cause.symptom.source == LACK["source"]
    assert cause.symptom.instruction == LACK["instruction"]
    [fence] = cause.fences
    assert fence == (
        "ring_triton lacks buffer_wbl2 sc0 sc1 between 'global_store_dword v0, v1, s[0:1]' at kernels/all_reduce.py:123"
        f" and 'global_atomic_swap v0, v0, s[60:61] sc1' at {LACK['source']}"
    )
    assert "lacks buffer_wbl2 sc0 sc1 between" in render_html(evidence)


def test_groups_that_could_not_be_checked_come_after_failures(tmp_path):
    machine = failing(ADD, DTYPES, verdict=Verdict.UNKNOWN, message="the machine, not the library, failed")
    differs = Difference("slot", 1, 3, 9, 5, detail(got={"kind": "zero"}))
    causes = causes_of(evidence_of(tmp_path, machine | failing(STORE, DTYPES[:1], differs)))
    assert [cause.verdict for cause in causes] == [Verdict.FAIL, Verdict.UNKNOWN]


def test_the_fields_that_separate_failing_from_passing_cases_are_named(tmp_path):
    differs = Difference("slot", 1, 3, 9, 5, detail(got={"kind": "zero"}))
    wrong = failing(STORE, DTYPES, differs)
    own = {"targets": [[0], [1]], "mask": "none"}
    passing = [case(group, STORE.id, verdict=Verdict.PASS, fields=own) for group in wrong]
    [cause] = causes_of(evidence_of(tmp_path, wrong, requirements=(STORE,), passing=passing))
    assert cause.spread[-2:] == ("targets other than self only", "mask even only")


def test_all_but_one_value_is_stated_as_such(tmp_path):
    differs = Difference("slot", 1, 3, 9, 5, detail(got={"kind": "zero"}))
    [cause] = causes_of(evidence_of(tmp_path, failing(STORE, DTYPES[:3], differs)))
    assert "all values of dtype but fp16" in cause.spread


def test_fields_with_their_default_value_are_not_shown(tmp_path):
    differs = Difference("slot", 1, 3, 9, 5, detail(got={"kind": "zero"}))
    evidence = evidence_of(tmp_path, failing(STORE, DTYPES[:1], differs, defaults=("n", "targets")))
    page = render_html(evidence)
    assert "mask = even" in page
    assert "targets =" not in page
    assert "store delivered zeros" in render_junit(evidence)


def test_parameters_may_hold_commas():
    assert parameters_of("A-B-001[ranks=2,shape=(1, 2),op=x]") == {"ranks": "2", "shape": "(1, 2)", "op": "x"}


def test_the_picture_marks_wrong_elements():
    head, signs = picture_of(Difference("slot", 1, 3, 9, 5, detail())).splitlines()
    assert head == "rank 1, slot for rank 0, elements 0 to 7; each sign is one element"
    assert signs == "···××···"


BETWEEN = (
    "move_triton (gfx942): missing s_waitcnt vmcnt(0) between the store 'global_store_dword v1, v2, s[0:1]' at"
    " kernels/move.py:117 (in kernels/move.py:200) and the flag 'global_atomic_swap v0, v4, off sc1' at"
    " device/amd.py:88 (in kernels/move.py:200)"
)
NARROW = (
    "accumulate (gfx942): the flag 'global_atomic_swap v6, v14, off' at kernels/all_reduce.py:60 (in"
    " kernels/all_reduce.py:218) is not written at scope sys: missing sc1"
)


@pytest.mark.parametrize(
    ("broken", "title", "source", "instruction"),
    [
        (BETWEEN, "put: move_triton lacks s_waitcnt vmcnt(0)", "device/amd.py:88 (in kernels/move.py:200)",
         "global_atomic_swap v0, v4, off sc1"),
        (NARROW, "put: accumulate lacks sc1", "kernels/all_reduce.py:60 (in kernels/all_reduce.py:218)",
         "global_atomic_swap v6, v14, off"),
        ("put (gfx942): 2 spills, 0 are allowed", "put: put (gfx942): 2 spills, 0 are allowed", "", ""),
    ],
    ids=["a wait", "a scope", "something else"],
)  # fmt: skip
def test_code_that_breaks_a_contract_names_the_missing_instruction_and_the_line(
    tmp_path, broken, title, source, instruction
):
    differs = Difference("code of put", 0, None, broken, "the contract of put")
    [cause] = causes_of(evidence_of(tmp_path, failing(STORE, DTYPES, differs)))
    assert (cause.title, cause.symptom.source, cause.symptom.instruction) == (title, source, instruction)


def test_code_without_a_fence_and_a_case_that_failed_for_it_are_one_cause(tmp_path):
    lack = {**LACK, "missing": "s_waitcnt vmcnt(0)", "source": "device/amd.py:88 (in kernels/move.py:200)"}
    code = symptom_of(case("g", STORE.id, Difference("code of put", 0, None, BETWEEN, "x")), STORE)
    weak = symptom_of(case("g", STORE.id, Difference("slot", 1, 3, 9, 5, detail())), STORE, fences=(lack,))
    assert code.key == weak.key
