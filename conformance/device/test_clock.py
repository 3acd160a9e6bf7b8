"""read_realtime(): a clock of the device that runs at its rate and never backwards, for Triton and Gluon kernels.

Two launches read it; between them the host waits. The host's own clock, read around the launches, says how much time
must and can lie between the two readings: a kernel's reading lies between the host's reading before its launch and the
one after its end.
"""

import importlib
import time

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.runtime import driver

from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase

NANOSECONDS = {"hip": 10, "cuda": 1}
"""Of one tick: AMD's constant clock has 100 MHz; %globaltimer counts nanoseconds."""

STEP = 2_000
"""Nanoseconds by which a clock may stand still, and then jump: %globaltimer moves every microsecond on some GPUs."""

READINGS, PAUSE = 8, 0.02

POLLS = 10_000
"""How often a kernel reads the clock until it must have moved: on a GPU more than 20 us, ten steps."""


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


def run(env, case):
    (language,) = case.arguments
    found = Findings(env.rank)
    read_realtime = importlib.import_module(f"{env.under_test.name}.device.utils").read_realtime
    tick = NANOSECONDS[driver.active.get_current_target().backend]
    readings, before, after = [], [], []
    for _ in range(3):
        # The first launch compiles, and is none of the two.
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
        found.equal(f"times of program {program}, each later than the one before", times, sorted(set(times)))
    least, most = before[2] - after[1] - STEP, after[2] - before[1] + STEP
    for what, passed in (
        ("shortest", int(second.min() - first.max())),
        ("longest", int(second.max() - first.min())),
    ):
        found.true(f"{what} time between launches {passed} ns, by the host {least} to {most}", least <= passed <= most)
    return found.first


def cases(ranks):
    return [HostCase("clock", (language,)) for language in CLOCKS]


@requirement("DEVICE-CLOCK-001", cases=cases)
def test_clock(check, case):
    check(run, case)
