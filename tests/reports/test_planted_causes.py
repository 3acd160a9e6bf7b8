"""One planted bug is one card with the right words, and two bugs are two: real runs on two emulated ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.evidence import Evidence, read
from mutants.listed import DEFECTS
from mutants.planting import Defect, plant
from reports import causes_of
from tests.planted import run_suite, without_promises

BY_NAME = {defect.name: defect for defect in DEFECTS}
OUTSIDE = "access outside every known allocation"


def evidence_of(folder: Path, defects: list[Defect], *arguments: str, promises: bool = True) -> Evidence:
    plant(*defects[:1], folder, *defects[1:])
    if not promises:
        without_promises(folder)
    done = run_suite(folder, *arguments, "--ranks", "2", "--level", "ci", timeout=500)
    assert done.returncode == 1, done.stdout + done.stderr
    return read(folder / "evidence.jsonl")


@pytest.mark.nightly
def test_two_bugs_are_two_causes_with_their_source_lines(tmp_path: Path) -> None:
    bugs = [BY_NAME["store: mask ignored"], BY_NAME["triton get: of oneself"]]
    tests = ("conformance/rma/test_store.py", "conformance/rma/test_get.py")
    evidence = evidence_of(tmp_path, bugs, *tests, "-k", "int8 or fp16")
    causes = {cause.title: cause for cause in causes_of(evidence)}
    assert set(causes) == {"store wrote lanes that the mask switches off", "get delivered another rank's elements"}
    store = causes["store wrote lanes that the mask switches off"]
    assert "IrisDeviceCtx.store only, not DeviceContext.store and store" in store.spread
    assert "all 2 values of dtype" in store.spread
    assert "device/gluon/context.py" in store.symptom.source and "global_store" in store.symptom.instruction
    get = causes["get delivered another rank's elements"]
    assert "DeviceContext.get only, not IrisDeviceCtx.get and get" in get.spread
    assert "expected rank" in get.wrong and "got rank" in get.wrong


COLLECTIVES = "collectives/test_operations.py"
NIGHTLY = [
    ("put: ranks swapped", "rma/test_put.py", "test_put and (int32 or fp16)", f"put raised MemoryFault: {OUTSIDE}"),
    (
        "triton copy: target of the source's rank",
        "rma/test_copy.py",
        "function",
        "copy wrote memory that it was not given",
    ),
    ("atomic_sub: not negated", "atomics/test_sub.py", "int32", "atomic_sub gave wrong values"),
    ("collectives: last row ignored", COLLECTIVES, "all_gather", "all_gather left elements unwritten"),
    ("collectives: no rank waits at the end", COLLECTIVES, "all_gather", "all_gather left elements unwritten"),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("bug", "file", "chosen", "title"), NIGHTLY, ids=[row[0] for row in NIGHTLY])
def test_one_bug_is_one_cause(bug: str, file: str, chosen: str, title: str, tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, [BY_NAME[bug]], f"conformance/{file}", "-k", chosen)
    assert [cause.title for cause in causes_of(evidence)] == [title]


@pytest.mark.nightly
def test_a_bug_of_the_host_side_is_one_cause_with_its_line(tmp_path: Path) -> None:
    bug = Defect("raises", "ccl/call.py", "    rows = exchange(", '    raise KeyError("rows")\n    rows = exchange(')
    chosen = ("conformance/collectives/test_operations.py", "-k", "all_gather or test_reduce")
    [cause] = causes_of(evidence_of(tmp_path, [bug], *chosen))
    assert "raised KeyError: 'rows'" in cause.title
    assert "ccl/call.py" in cause.symptom.source
    assert cause.case.traceback


@pytest.mark.nightly
def test_a_missing_write_back_is_named_with_its_line(tmp_path: Path) -> None:
    bug = Defect("no write-back", "device/targets/amd.py", '"buffer_wbl2 sc0 sc1\\ns_waitcnt', '"s_waitcnt',
                 "def publish(")  # fmt: skip
    chosen = ("conformance/collectives/test_all_reduce.py", "-k", "accumulating and ring")
    evidence = evidence_of(tmp_path, [bug], *chosen, promises=False)
    causes = causes_of(evidence)
    assert causes
    for cause in causes:
        assert "in weak memory: ring_" in cause.title and "lacks buffer_wbl2 sc0 sc1" in cause.title
        assert "kernels/all_reduce.py" in cause.symptom.source
        assert "global_atomic_swap" in cause.symptom.instruction


@pytest.mark.nightly
def test_a_hang_is_one_cause(tmp_path: Path) -> None:
    bug = Defect("waits for a turn that no rank takes", "kernels/move.py", "group.wait(pid, turn + 1)",
                 "group.wait(pid, turn + 9)", "def move(")  # fmt: skip
    chosen = ("conformance/collectives/test_operations.py", "-k", "all_gather", "--deadline", "5")
    [cause] = causes_of(evidence_of(tmp_path, [bug], *chosen))
    assert "all_gather did not end: its ranks wait" in cause.title


CONTRACTS = [
    (
        Defect("no wait before a signal", "device/targets/amd.py", "\\ns_waitcnt vmcnt(0) lgkmcnt(0)\\nv_mov",
               "\\nv_mov", "def publish("),
        "lacks s_waitcnt vmcnt(0)", "global_atomic_swap",
    ),
    (
        Defect("a lock is released at gpu scope", "device/locks.py", "    poke(lock, 0)",
               '    tl.atomic_xchg(lock, 0, sem="relaxed", scope="gpu")', "def release("),
        "accumulate_gluon lacks sc1", "global_atomic_swap",
    ),
]  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize(("bug", "words", "instruction"), CONTRACTS, ids=[row[0].name for row in CONTRACTS])
def test_code_without_an_instruction_names_it_and_the_line(
    bug: Defect, words: str, instruction: str, tmp_path: Path
) -> None:
    [cause] = causes_of(evidence_of(tmp_path, [bug], "conformance/isa/test_contract.py"))
    assert words in cause.title
    assert instruction in cause.symptom.instruction and "kernels/" in cause.symptom.source


SIGNALS, AMD = "device/signals.py", "device/targets/amd.py"
CALL, WORDS = (
    "    intrinsics().signal_turn(pads, member, SIZE, program, turn)",
    "        words += ((tl.load(pads + peer) + own)",
)
OWN_TWICE = "        peer = tl.where((first == 1) & (peer == 0), 1, peer)\n"
FORGETS = Defect("a member signals nothing", SIGNALS, CALL, f"    if member != 1:\n    {CALL}", "def signal(")
WRONG_VALUE = Defect(
    "a member signals the turn before", SIGNALS, "program, turn)", "program, turn - (member == 1).to(tl.int32))",
    "    intrinsics().signal_turn(",
)  # fmt: skip
WRONG_PEER = Defect("a member signals itself twice", AMD, WORDS, OWN_TWICE + WORDS, "def signal_turn(")
HANGS = [
    (FORGETS, "No rank wrote it in this case. Within 64 bytes of it: rank ", "of any rank, was written by rank 2"),
    (WRONG_VALUE, "which holds 0x0 and is compared with 0x1", ". Last written: rank 2 wrote 0x0 by global_atomic_swap"),
    (WRONG_PEER, "No rank wrote it in this case. At the same place of another rank's memory: rank 2 wrote 0x",
     "of the symmetric heap of rank 2"),
]  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize(("bug", "first", "second"), HANGS, ids=[row[0].name for row in HANGS])
def test_a_hang_names_who_was_to_write_the_word(bug: Defect, first: str, second: str, tmp_path: Path) -> None:
    """Of three ranks, 1 and 2 are the members of the group that the first case draws."""
    chosen = ("conformance/collectives/test_operations.py", "-k", "all_gather", "--ranks", "3", "--level", "ci")
    plant(bug, tmp_path)
    assert run_suite(tmp_path, *chosen, "--deadline", "4", "-x", timeout=500).returncode == 1
    [cause] = causes_of(read(tmp_path / "evidence.jsonl"))
    [waits] = [wait for wait in cause.waits if wait.startswith("rank 1 polls byte ")]
    assert first in waits and second in waits and "kernels/move.py:112" in waits
