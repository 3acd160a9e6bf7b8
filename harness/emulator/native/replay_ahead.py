"""Wavefronts that run ahead of their replay: native code runs a work-group until each wavefront has something in its
queue that ``native.replay`` needs.

Functions return ``replay_state.GO_ON``, or why the caller of ``replay`` has to act.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import njit

from harness.emulator.native import execute, record, traced
from harness.emulator.native import replay_state as at
from harness.emulator.native.execute import _run_group, _start
from harness.emulator.native.raw import get64, octets, pointer, put64

_helper = njit(nogil=True)
carray: Any = numba.carray  # type: ignore[attr-defined]


@_helper
def _record_of(s, control, wave):
    """Return the address of the record of a wavefront whose work-group has begun and not ended."""
    slot = at.table(s, at.SLOT_OF)[wave // s[at.PER_GROUP]]
    return get64(get64(control + 8 * execute.RECORDS) + 8 * slot) + wave % s[at.PER_GROUP] * get64(
        control + 8 * execute.STRIDE
    )


@_helper
def _begin_group(s, part, group):
    """Begin a work-group in a slot; return False if none is free."""
    if s[at.FREE_SLOTS_COUNT] == 0:
        return False
    control = s[at.CONTROL]
    s[at.FREE_SLOTS_COUNT] -= 1
    slot = at.table(s, at.FREE_SLOTS)[s[at.FREE_SLOTS_COUNT]]
    at.table(s, at.SLOT_OF)[group] = slot
    setup = carray(pointer(get64(control + 8 * execute.SETUP)), (execute.SETUP_FIELDS,), np.int64)
    first = get64(get64(control + 8 * execute.RECORDS) + 8 * slot)
    put64(get64(control + 8 * execute.GROUPS) + 8 * slot, group)
    count, stride = s[at.PER_GROUP], get64(control + 8 * execute.STRIDE)
    _start(first, count, group, control, setup, get64(get64(control + 8 * execute.DATA_SHARES) + 8 * slot))
    queue = at.queue(s, part, group * count)
    for i in range(count):
        put64(first + i * stride + record.QUEUE, queue + i * traced.QUEUE_BYTES)
    return True


@_helper
def _run_ahead(s, group):
    """Run the wavefronts of a work-group until each has ended, waits, or stops; return ``PAUSE`` to do so again."""
    control, slots = s[at.CONTROL], at.table(s, at.SLOT_OF)
    slot, count, stride = slots[group], s[at.PER_GROUP], get64(control + 8 * execute.STRIDE)
    first = get64(get64(control + 8 * execute.RECORDS) + 8 * slot)
    segments = get64(control + 8 * execute.SEGMENTS)
    state = carray(pointer(get64(control + 8 * execute.STATE)), (execute.STATE_FIELDS,), np.int64)
    waves = carray(pointer(get64(control + 8 * execute.WAVES)), (segments,), np.int64)
    lanes = carray(pointer(get64(control + 8 * execute.LANES)), (segments,), np.int64)
    cycles = carray(
        pointer(get64(control + 8 * execute.CYCLES)), (get64(control + 8 * execute.CYCLES_NUMBER),), np.int64
    )
    code = get64(control + 8 * execute.CODE)
    why = execute.ROUND
    while why == execute.ROUND and state[execute.BUDGET] >= 0:
        why = _run_group(first, stride, count, code, waves, lanes, state, cycles)
    if why == execute.FINISHED:
        slots[group] = -2
        put64(get64(control + 8 * execute.GROUPS) + 8 * slot, -1)
        at.table(s, at.FREE_SLOTS)[s[at.FREE_SLOTS_COUNT]] = slot
        s[at.FREE_SLOTS_COUNT] += 1
        return at.GO_ON
    kinds = octets(s[at.KINDS])
    for i in range(count):
        wave = first + i * stride
        if get64(wave + record.STATE) == record.STOPPED:
            position = get64(wave + record.POSITION)
            put64(get64(wave + record.QUEUE) + traced.STUCK, -1 if kinds[position] else position)
    return at.PAUSE if why in (execute.PAUSE, execute.ROUND) else at.GO_ON


@_helper
def _go_on(s, part, wave, is_ordered):
    """Let a wavefront run on whose queue is empty; return why it cannot."""
    group = wave // s[at.PER_GROUP]
    slot = at.table(s, at.SLOT_OF)[group]
    queue = at.queue(s, part, wave)
    if slot == -1:
        if not _begin_group(s, part, group):
            return at.NEEDS_SLOT
    elif slot == -2:
        return at.BROKEN
    else:
        place = _record_of(s, s[at.CONTROL], wave)
        state = get64(place + record.STATE)
        if get64(queue + traced.STUCK) >= 0:
            put64(queue + traced.STUCK, -1)
            return at.NEEDS_PYTHON
        if state == record.STOPPED:
            put64(place + record.STATE, record.RUNNING)
            put64(queue + traced.ALLOWED, is_ordered)
        elif state != record.RUNNING:
            return at.BROKEN
    put64(queue + traced.TAKEN, 0)
    put64(queue + traced.APPENDED, 0)
    return _run_ahead(s, group)


@_helper
def has_event(s, part, wave, executed, is_ordered):
    """Have a wavefront append its next event; return why it cannot.

    ``executed``: the place of the access that the event is about, which has to be executed too, or -1.
    """
    queue = at.queue(s, part, wave)
    while True:
        taken, appended = get64(queue + traced.TAKEN), get64(queue + traced.APPENDED)
        if taken < appended:
            break
        why = _go_on(s, part, wave, is_ordered)
        if why != at.GO_ON:
            s[at.ARGUMENT] = wave
            return why
    if executed >= 0 and get64(queue + traced.STUCK) == executed:
        # The access of its last event has not been executed.
        word = queue + traced.WORDS_AT + 8 * taken
        if appended - taken == get64(word + 8 * traced.LENGTH):
            s[at.ARGUMENT] = wave
            put64(queue + traced.STUCK, -1)
            return at.NEEDS_PYTHON
    return at.GO_ON


@_helper
def has_ended(s, part, wave):
    """Have a wavefront run to its end; return why it cannot."""
    group = wave // s[at.PER_GROUP]
    while True:
        slot = at.table(s, at.SLOT_OF)[group]
        if slot == -2:
            return at.GO_ON
        if slot >= 0 and get64(_record_of(s, s[at.CONTROL], wave) + record.STATE) == record.ENDED:
            return at.GO_ON
        queue = at.queue(s, part, wave)
        if slot >= 0 and get64(queue + traced.TAKEN) < get64(queue + traced.APPENDED):
            return at.BROKEN
        why = _go_on(s, part, wave, 0)
        if why != at.GO_ON:
            s[at.ARGUMENT] = wave
            return why
