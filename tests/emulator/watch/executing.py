"""A small kernel that runs in a watched mode, interpreted or with native code."""

import re

import numpy as np

from harness.emulator.driver import single
from harness.emulator.driver.interleaved import scheduler_of
from harness.emulator.execution.allocations import Allocations
from harness.emulator.execution.launch import Launch
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


def execute(mode, native, change=lambda program: None, choices=None):
    """Run the code in a mode; return memory, counters, the number of choices, and the events of ``weak``.

    ``choices`` None: those of a seed for ``weak``, none for ``race``.
    """
    memory = np.arange(64 * WAVES * GROUPS, dtype=np.uint32) * 3
    allocations = Allocations()
    allocations.register(memory.ctypes.data, memory.nbytes, "words")
    watch = Weak(choices or Seeded(5)) if mode == "weak" else Race(choices)
    program = single.decode(parse(_LISTING.format(name="kernel", code=CODE)), watch)
    if native:
        program.heat.use()
    change(program)
    kernarg = np.array([memory.ctypes.data], np.uint64).view(np.uint8)
    launch = Launch(program, (GROUPS, 1, 1), WAVES, 0, kernarg, allocations)
    scheduler_of([[launch]], watch, closed=False, limit=None).run()
    events = [re.sub("0x[0-9a-f]+", "address", line) for line in watch.story(1000)] if mode == "weak" else []
    decisions = 0 if watch.choices is None else watch.choices.decisions
    return memory.tolist(), launch.waves, launch.lanes, decisions, events
