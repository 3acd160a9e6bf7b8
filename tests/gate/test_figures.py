"""Figures of base and head: what is listed, what is red, and the file of thresholds."""

from dataclasses import replace

import pytest

from command_line.gate import figures
from command_line.gate.figures import BETTER, NOTE, RED, compiled_rows, executed_rows, occupancy, thresholds_in
from harness.errors import UsageError
from harness.evidence import Case, Kernel, read
from tests.evidence import samples

LIMITS = thresholds_in(figures.DEFAULT)
KERNEL = {
    "kernel": "ring_gluon", "sha256": "a", "instructions": 100, "registers": 64, "sgprs": 30, "spills": 0, "waits": 9,
    "fences": {"write-back sc0 sc1": 2}, "accesses": {"remote store 16": 2},
}  # fmt: skip


def rows(**changes):
    differing = compiled_rows({"c": [KERNEL]}, {"c": [{**KERNEL, **changes}]}, "gfx942", LIMITS["compiled"])
    return [(row.figure, row.before, row.after, row.change) for row in differing]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"instructions": 120}, [("instructions", "100", "120", NOTE)]),
        ({"instructions": 80}, [("instructions", "100", "80", BETTER)]),
        ({"spills": 4}, [("spills", "0", "4", RED)]),
        ({"fences": {"write-back sc0 sc1": 1}}, [("fences: write-back sc0 sc1", "2", "1", BETTER)]),
        (
            {"accesses": {"remote store 2": 16}},
            [("accesses: remote store 16", "2", "0", BETTER), ("accesses: remote store 2", "0", "16", NOTE)],
        ),
        ({"registers": 72}, [("registers", "64", "72", NOTE), ("occupancy", "8", "7", RED)]),
        ({"registers": 128}, [("registers", "64", "128", NOTE), ("occupancy", "8", "4", RED)]),
        ({"registers": 60}, [("registers", "64", "60", BETTER)]),
        ({"sha256": "b"}, [("code", "a", "b", NOTE)]),
        ({"kernel": "other"}, [("kernel", "launched", "-", NOTE), ("kernel", "-", "launched", NOTE)]),
    ],
)  # fmt: skip
def test_what_changed_in_compiled_kernels(changes, expected):
    assert rows(**changes) == expected


@pytest.mark.parametrize(
    ("registers", "waves"), [(1, 8), (64, 8), (65, 7), (72, 7), (128, 4), (129, 3), (256, 2), (512, 1)]
)
def test_occupancy_of_a_simd(registers, waves):
    assert occupancy({"registers": registers, "sgprs": 1}) == waves


def test_occupancy_of_ptx_is_not_known():
    assert occupancy({"registers": 64}) is None


def executed(tmp_path, instructions=None, accesses=None, code="b" * 64, polled=None):
    """The rows of the green run and of one that differs in its case 1."""
    before = samples.green()
    after = []
    for record in samples.green():
        if isinstance(record, Kernel) and code:
            record = replace(record, fingerprint={**record.fingerprint, "sha256": code})
        if isinstance(record, Case) and record.id == before[3].id:
            telemetry = {**record.telemetry, "instructions": instructions or record.telemetry["instructions"]}
            telemetry |= {"polled": polled} if polled else {}
            launches = record.launches if accesses is None else {samples.KERNEL: {"launches": 4, "accesses": accesses}}
            record = replace(record, telemetry=telemetry, launches=launches)
        after.append(record)
    runs = [read(samples.write(tmp_path / name, records)) for name, records in (("a", before), ("b", after))]
    return [(row.figure, row.before, row.after, row.change) for row in executed_rows(*runs, LIMITS["executed"])]


def test_executed_instructions_that_grow_are_red(tmp_path):
    assert executed(tmp_path, {"valu": 200}) == [("instructions", "240", "320", RED)]


def test_what_loops_execute_that_wait_for_other_ranks_is_left_out(tmp_path):
    assert executed(tmp_path, {"valu": 320, "wait": 500}, polled={"valu": 200, "wait": 500}) == []
    polls = {**samples.STORE, "kind": "load", "width": 4, "executions": 900, "polled": True}
    assert executed(tmp_path, accesses=[samples.STORE, polls]) == []
    counted = executed(tmp_path, accesses=[samples.STORE, {**polls, "polled": False}])
    assert ("remote accesses: load 4", "0", "900", RED) in counted


def test_executed_figures_of_the_same_code_are_not_compared(tmp_path):
    assert executed(tmp_path, {"valu": 200}, code="") == []


def test_waits_per_element(tmp_path):
    got = executed(tmp_path, {"valu": 120, "wait": 2})
    assert ("waits per element", "0", "0.002", RED) in got


def test_remote_bytes_by_width(tmp_path):
    narrow = {**samples.STORE, "width": 2, "executions": 64}
    got = executed(tmp_path, accesses=[narrow])
    assert ("remote bytes: store 2", "0", "8,000", RED) in got
    assert ("remote accesses: store 2", "0", "64", RED) in got
    assert ("remote bytes: store 16", "16,000", "8,000", BETTER) in got


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[compiled", "it is not TOML"),
        ("[other]", "'other' was unexpected"),
        ("[compiled]\nspills = { red = 1 }", "compiled.spills: 'note' is a required property"),
        ('[compiled]\nspills = { note = "much" }', "compiled.spills.note"),
        ("[compiled]\nspills = { note = 0 }", "compiled.spills.note"),
        ("[compiled]\nspills = 3", "compiled.spills: 3 is not of type 'object'"),
    ],
)
def test_wrong_thresholds_are_refused_with_their_place(tmp_path, text, problem):
    (tmp_path / "t.toml").write_text(text)
    with pytest.raises(UsageError) as raised:
        thresholds_in(tmp_path / "t.toml")
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


def test_thresholds_of_ones_own(tmp_path):
    (tmp_path / "t.toml").write_text('[compiled]\ninstructions = { note = "5%", red = "10%" }\n')
    limits = thresholds_in(tmp_path / "t.toml")["compiled"]

    def change(instructions):
        differing = compiled_rows({"c": [KERNEL]}, {"c": [{**KERNEL, "instructions": instructions}]}, "gfx942", limits)
        return [row.change for row in differing]

    assert [change(number) for number in (104, 105, 109, 110, 96, 95)] == [[], [NOTE], [NOTE], [RED], [], [BETTER]]
