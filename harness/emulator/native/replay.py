"""The scheduler of mode ``trace`` as native code: what ``driver.schedule`` does with the wavefronts of one launch.

It knows wavefronts by number, in *parts* that are at the same block, and the events in each block. Native code of the
wavefronts, which runs ahead, gives it what depends on data (``native.traced``). So virtual time, and the order of all
records, are those of the interpreter, although a work-group may have ended before another one begins.

``run`` gets the address of the state below, and returns why the caller has to act. It then continues where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import cfunc, njit, types

from harness.emulator.native import execute, flows, record, traced
from harness.emulator.native import memory as native
from harness.emulator.native.execute import _run_group, _start
from harness.emulator.native.raw import bit_count, clear, get64, octets, pointer, put64, words32, words64

_helper = njit(nogil=True)
carray: Any = numba.carray  # type: ignore[attr-defined]

# The state, int64 each. Of the launch: addresses of the tables of blocks and of events, of the kinds of operations
# uint8[n] (1: an event) and of the control of ``native.execute``; of the slots of work-groups int64[groups] (-1: not
# begun, -2: ended), their number, wavefronts of each; addresses of int64[wavefronts]: the wavefront that follows in a
# part, when the span began, when it arrived at an s_barrier or -1, at which one, the state of its outstanding
# operations, and whether it takes the branch.
(BLOCKS, EVENTS, KINDS, CONTROL, SLOT_OF, GROUPS, PER_GROUP, NEXT_WAVE, SINCE, ARRIVED, ARRIVED_AT, QUEUED, TAKEN) = (
    range(13)
)
# Addresses of int32[states, kinds of events]: the next state of outstanding operations, -1 if it is unknown, and the
# kind of operation that is waited for, or -1; their width; the address of int64[waits, 10], counts of stalls.
(FOLLOWING, WAITED_FOR, TRANSITIONS, STALLS) = range(13, 17)
# Parts and chunks: addresses of their tables, and the number of fields of a chunk; address of int64[parts], those
# that are ready, and their number; addresses and numbers of free parts and chunks; most wavefronts of a chunk.
(
    PARTS,
    CHUNKS,
    CHUNK_FIELDS,
    READY,
    READY_COUNT,
    FREE_PARTS,
    FREE_PARTS_COUNT,
    FREE_CHUNKS,
    FREE_CHUNKS_COUNT,
    CHUNK_WAVES,
) = range(17, 27)
# Next work-group to start, work-groups of a chunk, chunks that have started, the number of the last part made; resident
# wavefronts, and how many may be; the round; wavefronts that have ended; whether choices decide; whether patience is
# exhausted.
(NEXT_GROUP, PER_CHUNK, STARTED, SERIAL, RESIDENT, MOST_RESIDENT, ROUND, ENDED, CHOOSES, IMPATIENT) = range(27, 37)
# Where it is: the part that runs or -1, or is chosen to run, or -1; the event, or -1 before the block, the wavefront,
# or -1 before the event, and its place in the part; the sum of the event; the time at which the block began; virtual
# time; the argument of the reason to return; addresses of free slots and their number; the serial number of the part
# that ran last.
(CURRENT, CHOSEN, EVENT, WAVE, ROW, SUM, BEGAN, NOW, ARGUMENT, FREE_SLOTS, FREE_SLOTS_COUNT, LATEST) = range(37, 49)
# Records: for each kind the address of the rows, their number, and how many there is room for; then the most of each
# kind that are kept, the rows of earlier launches, those left out: accesses and spans; whether a sample replaces the
# last one of earlier launches, and that sample.
(ACCESSES, SPANS, SAMPLES) = (49, 52, 55)
(LIMIT, EARLIER_ACCESSES, EARLIER_SPANS, EARLIER_SAMPLES, LOST_ACCESSES, LOST_SPANS, REPLACES, REPLACING) = range(
    58, 66
)
# Address of the rank's totals int64[3], see ``Sample``; address and number of the allocations, see below; address of
# the state of ``flows``; rounds after which the caller has to act; the address of the state.
(TOTALS, ALLOCATIONS, ALLOCATIONS_COUNT, FLOWS, ROUNDS_LEFT, ADDRESS) = range(70, 76)
# Words of an access, with the addresses of all lanes.
LISTED = 76
STATE_FIELDS = LISTED + traced.STEP + 64

# A part: its serial number; turn, loops, block, chunk; number of wavefronts, the first and the last one; the next part
# at the barrier.
(PART, TURN, LOOPS, BLOCK, CHUNK, COUNT, HEAD, TAIL, NEXT_PART) = range(9)
PART_FIELDS = 9
# A chunk: its number, first work-group, work-groups, wavefronts that have not ended, the first and last part at the
# barrier or -1; the address of its wavefronts' queues, and where that of wavefront 0 would be; and then for each
# work-group wavefronts that have not ended, and those that have arrived, or -1 if they do not all wait.
(INDEX, FIRST_GROUP, GROUP_COUNT, LIVE, FIRST_WAITING, LAST_WAITING, MEMORY, ORIGIN, IN_GROUP) = range(9)

# A block: the first event and their number, instructions, how it ends, the block that is jumped to, whether the jump
# closes a loop that polls, the instruction that ends it.
(FIRST_EVENT, EVENT_COUNT, TICKS, END, TARGET, POLLS, LAST) = range(7)
BLOCK_FIELDS = 7
# Ends of a block, as in ``program.decode``.
FALL, JUMP, BRANCH, ENDS, BARRIER, SLEEP = range(6)
# An event: its kind, and the instruction's place in the block; whether an operation appends it to the queue; the
# place of the access itself in the code, or -1; whether its order matters; the kind of operation that begins, or the
# wait, among those of ``FOLLOWING``; then what the kind needs.
(KIND, OFFSET, IS_QUEUED, EXECUTED, ORDERED, BEGINS, SITE, SIZE, HEAT, READS) = range(10)
EVENT_FIELDS = 10
# Kinds of events. An access has in ``SITE`` its number and in ``HEAT`` the kind of heat, and begins ``BEGINS``, or the
# next one if it reaches a peer. A wait has in ``SITE`` its number and in ``SIZE`` the index of its instruction.
ACCESS, SHARE, ISSUE, WAIT = range(4)

# An allocation: its bounds; whether another rank owns it, in records, and for waits; the bytes of a bucket, the
# address of the counts int64[3, n] or 0 if there are none yet, and n.
(START, END_AT, IS_PEER, IS_FAR, WIDTH, COUNTS, BUCKETS) = range(7)
ALLOCATION_FIELDS = 7

# Rows: of an access its time, its wavefront, site | allocation << 32, bytes, and address; of a span its start, end,
# wavefront and kind | instruction << 8; of a sample its time, and the totals.
ACCESS_FIELDS, SPAN_FIELDS, SAMPLE_FIELDS = 5, 4, 4
WAITING, TO_BARRIER, AT_BARRIER, TO_END = range(4)

# Why ``run`` returned. NEEDS_PYTHON: wavefront ``ARGUMENT`` needs the interpreter. CHOOSE: put the part that runs next
# into ``CHOSEN``. NEEDS_SLOT, NEEDS_CHUNK, NEEDS_ROOM: make more of them. NEEDS_HEAT: counts of an allocation.
# NEEDS_STATE: fill ``FOLLOWING`` at ``ARGUMENT``. BROKEN: the code and the events do not fit together.
(FINISHED, NEEDS_PYTHON, PAUSE, ROUND_ENDED, CHOOSE, NEEDS_SLOT, NEEDS_CHUNK, NEEDS_ROOM, NEEDS_HEAT, NEEDS_STATE,
 BROKEN) = range(11)  # fmt: skip
_GO_ON = -1

QUANTUM, POLL_QUANTUM = 16, 2
"""As in ``driver.schedule``."""


@_helper
def _table(s, field):
    """Return the int64[] whose address is in a field of the state."""
    return words64(s[field])


@_helper
def _part(s, number):
    return words64(s[PARTS] + 8 * PART_FIELDS * number)


@_helper
def _chunk(s, number):
    fields = s[CHUNK_FIELDS]
    return words64(s[CHUNKS] + 8 * fields * number)


@_helper
def _queue(s, part, wave):
    """Return the address of a wavefront's queue."""
    return _chunk(s, part[CHUNK])[ORIGIN] + traced.QUEUE_BYTES * wave


# -- running wavefronts ahead ------------------------------------------------------------------------------------------


@_helper
def _record_of(s, control, wave):
    """Return the address of the record of a wavefront whose work-group has begun and not ended."""
    slot = _table(s, SLOT_OF)[wave // s[PER_GROUP]]
    return get64(get64(control + 8 * execute.RECORDS) + 8 * slot) + wave % s[PER_GROUP] * get64(
        control + 8 * execute.STRIDE
    )


@_helper
def _begin_group(s, part, group):
    """Begin a work-group in a slot; return False if none is free."""
    if s[FREE_SLOTS_COUNT] == 0:
        return False
    control = s[CONTROL]
    s[FREE_SLOTS_COUNT] -= 1
    slot = _table(s, FREE_SLOTS)[s[FREE_SLOTS_COUNT]]
    _table(s, SLOT_OF)[group] = slot
    setup = carray(pointer(get64(control + 8 * execute.SETUP)), (execute.SETUP_FIELDS,), np.int64)
    first = get64(get64(control + 8 * execute.RECORDS) + 8 * slot)
    put64(get64(control + 8 * execute.GROUPS) + 8 * slot, group)
    count, stride = s[PER_GROUP], get64(control + 8 * execute.STRIDE)
    _start(first, count, group, control, setup, get64(get64(control + 8 * execute.DATA_SHARES) + 8 * slot))
    queue = _queue(s, part, group * count)
    for i in range(count):
        put64(first + i * stride + record.QUEUE, queue + i * traced.QUEUE_BYTES)
    return True


@_helper
def _run_ahead(s, group):
    """Run the wavefronts of a work-group until each has ended, waits, or stops; return ``PAUSE`` to do so again."""
    control, slots = s[CONTROL], _table(s, SLOT_OF)
    slot, count, stride = slots[group], s[PER_GROUP], get64(control + 8 * execute.STRIDE)
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
        _table(s, FREE_SLOTS)[s[FREE_SLOTS_COUNT]] = slot
        s[FREE_SLOTS_COUNT] += 1
        return _GO_ON
    kinds = octets(s[KINDS])
    for i in range(count):
        wave = first + i * stride
        if get64(wave + record.STATE) == record.STOPPED:
            position = get64(wave + record.POSITION)
            put64(get64(wave + record.QUEUE) + traced.STUCK, -1 if kinds[position] else position)
    return PAUSE if why in (execute.PAUSE, execute.ROUND) else _GO_ON


@_helper
def _go_on(s, part, wave, is_ordered):
    """Let a wavefront run on whose queue is empty; return why it cannot."""
    group = wave // s[PER_GROUP]
    slot = _table(s, SLOT_OF)[group]
    queue = _queue(s, part, wave)
    if slot == -1:
        if not _begin_group(s, part, group):
            return NEEDS_SLOT
    elif slot == -2:
        return BROKEN
    else:
        place = _record_of(s, s[CONTROL], wave)
        state = get64(place + record.STATE)
        if get64(queue + traced.STUCK) >= 0:
            put64(queue + traced.STUCK, -1)
            return NEEDS_PYTHON
        if state == record.STOPPED:
            put64(place + record.STATE, record.RUNNING)
            put64(queue + traced.ALLOWED, is_ordered)
        elif state != record.RUNNING:
            return BROKEN
    put64(queue + traced.TAKEN, 0)
    put64(queue + traced.APPENDED, 0)
    return _run_ahead(s, group)


@_helper
def _has_event(s, part, wave, executed, is_ordered):
    """Have a wavefront append its next event; return why it cannot.

    ``executed``: the place of the access that the event is about, which has to be executed too, or -1.
    """
    queue = _queue(s, part, wave)
    while True:
        taken, appended = get64(queue + traced.TAKEN), get64(queue + traced.APPENDED)
        if taken < appended:
            break
        why = _go_on(s, part, wave, is_ordered)
        if why != _GO_ON:
            s[ARGUMENT] = wave
            return why
    if executed >= 0 and get64(queue + traced.STUCK) == executed:
        # The access of its last event has not been executed.
        word = queue + traced.WORDS_AT + 8 * taken
        if appended - taken == get64(word + 8 * traced.LENGTH):
            s[ARGUMENT] = wave
            put64(queue + traced.STUCK, -1)
            return NEEDS_PYTHON
    return _GO_ON


@_helper
def _has_ended(s, part, wave):
    """Have a wavefront run to its end; return why it cannot."""
    group = wave // s[PER_GROUP]
    while True:
        slot = _table(s, SLOT_OF)[group]
        if slot == -2:
            return _GO_ON
        if slot >= 0 and get64(_record_of(s, s[CONTROL], wave) + record.STATE) == record.ENDED:
            return _GO_ON
        queue = _queue(s, part, wave)
        if slot >= 0 and get64(queue + traced.TAKEN) < get64(queue + traced.APPENDED):
            return BROKEN
        why = _go_on(s, part, wave, 0)
        if why != _GO_ON:
            s[ARGUMENT] = wave
            return why


# -- parts -------------------------------------------------------------------------------------------------------------


@_helper
def _new_part(s, like):
    """Return the number of a new part without wavefronts, otherwise like another one."""
    s[FREE_PARTS_COUNT] -= 1
    number = _table(s, FREE_PARTS)[s[FREE_PARTS_COUNT]]
    part = _part(s, number)
    if like >= 0:
        other = _part(s, like)
        for i in range(PART_FIELDS):
            part[i] = other[i]
    s[SERIAL] += 1
    part[PART] = s[SERIAL]
    part[COUNT], part[HEAD], part[TAIL] = 0, -1, -1
    return number


@_helper
def _free_part(s, number):
    _table(s, FREE_PARTS)[s[FREE_PARTS_COUNT]] = number
    s[FREE_PARTS_COUNT] += 1


@_helper
def _add_wave(s, part, wave):
    following = _table(s, NEXT_WAVE)
    following[wave] = -1
    if part[COUNT] == 0:
        part[HEAD] = wave
    else:
        following[part[TAIL]] = wave
    part[TAIL] = wave
    part[COUNT] += 1


@_helper
def _enqueue(s, number):
    _table(s, READY)[s[READY_COUNT]] = number
    s[READY_COUNT] += 1


@_helper
def _dequeue(s, index):
    ready = _table(s, READY)
    number = ready[index]
    for i in range(index, s[READY_COUNT] - 1):
        ready[i] = ready[i + 1]
    s[READY_COUNT] -= 1
    return number


@_helper
def _start_chunk(s):
    """Start the next work-groups; return their part, or -1 if there is no chunk for them."""
    if s[FREE_CHUNKS_COUNT] == 0:
        return -1
    s[FREE_CHUNKS_COUNT] -= 1
    index = _table(s, FREE_CHUNKS)[s[FREE_CHUNKS_COUNT]]
    chunk = _chunk(s, index)
    groups, per_group = min(s[PER_CHUNK], s[GROUPS] - s[NEXT_GROUP]), s[PER_GROUP]
    chunk[INDEX], chunk[FIRST_GROUP], chunk[GROUP_COUNT] = s[STARTED], s[NEXT_GROUP], groups
    chunk[LIVE], chunk[FIRST_WAITING], chunk[LAST_WAITING] = groups * per_group, -1, -1
    for i in range(groups):
        chunk[IN_GROUP + 2 * i] = per_group
    number = _new_part(s, -1)
    part = _part(s, number)
    part[TURN], part[LOOPS], part[BLOCK], part[CHUNK] = 0, 0, 0, index
    first = s[NEXT_GROUP] * per_group
    chunk[ORIGIN] = chunk[MEMORY] - traced.QUEUE_BYTES * first
    since = _table(s, SINCE)
    for wave in range(first, first + groups * per_group):
        queue = chunk[ORIGIN] + traced.QUEUE_BYTES * wave
        clear(queue, traced.WORDS_AT)
        put64(queue + traced.STUCK, -1)
        since[wave] = s[NOW]
        _add_wave(s, part, wave)
    s[NEXT_GROUP] += groups
    s[STARTED] += 1
    s[RESIDENT] += groups * per_group
    return number


@_helper
def _choose(s):
    """Set ``CURRENT``; return why that cannot be."""
    ready = _table(s, READY)
    lowest = np.int64(1) << 60
    for i in range(s[READY_COUNT]):
        lowest = min(lowest, _part(s, ready[i])[TURN])
    none = s[READY_COUNT] == 0
    if s[NEXT_GROUP] < s[GROUPS] and s[RESIDENT] < s[MOST_RESIDENT] and (none or lowest > 0):
        number = _start_chunk(s)
        if number < 0:
            return NEEDS_CHUNK
        return _take(s, number)
    if none:
        return FINISHED
    if lowest > s[ROUND]:
        s[ROUND] = lowest
        s[ROUNDS_LEFT] -= 1
        if s[ROUNDS_LEFT] <= 0:
            return ROUND_ENDED
    if s[CHOOSES]:
        if s[CHOSEN] < 0:
            return CHOOSE
        best = s[CHOSEN]
        s[CHOSEN] = -1
        return _merge(s, best)
    best, best_chunk = ready[0], _chunk(s, _part(s, ready[0])[CHUNK])[INDEX]
    for i in range(1, s[READY_COUNT]):
        part, its = _part(s, ready[i]), _part(s, best)
        index = _chunk(s, part[CHUNK])[INDEX]
        if part[TURN] < its[TURN] or (
            part[TURN] == its[TURN] and (index < best_chunk or (index == best_chunk and part[BLOCK] < its[BLOCK]))
        ):
            best, best_chunk = ready[i], index
    return _merge(s, best)


@_helper
def _take(s, number):
    s[CURRENT], s[EVENT], s[LATEST] = number, -1, _part(s, number)[PART]
    return _GO_ON


@_helper
def _merge(s, best):
    """Take the ready part ``best``, joined with all ready ones at the same block of the same chunk."""
    ready = _table(s, READY)
    chosen, same = _part(s, best), 0
    for i in range(s[READY_COUNT]):
        part = _part(s, ready[i])
        same += part[CHUNK] == chosen[CHUNK] and part[BLOCK] == chosen[BLOCK]
    if same == 1:
        for i in range(s[READY_COUNT]):
            if ready[i] == best:
                return _take(s, _dequeue(s, i))
    number = _new_part(s, best)
    merged = _part(s, number)
    following = _table(s, NEXT_WAVE)
    kept = 0
    for i in range(s[READY_COUNT]):
        part = _part(s, ready[i])
        if part[CHUNK] != merged[CHUNK] or part[BLOCK] != merged[BLOCK]:
            ready[kept] = ready[i]
            kept += 1
            continue
        merged[TURN], merged[LOOPS] = max(merged[TURN], part[TURN]), max(merged[LOOPS], part[LOOPS])
        if merged[COUNT] == 0:
            merged[HEAD] = part[HEAD]
        else:
            following[merged[TAIL]] = part[HEAD]
        merged[TAIL] = part[TAIL]
        merged[COUNT] += part[COUNT]
        _free_part(s, ready[i])
    s[READY_COUNT] = kept
    return _take(s, number)


@_helper
def _jump(s, number, block):
    """Go to the target of a block's end. If that uses up the turn, return True; the part is then a ready one."""
    part = _part(s, number)
    here = part[BLOCK]
    part[BLOCK] = block[TARGET]
    if block[TARGET] > here:
        return False
    part[LOOPS] += 1
    if part[LOOPS] < (POLL_QUANTUM if block[POLLS] else QUANTUM):
        return False
    part[LOOPS] = 0
    waits = block[POLLS] or s[READY_COUNT] or s[NEXT_GROUP] < s[GROUPS]
    if not waits and not s[IMPATIENT]:
        return False
    part[TURN] += 1
    _enqueue(s, number)
    return True


@_helper
def _rejoins(s, number):
    """Return True if other parts of the chunk are at this block, or at a lower one: they are joined, or run first."""
    part, ready = _part(s, number), _table(s, READY)
    for i in range(s[READY_COUNT]):
        other = _part(s, ready[i])
        if other[CHUNK] == part[CHUNK] and other[TURN] <= part[TURN] and other[BLOCK] <= part[BLOCK]:
            return True
    return False


# -- records -----------------------------------------------------------------------------------------------------------


@_helper
def _has_room(s, records, rows):
    return s[records + 1] + rows <= s[records + 2]


@_helper
def _row(s, records, fields):
    """Return a new row of a kind of records."""
    row = words64(s[records] + 8 * fields * s[records + 1])
    s[records + 1] += 1
    return row


@_helper
def _span(s, wave, kind, instruction, start, end):
    if s[SPANS + 1] + s[EARLIER_SPANS] >= s[LIMIT]:
        s[LOST_SPANS] += 1
        return
    row = _row(s, SPANS, SPAN_FIELDS)
    row[0], row[1], row[2], row[3] = start, end, wave, kind | instruction << 8


@_helper
def _sample(s):
    """Record the totals, in place of the last ones if there are too many."""
    if s[SAMPLES + 1] + s[EARLIER_SAMPLES] < s[LIMIT]:
        row = _row(s, SAMPLES, SAMPLE_FIELDS)
    elif s[SAMPLES + 1]:
        row = words64(s[SAMPLES] + 8 * SAMPLE_FIELDS * (s[SAMPLES + 1] - 1))
    else:
        s[REPLACES] = 1
        row = words64(s[ADDRESS] + 8 * REPLACING)
    totals = words64(s[TOTALS])
    row[0], row[1], row[2], row[3] = s[NOW], totals[0], totals[1], totals[2]


@_helper
def _begin_operation(s, wave, event):
    """Change the outstanding operations of a wavefront.

    Returns the place of its state and the event in the tables, or - 1 - place if the next state is unknown.
    """
    states = _table(s, QUEUED)
    place = states[wave] * s[TRANSITIONS] + event
    following = words32(s[FOLLOWING])[place]
    if following < 0:
        return -1 - place
    states[wave] = following
    return place


@_helper
def _allocation(s, number):
    place = s[ALLOCATIONS] + 8 * ALLOCATION_FIELDS * number
    return words64(place)


@_helper
def _count(table, words, kind, size, takes):
    """Add the bytes of an access to the counts of an allocation, those of the lanes ``takes``."""
    start, width, buckets = table[START], table[WIDTH], table[BUCKETS]
    counts = words64(table[COUNTS] + 8 * buckets * kind)
    last_bucket = buckets - 1  # an access may begin after the end, in the same dword
    if words[traced.FORM] == traced.PROGRESSION:
        count = bit_count(takes)
        lowest = words[traced.LOWEST] - start
        first, last = lowest // width, (words[traced.HIGHEST] - start) // width
        if first == last:
            counts[min(first, last_bucket)] += size * count
            return
        step = abs(words[traced.STEP])
        before = 0
        for bucket in range(first, last + 1):
            through = min(count, ((bucket + 1) * width - lowest + step - 1) // step)
            counts[min(bucket, last_bucket)] += size * (through - before)
            before = through
        return
    bucket, begin, end = np.int64(0), np.int64(0), np.int64(0)
    for lane in range(64):
        address = words[traced.STEP + lane]
        if (takes >> lane) & 1:
            inner = address - start
            if inner < begin or inner >= end:
                bucket = inner // width
                begin, end = bucket * width, (bucket + 1) * width
            counts[min(bucket, last_bucket)] += size


@_helper
def _log(s, time, wave, event, number, words, takes, first):
    """Record the access of the lanes ``takes`` to allocation ``number``, the first of them at ``first``."""
    table, size, lanes = _allocation(s, number), event[SIZE], bit_count(takes)
    _count(table, words, event[HEAT], size, takes)
    totals = words64(s[TOTALS])
    totals[table[IS_PEER]] += lanes * size
    if s[ACCESSES + 1] + s[EARLIER_ACCESSES] >= s[LIMIT]:
        s[LOST_ACCESSES] += 1
        return
    access = s[ACCESSES + 1]
    row = _row(s, ACCESSES, ACCESS_FIELDS)
    row[0], row[1], row[2], row[3], row[4] = time, wave, event[SITE] | number << 32, lanes * size, first
    flows.follow(s[FLOWS], s[ACCESSES], ACCESS_FIELDS, access, words, size, event[READS], takes)


@_helper
def _owner(s, address):
    """Return the allocation that an address belongs to, as ``traced.owner``."""
    number = s[ALLOCATIONS_COUNT] - 1
    while number >= 0 and not (_allocation(s, number)[START] <= address and address < _allocation(s, number)[END_AT]):
        number -= 1
    return number


@_helper
def _piece(s, words, number):
    """Return the lanes that access an allocation, as bits, and the address of the first one. ``words``: ``LISTED``."""
    takes, first = np.int64(0), np.int64(0)
    for lane in range(64):
        address = words[traced.STEP + lane]
        if (words[traced.TAKES] >> lane) & 1 and _owner(s, address) == number:
            if takes == 0:
                first = address
            takes |= np.int64(1) << lane
    return takes, first


@_helper
def _listed(s, words):
    """Return the words of an access with the addresses of its lanes, in the state."""
    listed = words64(s[ADDRESS] + 8 * LISTED)
    for i in range(traced.STEP):
        listed[i] = words[i]
    listed[traced.FORM] = traced.LISTED
    before = 0
    for lane in range(64):
        listed[traced.STEP + lane] = flows._lane(words, lane, before)
        before += (words[traced.TAKES] >> lane) & 1
    return listed


@_helper
def _access(s, part, time, wave, event):
    """Record an access of a wavefront to global memory; return why that cannot be."""
    queue = _queue(s, part, wave)
    place = queue + traced.WORDS_AT + 8 * get64(queue + traced.TAKEN)
    words = words64(place)
    somebody = words[traced.FORM] != traced.NOBODY
    one, other = words[traced.LOW_ALLOCATION], words[traced.HIGH_ALLOCATION]
    alone = one == other and one >= 0
    far = False
    if somebody:
        if not _has_room(s, ACCESSES, 64) or not flows.has_room(s[FLOWS], words, event[SIZE], event[READS] == 0):
            return NEEDS_ROOM
        if not alone:
            words = _listed(s, words)
        for number in range(one if alone else 0, one + 1 if alone else s[ALLOCATIONS_COUNT]):
            if alone or _piece(s, words, number)[0] != 0:
                table = _allocation(s, number)
                far |= table[IS_FAR] != 0
                if table[COUNTS] == 0:
                    s[ARGUMENT] = number
                    return NEEDS_HEAT
    unknown = _begin_operation(s, wave, event[BEGINS] + far)
    if unknown < 0:
        s[ARGUMENT] = -1 - unknown
        return NEEDS_STATE
    if somebody and alone:
        _log(s, time, wave, event, one, words, words[traced.TAKES], words[traced.FIRST])
    elif somebody:
        for number in range(s[ALLOCATIONS_COUNT]):
            takes, first = _piece(s, words, number)
            if takes:
                _log(s, time, wave, event, number, words, takes, first)
    put64(queue + traced.TAKEN, get64(queue + traced.TAKEN) + get64(place + 8 * traced.LENGTH))
    return _GO_ON


# -- blocks ------------------------------------------------------------------------------------------------------------


@_helper
def _prepare_event(s, part, executed, is_ordered):
    """Have all wavefronts of a part append an event, see ``_has_event``; return why that cannot be."""
    following, wave = _table(s, NEXT_WAVE), part[HEAD]
    for _ in range(part[COUNT]):
        why = _has_event(s, part, wave, executed, is_ordered)
        if why != _GO_ON:
            return why
        wave = following[wave]
    return _GO_ON


@_helper
def _pop(s, part, wave):
    """Return the next word of a wavefront's queue."""
    queue = _queue(s, part, wave)
    taken = get64(queue + traced.TAKEN)
    put64(queue + traced.TAKEN, taken + 1)
    return get64(queue + traced.WORDS_AT + 8 * taken)


@_helper
def _happen(s, part, event):
    """Let an event happen in all wavefronts of a part, from ``WAVE`` on; return why that cannot be."""
    kind, count = event[KIND], part[COUNT]
    begin = s[BEGAN] + event[OFFSET] * count
    if s[WAVE] < 0:
        if not (_has_room(s, SAMPLES, 1) and _has_room(s, SPANS, count)):
            return NEEDS_ROOM
        s[NOW] = begin + count
        if event[IS_QUEUED]:
            why = _prepare_event(s, part, event[EXECUTED], event[ORDERED])
            if why != _GO_ON:
                return why
        s[WAVE], s[ROW], s[SUM] = part[HEAD], 0, 0
    following = _table(s, NEXT_WAVE)
    while s[ROW] < count:
        wave, time = s[WAVE], begin + s[ROW]
        if kind == ACCESS:
            why = _access(s, part, time, wave, event)
            if why != _GO_ON:
                return why
        else:
            place = _begin_operation(s, wave, event[BEGINS])
            if place < 0:
                s[ARGUMENT] = -1 - place
                return NEEDS_STATE
            if kind == WAIT:
                waited = words32(s[WAITED_FOR])[place]
                if waited >= 0:
                    _table(s, STALLS)[10 * event[SITE] + waited] += 1
                _span(s, wave, WAITING, event[SIZE], time, time + 1)
            elif event[IS_QUEUED]:
                s[SUM] += _pop(s, part, wave)
        s[WAVE] = following[wave]
        s[ROW] += 1
    if kind == SHARE and s[SUM]:
        words64(s[TOTALS])[2] += s[SUM]
    if kind == ACCESS or (kind == SHARE and s[SUM]):
        _sample(s)
    return _GO_ON


@_helper
def _divide(s, number, block):
    """Split a part at a branch that some of its wavefronts take."""
    following, marks = _table(s, NEXT_WAVE), _table(s, TAKEN)
    first, second = _new_part(s, number), _new_part(s, number)
    stay, go, part = _part(s, first), _part(s, second), _part(s, number)
    wave = part[HEAD]
    for _ in range(part[COUNT]):
        after = following[wave]
        _add_wave(s, go if marks[wave] else stay, wave)
        wave = after
    stay[BLOCK] += 1
    go[BLOCK] = block[TARGET]
    if block[TARGET] <= part[BLOCK] and block[POLLS]:
        go[TURN] += 1
    _free_part(s, number)
    _enqueue(s, first)
    _enqueue(s, second)


@_helper
def _release(s, index):
    """Release every work-group of a chunk whose live wavefronts have all arrived at a barrier."""
    chunk, following, arrived = _chunk(s, index), _table(s, NEXT_WAVE), _table(s, ARRIVED)
    groups, per_group, first_group = chunk[GROUP_COUNT], s[PER_GROUP], chunk[FIRST_GROUP]
    for i in range(groups):
        chunk[IN_GROUP + 2 * i + 1] = 0
    turn, number = 0, chunk[FIRST_WAITING]
    while number >= 0:
        part = _part(s, number)
        turn = max(turn, part[TURN])
        wave = part[HEAD]
        for _ in range(part[COUNT]):
            chunk[IN_GROUP + 2 * (wave // per_group - first_group) + 1] += 1
            wave = following[wave]
        number = part[NEXT_PART]
    complete = False
    for i in range(groups):
        live, here = chunk[IN_GROUP + 2 * i], chunk[IN_GROUP + 2 * i + 1]
        if live != here or here == 0:
            chunk[IN_GROUP + 2 * i + 1] = -1
            continue
        complete = True
        for wave in range((first_group + i) * per_group, (first_group + i + 1) * per_group):
            if arrived[wave] >= 0:
                _span(s, wave, AT_BARRIER, _table(s, ARRIVED_AT)[wave], arrived[wave], s[NOW])
                _table(s, SINCE)[wave] = s[NOW]
                arrived[wave] = -1
    if not complete:
        return
    number = chunk[FIRST_WAITING]
    chunk[FIRST_WAITING] = chunk[LAST_WAITING] = -1
    while number >= 0:
        part = _part(s, number)
        after = part[NEXT_PART]
        released, wave = 0, part[HEAD]
        for _ in range(part[COUNT]):
            released += chunk[IN_GROUP + 2 * (wave // per_group - first_group) + 1] >= 0
            wave = following[wave]
        if released == 0:
            _put_at_barrier(s, chunk, number)
        elif released == part[COUNT]:
            part[TURN] = turn
            _enqueue(s, number)
        else:
            first, second = _new_part(s, number), _new_part(s, number)
            stay, go = _part(s, first), _part(s, second)
            wave = part[HEAD]
            for _ in range(part[COUNT]):
                behind = following[wave]
                goes = chunk[IN_GROUP + 2 * (wave // per_group - first_group) + 1] >= 0
                _add_wave(s, go if goes else stay, wave)
                wave = behind
            _free_part(s, number)
            _put_at_barrier(s, chunk, first)
            go[TURN] = turn
            _enqueue(s, second)
        number = after


@_helper
def _put_at_barrier(s, chunk, number):
    _part(s, number)[NEXT_PART] = -1
    if chunk[FIRST_WAITING] < 0:
        chunk[FIRST_WAITING] = number
    else:
        _part(s, chunk[LAST_WAITING])[NEXT_PART] = number
    chunk[LAST_WAITING] = number


@_helper
def _wait(s, number, block):
    """Let a part, whose block has just ended, wait at an s_barrier."""
    part, following = _part(s, number), _table(s, NEXT_WAVE)
    wave, count = part[HEAD], part[COUNT]
    for row in range(count):
        time = s[NOW] - count + row
        _span(s, wave, TO_BARRIER, block[LAST], _table(s, SINCE)[wave], time)
        _table(s, ARRIVED)[wave], _table(s, ARRIVED_AT)[wave] = time, block[LAST]
        wave = following[wave]
    index = part[CHUNK]
    _put_at_barrier(s, _chunk(s, index), number)
    _release(s, index)


@_helper
def _finish_part(s, number):
    """End the wavefronts of a part."""
    part, following = _part(s, number), _table(s, NEXT_WAVE)
    index = part[CHUNK]
    chunk, wave = _chunk(s, index), part[HEAD]
    for _ in range(part[COUNT]):
        _span(s, wave, TO_END, 0, _table(s, SINCE)[wave], s[NOW])
        chunk[IN_GROUP + 2 * (wave // s[PER_GROUP] - chunk[FIRST_GROUP])] -= 1
        wave = following[wave]
    chunk[LIVE] -= part[COUNT]
    s[RESIDENT] -= part[COUNT]
    s[ENDED] += part[COUNT]
    _free_part(s, number)
    if chunk[LIVE] == 0:
        _table(s, FREE_CHUNKS)[s[FREE_CHUNKS_COUNT]] = index
        s[FREE_CHUNKS_COUNT] += 1
    elif chunk[FIRST_WAITING] >= 0:
        _release(s, index)


@_helper
def _end_block(s, number, block):
    """Let a part leave its block; return why that cannot be. ``CURRENT`` is then -1, unless the part goes on."""
    part, following = _part(s, number), _table(s, NEXT_WAVE)
    end, count = block[END], part[COUNT]
    if not _has_room(s, SPANS, count + s[CHUNK_WAVES]):
        return NEEDS_ROOM
    if end == BRANCH:
        why = _prepare_event(s, part, -1, 0)
        if why != _GO_ON:
            return why
    if end == ENDS:
        wave = part[HEAD]
        for _ in range(count):
            why = _has_ended(s, part, wave)
            if why != _GO_ON:
                return why
            wave = following[wave]
    s[NOW] = s[BEGAN] + block[TICKS] * count
    s[EVENT] = -1
    if end == BRANCH:
        taken, wave, marks = 0, part[HEAD], _table(s, TAKEN)
        for _ in range(count):
            marks[wave] = _pop(s, part, wave)
            taken += marks[wave]
            wave = following[wave]
        if taken == count:
            if _jump(s, number, block):
                s[CURRENT] = -1
                return _GO_ON
        elif taken == 0:
            part[BLOCK] += 1
        else:
            _divide(s, number, block)
            s[CURRENT] = -1
            return _GO_ON
    elif end == JUMP:
        if _jump(s, number, block):
            s[CURRENT] = -1
            return _GO_ON
    elif end == BARRIER:
        part[BLOCK] += 1
        _wait(s, number, block)
        s[CURRENT] = -1
        return _GO_ON
    elif end == ENDS:
        _finish_part(s, number)
        s[CURRENT] = -1
        return _GO_ON
    else:
        part[BLOCK] += 1
    if _rejoins(s, number):
        _enqueue(s, number)
        s[CURRENT] = -1
    return _GO_ON


@_helper
def _run_block(s, number):
    """Run a part through its block; return why that cannot be, with the place to continue at in the state."""
    part = _part(s, number)
    if s[EVENT] < 0:
        s[EVENT], s[WAVE], s[BEGAN] = 0, -1, s[NOW]
    block = words64(s[BLOCKS] + 8 * BLOCK_FIELDS * part[BLOCK])
    while s[EVENT] < block[EVENT_COUNT]:
        place = s[EVENTS] + 8 * EVENT_FIELDS * (block[FIRST_EVENT] + s[EVENT])
        why = _happen(s, part, words64(place))
        if why != _GO_ON:
            return why
        s[EVENT] += 1
        s[WAVE] = -1
    return _end_block(s, number, block)


def _run(address: int) -> int:
    """Run parts; return why the caller has to act. ``address``: that of the state, int64[STATE_FIELDS]."""
    s = words64(address)
    while True:
        why = _choose(s) if s[CURRENT] < 0 else _run_block(s, s[CURRENT])
        if why != _GO_ON:
            return why


@cache
def runner() -> Callable[[int], int]:
    """Return ``_run``, compiled or loaded from numba's cache. A call of it releases Python's lock."""
    with native.compiling_alone():
        compiled = cfunc(types.int64(types.int64), cache=True, nopython=True)(_run)
        if not compiled.cache_hits:
            native._report_progress()
    run: Callable[[int], int] = compiled.ctypes
    return run
