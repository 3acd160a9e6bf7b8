"""Clocks advance at their rates, and can be replayed."""

import time

import pytest
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from harness import emulator
from tests.emulator.covering import covers
from tests.emulator.single import execute


@covers("s_memtime s_memrealtime")
@pytest.mark.parametrize(("name", "hertz"), [("s_memtime", 2.1e9), ("s_memrealtime", 1e8)])
def test_a_clock_runs_at_its_rate(name, hertz):
    start = time.monotonic()
    result = execute(f"{name} s[4:5]", f"{name} s[6:7]", native=False)
    elapsed = time.monotonic() - start
    first, second = result.s64(4)[0], result.s64(6)[0]
    assert 0 <= second - first <= elapsed * hertz + 1
    later = execute(f"{name} s[4:5]", native=False).s64(4)[0]
    assert second <= later
    assert abs(first / hertz - start) < elapsed + 1


@gluon.jit
def stamps(out):
    for i in range(4):
        now = gl.inline_asm_elementwise(
            "s_memrealtime $0\ns_waitcnt lgkmcnt(0)", "=s", [], dtype=gl.int64, is_pure=False, pack=1
        )
        gl.store(out + i, now)


@pytest.mark.parametrize("mode", ["fast", "weak"])
def test_a_replayed_run_reads_the_same_times(mode):
    runs = []
    for _ in range(2):
        emulator.activate(mode=mode, choices=3 if mode == "weak" else None)
        out = torch.zeros(4, dtype=torch.int64)
        stamps[(1,)](out, num_warps=1)
        emulator.deactivate()
        assert out.tolist() == sorted(out.tolist())
        runs.append(out.tolist())
    assert (runs[0] == runs[1]) == (mode == "weak")
    assert len(set(runs[0])) > 1


def test_a_clock_that_can_be_repeated_goes_on_from_launch_to_launch():
    emulator.activate(mode="weak", choices=3)
    out = torch.zeros(2, 4, dtype=torch.int64)
    for row in out:
        stamps[(1,)](row, num_warps=1)
    emulator.deactivate()
    assert out.flatten().tolist() == sorted(out.flatten().tolist())
