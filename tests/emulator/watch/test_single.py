"""Stretches of native code in mode ``race`` without choices: the same counters and memory."""

import math
import sys

import numpy as np
import pytest

from harness.emulator.driver import single
from harness.emulator.driver.schedule import Scheduler
from harness.emulator.execution.allocations import Allocations
from harness.emulator.execution.launch import Launch
from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.listing.parser import parse
from harness.emulator.watch.race import Race
from tests.emulator.watch.executing import CODE, execute
from tests.emulator.watch.litmus import _LISTING


def stretches(program):
    return [step for segment in program.segments for step in segment.steps if isinstance(step, single.Stretch)]


def test_native_stretches_do_what_the_interpreter_does():
    made = []
    native = execute("race", True, lambda program: made.extend(stretches(program)))
    assert native == execute("race", False)
    assert len(made) == 4


def test_the_interpreter_executes_what_native_code_leaves_to_it(monkeypatch):
    wanted = execute("race", True)
    calls = []
    plain = single._execute

    def one_at_a_time(wave, code, count):
        calls.append(count)
        return plain(wave, code, min(count, len(calls) % 2))

    monkeypatch.setattr(single, "_execute", one_at_a_time)
    assert execute("race", True) == wanted
    assert len(calls) > 4


def forget_an_instruction(program):
    step = stretches(program)[-1]
    step._steps.pop()


def keep_the_old_lanes(program):
    for step in stretches(program):
        step._last = False


@pytest.mark.parametrize("planted", [forget_an_instruction, keep_the_old_lanes])
def test_a_planted_fault_is_seen(planted):
    assert execute("race", True, planted) != execute("race", False)


def test_a_failure_names_its_instruction(monkeypatch):
    def fail(wf):
        raise ValueError("planted")

    def plant(program):
        step = stretches(program)[-1]
        step._steps[1] = fail

    plain = single._execute
    monkeypatch.setattr(single, "_execute", lambda wave, code, count: plain(wave, code, min(count, 1)))
    with pytest.raises(UnimplementedInstruction, match=r"v_lshrrev_b32_e32 v3, 1, v3.*planted"):
        execute("race", True, plant)


def test_a_program_is_interpreted_until_that_took_longer_than_loading(monkeypatch):
    used = []

    def note(self):
        used.append(self)

    monkeypatch.setattr(single.Stretches, "use", note)
    watch = Race()
    program = single.decode(parse(_LISTING.format(name="kernel", code=CODE)), watch)
    monkeypatch.setattr(single, "COMPILING_FORM", 0.0)
    launch = type("Ran", (), {"waves": [1] * len(program.segments)})
    needed = round(single.LOADING_STEP / single.INTERPRETING_STEP)
    for _ in range(needed - 1):
        program.heat.ran(launch, 0.0)
    assert not used
    program.heat.ran(launch, 0.0)
    program.heat.ran(launch, 0.0)
    assert used


LOOP = """
.LBB0_1:
\tglobal_load_dword v2, v1, s[2:3] sc0 sc1
\ts_waitcnt vmcnt(0)
\tv_cmp_gt_i32_e32 vcc, s4, v2
\ts_cbranch_vccnz .LBB0_1
\ts_endpgm
"""


@pytest.mark.parametrize(
    ("code", "waves"),
    [(CODE, math.ceil(single.LOADING_STEP / single.INTERPRETING_STEP)), (LOOP, 1)],
    ids=["straight on", "in a loop"],
)
def test_a_program_is_native_from_a_launch_on_that_would_take_longer_to_interpret(code, waves, monkeypatch):
    used = []

    def use(self):
        used.append(self)
        self.done = True

    monkeypatch.setattr(single.Stretches, "use", use)
    monkeypatch.setattr(single, "COMPILING_FORM", 0.0)
    program = single.decode(parse(_LISTING.format(name="kernel", code=code)), Race())

    def launch(groups):
        return type("Starting", (), {"groups": groups, "waves_per_group": 1})

    program.heat.expect(launch(waves - 1))
    assert not used
    program.heat.expect(launch(waves))
    program.heat.expect(launch(waves))
    assert used == [program.heat]


def test_more_work_groups_than_python_calls_may_be_nested():
    """All of them start before the first one runs."""
    watch = Race()
    program = single.decode(parse(_LISTING.format(name="kernel", code="\ts_endpgm\n")), watch)
    launch = Launch(program, (sys.getrecursionlimit() + 100, 1, 1), 1, 0, np.zeros(8, np.uint8), Allocations())
    Scheduler([[launch]], watch).run()
    assert launch.waves == [launch.groups]
