"""The scheduler of mode ``trace`` as native code: what ``driver.schedule`` does with the wavefronts of one launch.

It knows wavefronts by number, in *parts* that are at the same block, and the events in each block. Native code of the
wavefronts, which runs ahead, gives it what depends on data (``native.traced``). So virtual time, and the order of all
records, are those of the interpreter, although a work-group may have ended before another one begins.

``run`` gets the address of the state, see ``replay_state``, and returns why the caller has to act.
It then continues where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import njit

from harness.emulator import compilation
from harness.emulator.native import replay_ahead as ahead
from harness.emulator.native import replay_records as records
from harness.emulator.native import replay_state as at
from harness.emulator.native import traced
from harness.emulator.native.raw import clear, get64, put64, words32, words64

_helper = njit(nogil=True)

QUANTUM, POLL_QUANTUM = 16, 2
"""As in ``driver.schedule``."""


# -- parts -------------------------------------------------------------------------------------------------------------


@_helper
def _new_part(s, like):
    """Return the number of a new part without wavefronts, otherwise like another one."""
    s[at.FREE_PARTS_COUNT] -= 1
    number = at.table(s, at.FREE_PARTS)[s[at.FREE_PARTS_COUNT]]
    part = at.part(s, number)
    if like >= 0:
        other = at.part(s, like)
        for i in range(at.PART_FIELDS):
            part[i] = other[i]
    s[at.SERIAL] += 1
    part[at.PART] = s[at.SERIAL]
    part[at.COUNT], part[at.HEAD], part[at.TAIL] = 0, -1, -1
    return number


@_helper
def _free_part(s, number):
    at.table(s, at.FREE_PARTS)[s[at.FREE_PARTS_COUNT]] = number
    s[at.FREE_PARTS_COUNT] += 1


@_helper
def _add_wave(s, part, wave):
    following = at.table(s, at.NEXT_WAVE)
    following[wave] = -1
    if part[at.COUNT] == 0:
        part[at.HEAD] = wave
    else:
        following[part[at.TAIL]] = wave
    part[at.TAIL] = wave
    part[at.COUNT] += 1


@_helper
def _enqueue(s, number):
    at.table(s, at.READY)[s[at.READY_COUNT]] = number
    s[at.READY_COUNT] += 1


@_helper
def _dequeue(s, index):
    ready = at.table(s, at.READY)
    number = ready[index]
    for i in range(index, s[at.READY_COUNT] - 1):
        ready[i] = ready[i + 1]
    s[at.READY_COUNT] -= 1
    return number


@_helper
def _start_chunk(s):
    """Start the next work-groups; return their part, or -1 if there is no chunk for them."""
    if s[at.FREE_CHUNKS_COUNT] == 0:
        return -1
    s[at.FREE_CHUNKS_COUNT] -= 1
    index = at.table(s, at.FREE_CHUNKS)[s[at.FREE_CHUNKS_COUNT]]
    chunk = at.chunk(s, index)
    groups, per_group = min(s[at.PER_CHUNK], s[at.GROUPS] - s[at.NEXT_GROUP]), s[at.PER_GROUP]
    chunk[at.INDEX], chunk[at.FIRST_GROUP], chunk[at.GROUP_COUNT] = s[at.STARTED], s[at.NEXT_GROUP], groups
    chunk[at.LIVE], chunk[at.FIRST_WAITING], chunk[at.LAST_WAITING] = groups * per_group, -1, -1
    for i in range(groups):
        chunk[at.IN_GROUP + 2 * i] = per_group
    number = _new_part(s, -1)
    part = at.part(s, number)
    part[at.TURN], part[at.LOOPS], part[at.BLOCK], part[at.CHUNK] = 0, 0, 0, index
    first = s[at.NEXT_GROUP] * per_group
    chunk[at.ORIGIN] = chunk[at.MEMORY] - traced.QUEUE_BYTES * first
    since = at.table(s, at.SINCE)
    for wave in range(first, first + groups * per_group):
        queue = chunk[at.ORIGIN] + traced.QUEUE_BYTES * wave
        clear(queue, traced.WORDS_AT)
        put64(queue + traced.STUCK, -1)
        since[wave] = s[at.NOW]
        _add_wave(s, part, wave)
    s[at.NEXT_GROUP] += groups
    s[at.STARTED] += 1
    s[at.RESIDENT] += groups * per_group
    return number


@_helper
def _choose(s):
    """Set ``CURRENT``; return why that cannot be."""
    ready = at.table(s, at.READY)
    lowest = np.int64(1) << 60
    for i in range(s[at.READY_COUNT]):
        lowest = min(lowest, at.part(s, ready[i])[at.TURN])
    none = s[at.READY_COUNT] == 0
    if s[at.NEXT_GROUP] < s[at.GROUPS] and s[at.RESIDENT] < s[at.MOST_RESIDENT] and (none or lowest > 0):
        number = _start_chunk(s)
        if number < 0:
            return at.NEEDS_CHUNK
        return _take(s, number)
    if none:
        return at.FINISHED
    if lowest > s[at.ROUND]:
        s[at.ROUND] = lowest
        s[at.ROUNDS_LEFT] -= 1
        if s[at.ROUNDS_LEFT] <= 0:
            return at.ROUND_ENDED
    if s[at.CHOOSES]:
        if s[at.CHOSEN] < 0:
            return at.CHOOSE
        best = s[at.CHOSEN]
        s[at.CHOSEN] = -1
        return _merge(s, best)
    best, best_chunk = ready[0], at.chunk(s, at.part(s, ready[0])[at.CHUNK])[at.INDEX]
    for i in range(1, s[at.READY_COUNT]):
        part, its = at.part(s, ready[i]), at.part(s, best)
        is_lower = part[at.BLOCK] < its[at.BLOCK]
        index = at.chunk(s, part[at.CHUNK])[at.INDEX]
        if part[at.TURN] < its[at.TURN] or (
            part[at.TURN] == its[at.TURN] and (index < best_chunk or (index == best_chunk and is_lower))
        ):
            best, best_chunk = ready[i], index
    return _merge(s, best)


@_helper
def _take(s, number):
    s[at.CURRENT], s[at.EVENT], s[at.LATEST] = number, -1, at.part(s, number)[at.PART]
    return at.GO_ON


@_helper
def _merge(s, best):
    """Take the ready part ``best``, joined with all ready ones at the same block of the same chunk."""
    ready = at.table(s, at.READY)
    chosen, same = at.part(s, best), 0
    for i in range(s[at.READY_COUNT]):
        part = at.part(s, ready[i])
        same += part[at.CHUNK] == chosen[at.CHUNK] and part[at.BLOCK] == chosen[at.BLOCK]
    if same == 1:
        for i in range(s[at.READY_COUNT]):
            if ready[i] == best:
                return _take(s, _dequeue(s, i))
    number = _new_part(s, best)
    merged = at.part(s, number)
    following = at.table(s, at.NEXT_WAVE)
    kept = 0
    for i in range(s[at.READY_COUNT]):
        part = at.part(s, ready[i])
        if part[at.CHUNK] != merged[at.CHUNK] or part[at.BLOCK] != merged[at.BLOCK]:
            ready[kept] = ready[i]
            kept += 1
            continue
        merged[at.TURN], merged[at.LOOPS] = max(merged[at.TURN], part[at.TURN]), max(merged[at.LOOPS], part[at.LOOPS])
        if merged[at.COUNT] == 0:
            merged[at.HEAD] = part[at.HEAD]
        else:
            following[merged[at.TAIL]] = part[at.HEAD]
        merged[at.TAIL] = part[at.TAIL]
        merged[at.COUNT] += part[at.COUNT]
        _free_part(s, ready[i])
    s[at.READY_COUNT] = kept
    return _take(s, number)


@_helper
def _jump(s, number, block):
    """Go to the target of a block's end. If that uses up the turn, return True; the part is then a ready one."""
    part = at.part(s, number)
    here = part[at.BLOCK]
    part[at.BLOCK] = block[at.TARGET]
    if block[at.TARGET] > here:
        return False
    part[at.LOOPS] += 1
    if part[at.LOOPS] < (POLL_QUANTUM if block[at.POLLS] else QUANTUM):
        return False
    part[at.LOOPS] = 0
    waits = block[at.POLLS] or s[at.READY_COUNT] or s[at.NEXT_GROUP] < s[at.GROUPS]
    if not waits and not s[at.IMPATIENT]:
        return False
    part[at.TURN] += 1
    _enqueue(s, number)
    return True


@_helper
def _rejoins(s, number):
    """Return True if other parts of the chunk are at this block, or at a lower one: they are joined, or run first."""
    part, ready = at.part(s, number), at.table(s, at.READY)
    for i in range(s[at.READY_COUNT]):
        other = at.part(s, ready[i])
        if other[at.CHUNK] == part[at.CHUNK] and other[at.TURN] <= part[at.TURN] and other[at.BLOCK] <= part[at.BLOCK]:
            return True
    return False


# -- blocks ------------------------------------------------------------------------------------------------------------


@_helper
def _prepare_event(s, part, executed, is_ordered):
    """Have all wavefronts of a part append an event, see ``_has_event``; return why that cannot be."""
    following, wave = at.table(s, at.NEXT_WAVE), part[at.HEAD]
    for _ in range(part[at.COUNT]):
        why = ahead.has_event(s, part, wave, executed, is_ordered)
        if why != at.GO_ON:
            return why
        wave = following[wave]
    return at.GO_ON


@_helper
def _pop(s, part, wave):
    """Return the next word of a wavefront's queue."""
    queue = at.queue(s, part, wave)
    taken = get64(queue + traced.TAKEN)
    put64(queue + traced.TAKEN, taken + 1)
    return get64(queue + traced.WORDS_AT + 8 * taken)


@_helper
def _happen(s, part, event):
    """Let an event happen in all wavefronts of a part, from ``WAVE`` on; return why that cannot be."""
    kind, count = event[at.KIND], part[at.COUNT]
    begin = s[at.BEGAN] + event[at.OFFSET] * count
    if s[at.WAVE] < 0:
        if not (records.has_room(s, at.SAMPLES, 1) and records.has_room(s, at.SPANS, count)):
            return at.NEEDS_ROOM
        s[at.NOW] = begin + count
        if event[at.IS_QUEUED]:
            why = _prepare_event(s, part, event[at.EXECUTED], event[at.ORDERED])
            if why != at.GO_ON:
                return why
        s[at.WAVE], s[at.ROW], s[at.SUM] = part[at.HEAD], 0, 0
    following = at.table(s, at.NEXT_WAVE)
    while s[at.ROW] < count:
        wave, time = s[at.WAVE], begin + s[at.ROW]
        if kind == at.ACCESS:
            why = records.access(s, part, time, wave, event)
            if why != at.GO_ON:
                return why
        else:
            place = records.begin_operation(s, wave, event[at.BEGINS])
            if place < 0:
                s[at.ARGUMENT] = -1 - place
                return at.NEEDS_STATE
            if kind == at.WAIT:
                waited = words32(s[at.WAITED_FOR])[place]
                if waited >= 0:
                    at.table(s, at.STALLS)[10 * event[at.SITE] + waited] += 1
                records.span(s, wave, at.WAITING, event[at.SIZE], time, time + 1)
            elif event[at.IS_QUEUED]:
                s[at.SUM] += _pop(s, part, wave)
        s[at.WAVE] = following[wave]
        s[at.ROW] += 1
    if kind == at.SHARE and s[at.SUM]:
        words64(s[at.TOTALS])[2] += s[at.SUM]
    if kind == at.ACCESS or (kind == at.SHARE and s[at.SUM]):
        records.sample(s)
    return at.GO_ON


@_helper
def _divide(s, number, block):
    """Split a part at a branch that some of its wavefronts take."""
    following, marks = at.table(s, at.NEXT_WAVE), at.table(s, at.TAKEN)
    first, second = _new_part(s, number), _new_part(s, number)
    stay, go, part = at.part(s, first), at.part(s, second), at.part(s, number)
    wave = part[at.HEAD]
    for _ in range(part[at.COUNT]):
        after = following[wave]
        _add_wave(s, go if marks[wave] else stay, wave)
        wave = after
    stay[at.BLOCK] += 1
    go[at.BLOCK] = block[at.TARGET]
    if block[at.TARGET] <= part[at.BLOCK] and block[at.POLLS]:
        go[at.TURN] += 1
    _free_part(s, number)
    _enqueue(s, first)
    _enqueue(s, second)


@_helper
def _release(s, index):
    """Release every work-group of a chunk whose live wavefronts have all arrived at a barrier."""
    chunk, following, arrived = at.chunk(s, index), at.table(s, at.NEXT_WAVE), at.table(s, at.ARRIVED)
    groups, per_group, first_group = chunk[at.GROUP_COUNT], s[at.PER_GROUP], chunk[at.FIRST_GROUP]
    for i in range(groups):
        chunk[at.IN_GROUP + 2 * i + 1] = 0
    turn, number = 0, chunk[at.FIRST_WAITING]
    while number >= 0:
        part = at.part(s, number)
        turn = max(turn, part[at.TURN])
        wave = part[at.HEAD]
        for _ in range(part[at.COUNT]):
            chunk[at.IN_GROUP + 2 * (wave // per_group - first_group) + 1] += 1
            wave = following[wave]
        number = part[at.NEXT_PART]
    complete = False
    for i in range(groups):
        live, here = chunk[at.IN_GROUP + 2 * i], chunk[at.IN_GROUP + 2 * i + 1]
        if live != here or here == 0:
            chunk[at.IN_GROUP + 2 * i + 1] = -1
            continue
        complete = True
        for wave in range((first_group + i) * per_group, (first_group + i + 1) * per_group):
            if arrived[wave] >= 0:
                records.span(s, wave, at.AT_BARRIER, at.table(s, at.ARRIVED_AT)[wave], arrived[wave], s[at.NOW])
                at.table(s, at.SINCE)[wave] = s[at.NOW]
                arrived[wave] = -1
    if not complete:
        return
    number = chunk[at.FIRST_WAITING]
    chunk[at.FIRST_WAITING] = chunk[at.LAST_WAITING] = -1
    while number >= 0:
        part = at.part(s, number)
        after = part[at.NEXT_PART]
        released, wave = 0, part[at.HEAD]
        for _ in range(part[at.COUNT]):
            released += chunk[at.IN_GROUP + 2 * (wave // per_group - first_group) + 1] >= 0
            wave = following[wave]
        if released == 0:
            _put_at_barrier(s, chunk, number)
        elif released == part[at.COUNT]:
            part[at.TURN] = turn
            _enqueue(s, number)
        else:
            first, second = _new_part(s, number), _new_part(s, number)
            stay, go = at.part(s, first), at.part(s, second)
            wave = part[at.HEAD]
            for _ in range(part[at.COUNT]):
                behind = following[wave]
                goes = chunk[at.IN_GROUP + 2 * (wave // per_group - first_group) + 1] >= 0
                _add_wave(s, go if goes else stay, wave)
                wave = behind
            _free_part(s, number)
            _put_at_barrier(s, chunk, first)
            go[at.TURN] = turn
            _enqueue(s, second)
        number = after


@_helper
def _put_at_barrier(s, chunk, number):
    at.part(s, number)[at.NEXT_PART] = -1
    if chunk[at.FIRST_WAITING] < 0:
        chunk[at.FIRST_WAITING] = number
    else:
        at.part(s, chunk[at.LAST_WAITING])[at.NEXT_PART] = number
    chunk[at.LAST_WAITING] = number


@_helper
def _wait(s, number, block):
    """Let a part, whose block has just ended, wait at an s_barrier."""
    part, following = at.part(s, number), at.table(s, at.NEXT_WAVE)
    wave, count = part[at.HEAD], part[at.COUNT]
    for row in range(count):
        time = s[at.NOW] - count + row
        records.span(s, wave, at.TO_BARRIER, block[at.LAST], at.table(s, at.SINCE)[wave], time)
        at.table(s, at.ARRIVED)[wave], at.table(s, at.ARRIVED_AT)[wave] = time, block[at.LAST]
        wave = following[wave]
    index = part[at.CHUNK]
    _put_at_barrier(s, at.chunk(s, index), number)
    _release(s, index)


@_helper
def _finish_part(s, number):
    """End the wavefronts of a part."""
    part, following = at.part(s, number), at.table(s, at.NEXT_WAVE)
    index = part[at.CHUNK]
    chunk, wave = at.chunk(s, index), part[at.HEAD]
    for _ in range(part[at.COUNT]):
        records.span(s, wave, at.TO_END, 0, at.table(s, at.SINCE)[wave], s[at.NOW])
        chunk[at.IN_GROUP + 2 * (wave // s[at.PER_GROUP] - chunk[at.FIRST_GROUP])] -= 1
        wave = following[wave]
    chunk[at.LIVE] -= part[at.COUNT]
    s[at.RESIDENT] -= part[at.COUNT]
    s[at.ENDED] += part[at.COUNT]
    _free_part(s, number)
    if chunk[at.LIVE] == 0:
        at.table(s, at.FREE_CHUNKS)[s[at.FREE_CHUNKS_COUNT]] = index
        s[at.FREE_CHUNKS_COUNT] += 1
    elif chunk[at.FIRST_WAITING] >= 0:
        _release(s, index)


@_helper
def _end_block(s, number, block):
    """Let a part leave its block; return why that cannot be. ``CURRENT`` is then -1, unless the part goes on."""
    part, following = at.part(s, number), at.table(s, at.NEXT_WAVE)
    end, count = block[at.END], part[at.COUNT]
    if not records.has_room(s, at.SPANS, count + s[at.CHUNK_WAVES]):
        return at.NEEDS_ROOM
    if end == at.BRANCH:
        why = _prepare_event(s, part, -1, 0)
        if why != at.GO_ON:
            return why
    if end == at.ENDS:
        wave = part[at.HEAD]
        for _ in range(count):
            why = ahead.has_ended(s, part, wave)
            if why != at.GO_ON:
                return why
            wave = following[wave]
    s[at.NOW] = s[at.BEGAN] + block[at.TICKS] * count
    s[at.EVENT] = -1
    if end == at.BRANCH:
        taken, wave, marks = 0, part[at.HEAD], at.table(s, at.TAKEN)
        for _ in range(count):
            marks[wave] = _pop(s, part, wave)
            taken += marks[wave]
            wave = following[wave]
        if taken == count:
            if _jump(s, number, block):
                s[at.CURRENT] = -1
                return at.GO_ON
        elif taken == 0:
            part[at.BLOCK] += 1
        else:
            _divide(s, number, block)
            s[at.CURRENT] = -1
            return at.GO_ON
    elif end == at.JUMP:
        if _jump(s, number, block):
            s[at.CURRENT] = -1
            return at.GO_ON
    elif end == at.BARRIER:
        part[at.BLOCK] += 1
        _wait(s, number, block)
        s[at.CURRENT] = -1
        return at.GO_ON
    elif end == at.ENDS:
        _finish_part(s, number)
        s[at.CURRENT] = -1
        return at.GO_ON
    else:
        part[at.BLOCK] += 1
    if _rejoins(s, number):
        _enqueue(s, number)
        s[at.CURRENT] = -1
    return at.GO_ON


@_helper
def _run_block(s, number):
    """Run a part through its block; return why that cannot be, with the place to continue at in the state."""
    part = at.part(s, number)
    if s[at.EVENT] < 0:
        s[at.EVENT], s[at.WAVE], s[at.BEGAN] = 0, -1, s[at.NOW]
    block = words64(s[at.BLOCKS] + 8 * at.BLOCK_FIELDS * part[at.BLOCK])
    while s[at.EVENT] < block[at.EVENT_COUNT]:
        place = s[at.EVENTS] + 8 * at.EVENT_FIELDS * (block[at.FIRST_EVENT] + s[at.EVENT])
        why = _happen(s, part, words64(place))
        if why != at.GO_ON:
            return why
        s[at.EVENT] += 1
        s[at.WAVE] = -1
    return _end_block(s, number, block)


def _run(address: int) -> int:
    """Run parts; return why the caller has to act. ``address``: that of the state, int64[STATE_FIELDS]."""
    s = words64(address)
    while True:
        why = _choose(s) if s[at.CURRENT] < 0 else _run_block(s, s[at.CURRENT])
        if why != at.GO_ON:
            return why


@cache
def runner() -> Callable[[int], int]:
    """Return ``_run`` as ``compilation.entry`` does."""
    return compilation.entry(_run)
