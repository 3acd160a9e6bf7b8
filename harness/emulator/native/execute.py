"""Execution of translated code: work-groups, their wavefronts, and the code of a wavefront, compiled by numba.

The code of a kernel is int64[n, ``ROW``]: an operation, the address of a function, and its parameters. A function gets
the record of a wavefront and the address of its parameters (``native.record``), and returns 0, or 1 without having
changed anything if the interpreter has to execute the instruction: because it faults, or is one that the function does
not handle. So a fault is always raised, and worded, by the interpreter.

A wavefront runs until it ends, waits at an s_barrier, stops for the interpreter, or has used its turn: a number of
backward jumps, a small one in loops that poll memory. When every wavefront of a work-group has run, the next work-group
does. A work-group starts when none is left that has not used a turn. The order does not depend on time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import njit

from harness.emulator import compilation
from harness.emulator.native import record
from harness.emulator.native.raw import bit_count, call, clear, copy, get8, get64, pointer, put32, put64
from harness.emulator.native.raw import cycles as cycles_now

# Operations. COUNT: a segment begins. STOP: the instruction has no native form. RUN: a call that executes several
# operations, which the rows have as well, and returns their number. SWITCH: only in the code of ``native.interleaved``.
CALL, COUNT, JUMP, BRANCH, END, BARRIER, SLEEP, STOP, RUN, SWITCH = range(10)
ROW = 26
"""Number of int64 of one operation: operation, function, parameters."""
RUN_FUNCTION, RUN_LENGTH = ROW - 2, ROW - 1
"""Of a row: the function of a run, and the number of operations that it executes."""

# Why ``_run`` returned: all work-groups have ended; a wavefront stopped; every wavefront used a turn; time for the
# caller to look at signals and limits; a work-group needs another slot.
FINISHED, STOPPED, ROUND, PAUSE, GROW = range(5)

# Fields of the state of ``_run``: next work-group and their number, used slots and their number, the current slot,
# wavefronts that ended, operations until the next pause.
NEXT, TOTAL, USED, SLOTS, CURSOR, ENDED, BUDGET = range(7)
STATE_FIELDS = 7

# Fields of the control of ``_run``, int64 each. Addresses of int64[slots]: the records and the data share of each slot,
# and the number of the work-group in it, or -1. Then bytes between records, wavefronts of a work-group, the address of
# the code, addresses of the counters int64[segments] and their number, address of the record at entry, bytes to set
# up, see ``record.private_offset``, address of the setup, bytes of a data share, addresses of the state and of int64[n]
# that collects the time of each operation in cycles of the processor's clock, and n, which may be 0.
(
    RECORDS, DATA_SHARES, GROUPS, STRIDE, WAVES_PER_GROUP, CODE, WAVES, LANES, SEGMENTS, TEMPLATE, SIZE, PRIVATE, SETUP,
    SHARE_BYTES, STATE, CYCLES, CYCLES_NUMBER,
) = range(17)  # fmt: skip
CONTROL_FIELDS = 17
SETUP_FIELDS = 6


class Function:
    """A native function of an instruction, ``int64(record, parameters)``; compiled, or loaded, at its first use.

    ``kind``: what it does, if ``program.compiled`` has faster forms of it for the usual case.
    """

    def __init__(self, python: Callable[[int, int], int], kind: str = "") -> None:
        self.python = python
        self.kind = kind
        self._compiled: Any = None

    @property
    def address(self) -> int:
        if self._compiled is None:
            self._compiled = compilation.compile_pointer(self.python)
        address: int = self._compiled.address
        return address


_helper = njit(nogil=True)
carray: Any = numba.carray  # type: ignore[attr-defined]
_INTERRUPTED = 100_000
"""Cycles after which an instruction was interrupted by another process, and does not count."""


@_helper
def is_taken(wave, at):
    """Return whether a wavefront takes the branch whose operation is at an address."""
    condition = get64(at + 32)
    if condition < 2:
        return get8(wave + record.SCC) == condition
    return (get64(wave + 4 * get64(at + 40)) != 0) == (condition == 3)


@_helper
def _run_wavefront(wave, code, waves, lanes, budget, cycles):
    """Run one wavefront; return the operations that it executed, and whether it used its turn."""
    at = code + 8 * ROW * get64(wave + record.POSITION)
    executed = 0
    while True:
        executed += 1
        operation = get64(at)
        if operation == CALL:
            start = cycles_now() if len(cycles) else 0
            status = call(get64(at + 8), wave, at + 16)
            if len(cycles):
                elapsed = cycles_now() - start
                if elapsed < _INTERRUPTED:
                    cycles[(at - code) // (8 * ROW)] += elapsed
            if status != 0:
                put64(wave + record.STATE, record.STOPPED)
                break
            at += 8 * ROW
        elif operation == RUN:
            start = cycles_now() if len(cycles) else 0
            done = call(get64(at + 8 * RUN_FUNCTION), wave, at)
            if len(cycles):
                elapsed = cycles_now() - start
                if elapsed < _INTERRUPTED:
                    cycles[(at - code) // (8 * ROW)] += elapsed
            executed += done
            whole = done == get64(at + 8 * RUN_LENGTH)
            at += 8 * ROW * done
            if not whole:
                put64(wave + record.STATE, record.STOPPED)
                break
        elif operation == COUNT:
            segment = get64(at + 16)
            waves[segment] += 1
            lanes[segment] += bit_count(get64(wave + record.EXEC_BYTES))
            at += 8 * ROW
        elif operation in (BRANCH, JUMP):
            if operation == BRANCH and not is_taken(wave, at):
                at += 8 * ROW
                continue
            target, quantum = get64(at + 16), get64(at + 24)
            at = code + 8 * ROW * target
            if quantum:
                loops = get64(wave + record.LOOPS) + 1
                if loops >= quantum:
                    put64(wave + record.LOOPS, 0)
                    put64(wave + record.TURN, get64(wave + record.TURN) + 1)
                    put64(wave + record.POSITION, (at - code) // (8 * ROW))
                    return executed, True
                put64(wave + record.LOOPS, loops)
                if executed > budget:
                    break
        elif operation == SLEEP:
            at += 8 * ROW
            put64(wave + record.LOOPS, 0)
            put64(wave + record.TURN, get64(wave + record.TURN) + 1)
            put64(wave + record.POSITION, (at - code) // (8 * ROW))
            return executed, True
        elif operation == BARRIER:
            at += 8 * ROW
            put64(wave + record.STATE, record.WAITING)
            break
        elif operation == END:
            put64(wave + record.STATE, record.ENDED)
            break
        else:
            put64(wave + record.STATE, record.STOPPED)
            break
    put64(wave + record.POSITION, (at - code) // (8 * ROW))
    return executed, False


@_helper
def _run_group(first, stride, count, code, waves, lanes, state, cycles):
    """Run the wavefronts of a work-group; return why it pauses, FINISHED if all have ended."""
    turned = False
    while True:
        for i in range(count):
            wave = first + i * stride
            if get64(wave + record.STATE) != record.RUNNING:
                continue
            executed, turn = _run_wavefront(wave, code, waves, lanes, state[BUDGET], cycles)
            state[BUDGET] -= executed
            turned |= turn
            if get64(wave + record.STATE) == record.ENDED:
                state[ENDED] += 1
        waiting, ended, stopped, turns = 0, 0, 0, 0
        for i in range(count):
            wave = first + i * stride
            now = get64(wave + record.STATE)
            waiting += now == record.WAITING
            ended += now == record.ENDED
            stopped += now == record.STOPPED
            turns = max(turns, get64(wave + record.TURN))
        if stopped:
            return STOPPED
        if ended == count:
            return FINISHED
        if waiting + ended == count:
            for i in range(count):
                wave = first + i * stride
                if get64(wave + record.STATE) == record.WAITING:
                    put64(wave + record.STATE, record.RUNNING)
                    put64(wave + record.TURN, turns)
        if turned:
            return ROUND
        if state[BUDGET] < 0:
            return PAUSE


@_helper
def _start(first, count, group, control, setup, share):
    """Set up the records of a work-group's wavefronts. ``setup``: grid x and y, and the registers of the system's
    scalars, -1 for those that are not passed: the work-group's x, y, z, and the wavefront's place."""
    share_bytes = get64(control + 8 * SHARE_BYTES)
    if share_bytes:
        clear(share, (share_bytes + 7) & ~7)
    stride, template = get64(control + 8 * STRIDE), get64(control + 8 * TEMPLATE)
    size, private = get64(control + 8 * SIZE), get64(control + 8 * PRIVATE)
    for i in range(count):
        wave = first + i * stride
        copy(wave, template, record.SET_UP)
        put64(wave + record.SHARE, share)
        put64(wave + record.NUMBER, group * count + i)
        put64(wave + record.PRIVATE, wave + private)
        if setup[2] >= 0:
            put32(wave + 4 * setup[2], group % setup[0])
        if setup[3] >= 0:
            put32(wave + 4 * setup[3], group // setup[0] % setup[1])
        if setup[4] >= 0:
            put32(wave + 4 * setup[4], group // (setup[0] * setup[1]))
        if setup[5] >= 0:
            put32(wave + 4 * setup[5], count | (1 << 31 if i == 0 else 0))
        # v0 is the lane's place in the work-group, and v1, its neighbour, 0.
        pairs = carray(pointer(wave + record.VECTORS), (64,), np.int64)
        for lane in range(64):
            pairs[lane] = 64 * i + lane
        clear(wave + record.VECTORS + record.PAIR_BYTES, (size - record.VECTORS - record.PAIR_BYTES + 7) & ~7)


@_helper
def _array(control, field, size):
    """Return the int64[size] whose address is in a field of the control."""
    return carray(pointer(get64(control + 8 * field)), (size,), np.int64)


def _run(control: int) -> int:
    """Run work-groups; return why the caller has to act. ``control``: the address of ``CONTROL_FIELDS`` numbers."""
    state, setup = _array(control, STATE, STATE_FIELDS), _array(control, SETUP, SETUP_FIELDS)
    slots, segments = state[SLOTS], get64(control + 8 * SEGMENTS)
    records, groups = _array(control, RECORDS, slots), _array(control, GROUPS, slots)
    data_shares = _array(control, DATA_SHARES, slots)
    waves, lanes = _array(control, WAVES, segments), _array(control, LANES, segments)
    cycles = _array(control, CYCLES, get64(control + 8 * CYCLES_NUMBER))
    stride, count, code = get64(control + 8 * STRIDE), get64(control + 8 * WAVES_PER_GROUP), get64(control + 8 * CODE)
    while True:
        while state[CURSOR] < state[USED]:
            slot = state[CURSOR]
            if groups[slot] < 0:
                if state[NEXT] >= state[TOTAL]:
                    state[CURSOR] += 1
                    continue
                groups[slot] = state[NEXT]
                state[NEXT] += 1
                _start(records[slot], count, groups[slot], control, setup, data_shares[slot])
            why = _run_group(records[slot], stride, count, code, waves, lanes, state, cycles)
            if why == FINISHED:
                groups[slot] = -1
                if state[NEXT] >= state[TOTAL]:
                    state[CURSOR] += 1
            elif why == ROUND:
                state[CURSOR] += 1
            if why == STOPPED or state[BUDGET] < 0:
                return STOPPED if why == STOPPED else PAUSE
        if state[NEXT] < state[TOTAL]:
            if state[USED] == state[SLOTS]:
                return GROW
            state[USED] += 1
            continue
        state[CURSOR] = 0
        for slot in range(state[USED]):
            if groups[slot] >= 0:
                return ROUND
        return FINISHED


@njit(nogil=True)
def _now():
    return cycles_now()


def cycles_per_second() -> float:
    """Return the rate of the clock that counts ``cycles``."""
    _now()  # compile it
    start, first = time.perf_counter(), _now()
    time.sleep(0.02)
    return float((_now() - first) / (time.perf_counter() - start))


@cache
def runner() -> Callable[[int], int]:
    """Return ``_run`` as ``compilation.entry`` does."""
    return compilation.entry(_run)
