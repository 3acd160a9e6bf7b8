"""Stretches of native code in the modes that run wavefronts one at a time: the same events, counters and memory."""

import re
import sys

import numpy as np
import pytest

from harness.emulator.driver import single
from harness.emulator.driver.schedule import Scheduler
from harness.emulator.execution.allocations import Allocations
from harness.emulator.execution.launch import Launch
from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.listing.parser import parse
from harness.emulator.watch import Seeded
from harness.emulator.watch.race import Race
from harness.emulator.watch.weak import Weak
from tests.emulator.watch.litmus import _LISTING

# Each wavefront loads a word for each lane, computes, and stores it in lanes whose value is even.
CODE = """
	s_load_dwordx2 s[4:5], s[0:1], 0x0
	v_lshlrev_b32_e32 v0, 2, v0
	v_lshl_add_u32 v0, s2, 9, v0
	s_waitcnt lgkmcnt(0)
	global_load_dword v1, v0, s[4:5]
	s_movk_i32 s6, 0x123
	s_lshl_b32 s7, s6, 2
	s_waitcnt vmcnt(0)
	v_mul_lo_u32 v2, v1, s7
	v_add_u32_e32 v2, v2, v1
	v_xor_b32_e32 v3, 0x55, v2
	v_and_b32_e32 v4, 1, v3
	v_cmp_eq_u32_e32 vcc, 0, v4
	s_and_saveexec_b64 s[8:9], vcc
	v_add_u32_e32 v3, 7, v3
	v_lshrrev_b32_e32 v3, 1, v3
	global_store_dword v0, v3, s[4:5]
	s_endpgm
"""
WAVES, GROUPS = 2, 3


def execute(mode, native, change=lambda program: None, code=CODE, choices=None):
    """Return memory, counters, and what the mode recorded."""
    memory = np.arange(64 * WAVES * GROUPS, dtype=np.uint32) * 3
    allocations = Allocations()
    allocations.register(memory.ctypes.data, memory.nbytes, "words")
    choices = choices or Seeded(5)
    watch = Weak(choices) if mode == "weak" else Race(choices)
    program = single.decode(parse(_LISTING.format(name="kernel", code=code)), watch)
    if native:
        program.heat.use()
    change(program)
    kernarg = np.array([memory.ctypes.data], np.uint64).view(np.uint8)
    launch = Launch(program, (GROUPS, 1, 1), WAVES, 0, kernarg, allocations)
    Scheduler([[launch]], watch).run()
    events = [re.sub("0x[0-9a-f]+", "address", line) for line in watch.story(1000)] if mode == "weak" else []
    return memory.tolist(), launch.waves, launch.lanes, watch.choices.decisions, events


def stretches(program):
    return [step for segment in program.segments for step in segment.steps if isinstance(step, single.Stretch)]


@pytest.mark.parametrize("mode", ["weak", "race"])
def test_native_stretches_do_what_the_interpreter_does(mode):
    made = []
    native = execute(mode, True, lambda program: made.extend(stretches(program)))
    assert native == execute(mode, False)
    assert len(made) == 4


@pytest.mark.parametrize("mode", ["weak", "race"])
def test_the_interpreter_executes_what_native_code_leaves_to_it(mode, monkeypatch):
    wanted = execute(mode, True)
    calls = []
    plain = single._execute

    def one_at_a_time(wave, code, count):
        calls.append(count)
        return plain(wave, code, min(count, len(calls) % 2))

    monkeypatch.setattr(single, "_execute", one_at_a_time)
    assert execute(mode, True) == wanted
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
    watch = Race(Seeded(0))
    program = single.decode(parse(_LISTING.format(name="kernel", code=CODE)), watch)
    monkeypatch.setattr(single, "COMPILING_FORM", 0.0)
    launch = type("Ran", (), {"waves": [1] * len(program.segments)})
    needed = round(single.LOADING_STEP / single.INTERPRETING_STEP)
    for _ in range(needed - 1):
        program.heat.ran(launch)
    assert not used
    program.heat.ran(launch)
    program.heat.ran(launch)
    assert used


def test_more_work_groups_than_python_calls_may_be_nested():
    """All of them start before the first one runs."""
    watch = Race(Seeded(0))
    program = single.decode(parse(_LISTING.format(name="kernel", code="\ts_endpgm\n")), watch)
    launch = Launch(program, (sys.getrecursionlimit() + 100, 1, 1), 1, 0, np.zeros(8, np.uint8), Allocations())
    Scheduler([[launch]], watch).run()
    assert launch.waves == [launch.groups]
