"""Waits in a debug build end: on the emulated device with an assertion that names what has not happened, on NVIDIA GPUs
by the same assertion behind a loop that counts. Without a switch no wait counts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget

from iris_under_test.device import targets
from iris_under_test.device.fences import await_count
from iris_under_test.device.flagged import await_words
from iris_under_test.device.locks import acquire
from iris_under_test.device.signals import wait
from iris_under_test.device.targets import amd, nvidia

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SEPARATOR = "#" * 9
LIMIT = 1_000_000_007
"""Of a compilation: a number that no other instruction has."""


@triton.jit
def count_kernel(words):
    await_count(words, 1, "a count")


@triton.jit
def turn_kernel(words):
    # One member: the address of its row, then the row, whose only word stays 0.
    wait(words.to(tl.pointer_type(tl.int64), bitcast=True), 1, 0, 1)


@triton.jit
def lock_kernel(words):
    tl.store(words, 1)
    acquire(words)


@triton.jit
def words_kernel(words):
    place = words.to(tl.int64) + 8 * tl.arange(0, 64)
    (actual,) = await_words((place,), tl.cast(7, tl.int32))
    tl.store(words + tl.arange(0, 64), actual)


WAITS = {
    "count": (count_kernel, "a count"),
    "turn": (turn_kernel, "a member of the group has not arrived"),
    "lock": (lock_kernel, "a lock has not been released"),
    "words": (words_kernel, "a member's words have not arrived"),
}

RUN = """
import torch
from harness import emulator
from tests.iris.test_bounded_waits import WAITS

emulator.activate()
for name, (kernel, _) in WAITS.items():
    try:
        kernel[(1,)](torch.zeros(1024, dtype=torch.int32), num_warps=1)
        print(name, "no fault")
    except Exception as error:
        print(name, type(error).__name__, str(error).splitlines())
"""

COMPILE = """
import torch
from tests.iris.test_bounded_waits import WAITS
from harness.isa.compile_only import target

with target("cuda", 90):
    for kernel, _ in WAITS.values():
        print("#" * 9, kernel.warmup(torch.int32, grid=(1,), num_warps=1).asm["ptx"])
"""


def printed(code: str, **environment: str) -> str:
    """Return the output of ``code`` in its own process: the switches are read at import."""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True, text=True, timeout=240, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("switch", ["IRIS_DEBUG", pytest.param("TRITON_DEBUG", marks=pytest.mark.nightly)])
def test_a_missing_signal_stops_the_kernel(switch):
    lines = printed(RUN, IRIS_POLL_LIMIT="20", **{switch: "1"}).splitlines()
    assert len(lines) == len(WAITS), lines
    for line, (name, (_, case)) in zip(lines, WAITS.items(), strict=True):
        assert line.startswith(f"{name} DeviceAssert") and f"timed out waiting: {case}" in line, line


@pytest.mark.nightly
def test_ptx_counts_polls_in_a_debug_build_only():
    debug = printed(COMPILE, IRIS_POLL_LIMIT=str(LIMIT), IRIS_DEBUG="1").split(SEPARATOR)[1:]
    assert len(debug) == len(WAITS)
    for name, code in zip(WAITS, debug, strict=True):
        assert str(LIMIT) in code or str(LIMIT - 1) in code, (name, code)
        assert "__assertfail" in code and "trap;" in code, (name, code)
    plain = printed(COMPILE, IRIS_POLL_LIMIT=str(LIMIT))
    assert not any(words in plain for words in (str(LIMIT), str(LIMIT - 1), "__assertfail")), plain


def test_vendors_have_the_same_functions():
    assert amd.__all__ == nvidia.__all__
    for name in amd.__all__:
        assert getattr(amd, name).arg_names == getattr(nvidia, name).arg_names, name


def test_a_backend_without_a_file_is_an_error(monkeypatch):
    monkeypatch.setattr(targets, "current_target", lambda: GPUTarget("xpu", "pvc", 32))
    with pytest.raises(NotImplementedError, match=r"no device code for the backend 'xpu': expected one of"):
        targets.intrinsics()


@pytest.mark.parametrize("vendor", [amd, nvidia])
def test_the_key_of_the_caches_follows_the_functions_of_every_vendor(vendor, monkeypatch):
    def key():
        for between in (await_count, targets.intrinsics):
            monkeypatch.setattr(between, "hash", None)  # computed anew
        return triton.jit(count_kernel.fn).cache_key

    before = key()
    assert key() == before
    monkeypatch.setattr(vendor.await_turn, "hash", "edited")
    assert key() != before
