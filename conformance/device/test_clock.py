"""read_realtime(): the device's clock, for Triton and Gluon kernels. It runs at its nominal rate and never backwards.

Two launches read the clock, and the host sleeps between them. A kernel's reading is taken between the host's readings
before the launch and after its end, so that the host's clock gives a lower and an upper bound for the time between the
kernels' readings.
"""

import time

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.runtime import driver

from conformance.support.cases import HostCase
from fixtures.findings import Findings
from fixtures.requirement import requirement

NANOSECONDS = {"hip": 10, "cuda": 1}
"""Nanoseconds per tick: AMD's constant clock has 100 MHz; NVIDIA's %globaltimer counts nanoseconds."""

STEP = 2_000
"""Tolerance in nanoseconds: a clock may advance in steps. On some GPUs %globaltimer changes every microsecond."""

READINGS, PAUSE = 8, 0.02

POLLS = 10_000
"""Number of polls after which the clock must have changed: on a GPU they take more than 20 us, ten steps."""


@triton.jit
def triton_clock(read_realtime: tl.constexpr, out, READINGS: tl.constexpr, POLLS: tl.constexpr):
    now = read_realtime()
    for i in range(READINGS):
        last, polls = now, 0
        while (now == last) & (polls < POLLS):
            now = read_realtime()
            polls += 1
        tl.store(out + tl.program_id(0) * READINGS + i, now)


@gluon.jit
def gluon_clock(read_realtime: gl.constexpr, out, READINGS: gl.constexpr, POLLS: gl.constexpr):
    now = read_realtime()
    for i in range(READINGS):
        last, polls = now, 0
        while (now == last) & (polls < POLLS):
            now = read_realtime()
            polls += 1
        gl.store(out + gl.program_id(0) * READINGS + i, now)


CLOCKS = {"triton": triton_clock, "gluon": gluon_clock}


def backend(env):
    """Return Triton's name of the device's kind."""
    return driver.active.get_current_target().backend


def run(env, case):
    (language,) = case.arguments
    findings = Findings(env.rank)
    read_realtime = env.module(".device.utils").read_realtime
    tick = NANOSECONDS[env.in_library(backend)]
    readings, before, after = [], [], []
    for _ in range(3):
        # The first of the three launches compiles the kernel and is not used.
        out = torch.zeros(4, READINGS, dtype=torch.int64, device=env.device.torch_device)
        time.sleep(PAUSE)
        before.append(time.monotonic_ns())
        CLOCKS[language][(4,)](read_realtime, out, READINGS, POLLS, num_warps=1)
        env.device.synchronize()
        after.append(time.monotonic_ns())
        readings.append(out.cpu() * tick)
    _, first, second = readings
    for program in range(4):
        times = [*first[program].tolist(), *second[program].tolist()]
        findings.equal(f"strictly increasing times of program {program}", times, sorted(set(times)))
    lower, upper = before[2] - after[1] - STEP, after[2] - before[1] + STEP
    for label, passed in (
        ("shortest", int(second.min() - first.max())),
        ("longest", int(second.max() - first.min())),
    ):
        findings.true(
            f"{label} time between launches {passed} ns, by the host's clock {lower} to {upper}",
            lower <= passed <= upper,
        )
    return findings.first


def cases(ranks):
    return [HostCase("clock", (language,)) for language in CLOCKS]


@requirement("DEVICE-CLOCK-001", cases=cases, weak=False)
def test_clock(check, case):
    check(run, case)
