"""Issuing global memory accesses in mode ``weak``, and returning what they load to registers.

``flights`` performs them; its description has the terms.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.native import memory as native
from harness.emulator.native import record, spans
from harness.emulator.native import weak_state as ws
from harness.emulator.native.flight_state import (
    ACCESS,
    ATOMIC,
    BYTES,
    COUNT,
    DATA_AT,
    DONE,
    FIRST,
    LANES,
    LAST,
    LEFT,
    LOAD,
    MOVING_INDEX,
    NEXT_OPERATION,
    NUMBER,
    OF_FLIGHT,
    OF_INSTRUCTION,
    OF_KIND,
    OF_SCOPE,
    OF_SPAN,
    OPERATION_BYTES,
    OTHER_AT,
    PART_BYTES,
    PART_DONE,
    PART_FIRST,
    PART_LINE,
    PART_PAST,
    PARTS,
    PARTS_AT,
    RANGE_AT,
    RANGE_BYTES,
    RANGE_END,
    RANGE_START,
    RECORD,
    SEGMENTS_AT,
    STORE,
    STRIDE,
    WHOLE,
    WHOLE_LOADS,
)
from harness.emulator.native.located import find, lanes_of, range_of
from harness.emulator.native.raw import bit_count, call, clear, copy, get8, get64, put32, put64
from harness.emulator.native.weak_state import add, allocate, helper, release
from harness.emulator.native.words import peek16, peek32, peek64, poke8, poke32, poke64

# Of an access: fields as in ``operations.access``, the first vector register that it writes and their number, how its
# data are converted.
(KIND, SIZE, SCOPE, SITE, INSTRUCTION, FORM, AREG, SREG, SOFFSET, OFFSET) = range(0, 80, 8)
(REGISTER, TARGET, OPERATION, SIGNED, HALF, FIRST_WRITTEN, WRITTEN, CONVERSION) = range(80, 144, 8)
ACCESS_FIELDS = 18
PLAIN, TYPED, TO_SHARE, NUMPY_FOLD = range(4)
"""Conversions. TYPED: Python converts elements of a buffer's format. TO_SHARE: a load to the data share. NUMPY_FOLD:
Python computes the new value of an atomic."""

# A launch: addresses of its table of allocations, of the copies of each, number of allocations, counters of access
# sites (executions; local and peer lanes); its agent, when it began, its number in events, wavefronts of a work-group,
# and the XCDs of the agent.
(STARTS, ENDS, PEERS, IMAGES, ALLOCATIONS, EXECUTIONS, ACCESS_LANES) = range(0, 56, 8)
(AGENT, BEGUN, NAME, PER_GROUP, XCDS) = range(56, 96, 8)

# Calls of ``run``.
(NEW_UNIT, NEW_FLIGHT, ISSUE, FENCE, PRIVATE, COUNTED, WAIT, LINGERS, MOVE, FLUSH, ANSWERED, STORES_MOVING) = range(12)
(APPEND, SETTLE, DROP, MOVE_NOW) = range(12, 16)
ARGUMENTS_BYTES = 32
COMPLETE, PASS_FENCE, PERFORM, PERFORM_LINE = range(4)


# -- the operations of a wavefront -------------------------------------------------------------------------------------


@helper
def new(state, flight, access, kind, scope, instruction, done, size):
    """Append an operation to a flight; ``size``: bytes of the structure."""
    operation = allocate(state, size)
    clear(operation, OPERATION_BYTES)
    add(state + ws.ISSUED, 1)
    put64(operation + NUMBER, get64(state + ws.ISSUED))
    put64(operation + OF_FLIGHT, flight)
    put64(operation + ACCESS, access)
    put64(operation + OF_KIND, kind)
    put64(operation + OF_SCOPE, scope)
    put64(operation + OF_INSTRUCTION, instruction)
    put64(operation + DONE, done)
    put64(operation + BYTES, size)
    last = get64(flight + LAST)
    if last:
        put64(last + NEXT_OPERATION, operation)
    else:
        put64(flight + FIRST, operation)
    put64(flight + LAST, operation)
    add(flight + COUNT, 1)
    if not done:
        _start_moving(state, operation)
    return operation


@helper
def _start_moving(state, operation):
    count = get64(state + ws.MOVES)
    if count == get64(state + ws.MOVES_CAPACITY):
        call(get64(state + ws.MORE), ws.MOVING_TABLE, count)
    put64(get64(state + ws.MOVING) + 8 * count, operation)
    put64(operation + MOVING_INDEX, count)
    put64(state + ws.MOVES, count + 1)


@helper
def finish(state, operation):
    """Mark an operation as performed."""
    put64(operation + DONE, 1)
    # The last one of the table takes its place.
    moving, count, index = get64(state + ws.MOVING), get64(state + ws.MOVES) - 1, get64(operation + MOVING_INDEX)
    last = get64(moving + 8 * count)
    put64(moving + 8 * index, last)
    put64(last + MOVING_INDEX, index)
    put64(state + ws.MOVES, count)


@helper
def forget(state, flight, count):
    """Remove the oldest operations of a flight, which have been performed."""
    for _ in range(count):
        operation = get64(flight + FIRST)
        put64(flight + FIRST, get64(operation + NEXT_OPERATION))
        if get64(operation + OF_SPAN):
            spans.free_span(state, get64(operation + OF_SPAN))
        release(state, operation, get64(operation + BYTES))
    if get64(flight + FIRST) == 0:
        put64(flight + LAST, 0)
    add(flight + COUNT, -count)


# -- registers ---------------------------------------------------------------------------------------------------------


@helper
def _register(wave, register):
    """Return the address of a vector register's first lane; the next lane is 8 bytes further."""
    return wave + record.VECTORS + (register >> 1) * record.PAIR_BYTES + 4 * (register & 1)


@helper
def _gather(wave, register, words, lanes, target):
    """Copy consecutive registers of the lanes in a mask to ``target``, lane after lane."""
    if register & 1 == 0 and words & 1 == 0:
        for i in range(0, words, 2):
            place, at = _register(wave, register + i), target + 4 * i
            if lanes == -1:
                for lane in range(64):
                    poke64(np.uint64(at + 4 * words * lane), np.uint64(get64(place + 8 * lane)))
                continue
            for lane in range(64):
                if lanes >> lane & 1:
                    poke64(np.uint64(at), np.uint64(get64(place + 8 * lane)))
                    at += 4 * words
        return
    for i in range(words):
        place, at = _register(wave, register + i), target + 4 * i
        for lane in range(64):
            if lanes >> lane & 1:
                poke32(np.uint64(at), peek32(np.uint64(place + 8 * lane)))
                at += 4 * words


@helper
def _extended(at, size, signed):
    """Return a value of 1, 2 or 4 bytes as a dword."""
    if size >= 4:
        return np.int64(peek32(np.uint64(at)))
    if size == 2:
        value = np.int64(peek16(np.uint64(at)))
        return value | 0xFFFF0000 if signed and value & 0x8000 else value
    value = get8(at)
    return value | 0xFFFFFF00 if signed and value & 0x80 else value


@helper
def deliver(wave, register, size, signed, half, lanes, data, stride):
    """Write the bytes of a load, ``size`` for each lane in a mask, to registers; ``data`` 0: zeros.

    ``stride``: bytes from the data of one lane to those of the next.
    """
    if data and register & 1 == 0 and size & 7 == 0:
        for i in range(0, size >> 2, 2):
            place, at = _register(wave, register + i), data + 4 * i
            if lanes == -1:
                for lane in range(64):
                    put64(place + 8 * lane, np.int64(peek64(np.uint64(at + stride * lane))))
                continue
            for lane in range(64):
                if lanes >> lane & 1:
                    put64(place + 8 * lane, np.int64(peek64(np.uint64(at))))
                    at += stride
        return
    for i in range(max(1, size >> 2)):
        first, at = _register(wave, register + i), data + 4 * i
        if data and size >= 4 and lanes == -1:
            for lane in range(64):
                put32(first + 8 * lane, np.int64(peek32(np.uint64(at + stride * lane))))
            continue
        for lane in range(64):
            if not lanes >> lane & 1:
                continue
            place = first + 8 * lane
            word = _extended(at, size, signed) if data else 0
            if half:
                old = np.int64(peek32(np.uint64(place)))
                word = old & 0xFFFF0000 | word & 0xFFFF if half == 1 else old & 0xFFFF | (word << 16 & 0xFFFF0000)
            put32(place, word)
            at += stride


@helper
def deliver_to_share(operation, access, data):
    size = get64(access + SIZE)
    at = 0
    for lane in range(64):
        if get64(operation + LANES) >> lane & 1:
            place = get64(get64(operation + OTHER_AT) + 8 * at)
            for i in range(max(1, size >> 2)):
                poke32(
                    np.uint64(place + 4 * i),
                    np.uint32(_extended(data + size * at + 4 * i, size, get64(access + SIGNED))),
                )
            at += 1


# -- issuing -----------------------------------------------------------------------------------------------------------


@helper
def issue(state, flight, access, launch, prepared):
    """Issue an access; return the operation, or -1 if Python has to raise the fault.

    ``prepared``: 0, or the address of data for each accessing lane, which Python has gathered: elements of a buffer's
    format, and for a load to the data share the places of all lanes.
    """
    wave, kind, size = get64(flight + RECORD), get64(access + KIND), get64(access + SIZE)
    active = get64(wave + record.EXEC_BYTES)
    takes, at, count = lanes_of(
        wave, get64(access + FORM), get64(access + AREG), get64(access + SREG), get64(access + SOFFSET),
        get64(access + OFFSET), size,
    )  # fmt: skip
    conversion = get64(access + CONVERSION)
    lanes = active
    if count != bit_count(active):
        lanes = np.int64(0)
        for lane in range(64):
            lanes |= np.int64(takes[lane]) << lane
    site = get64(access + SITE)
    add(get64(launch + EXECUTIONS) + 8 * site, 1)
    range_at, step, hint = np.int64(0), np.int64(-1), np.int64(-1)
    if count and kind != ATOMIC and conversion == PLAIN:
        range_at, step = range_of(takes, at, count, size)
    same = kind == LOAD and step >= 0 and (step == 0 or count == 1)
    range_bytes = size if same else count * size
    if (same or step > 0) and get64(state + ws.OUTSIDE) == 0:
        starts, ends, known = get64(launch + STARTS), get64(launch + ENDS), get64(launch + ALLOCATIONS)
        hint = find(starts, ends, known, range_at, range_bytes)
    start, end = np.int64(0), np.int64(0)
    if hint >= 0:
        start, end = get64(get64(launch + STARTS) + 8 * hint), get64(get64(launch + ENDS) + 8 * hint)
        # Of earlier loads of one line, those before a whole load are performed before it, without parts.
        limit = 1 if kind == LOAD else 0
        spans.split_loads(state, flight, range_at - (range_at - start) % ws.LINE, range_at + range_bytes, limit)
    if kind == STORE and hint >= 0:
        whole_lines = (range_at - start | range_bytes) & ws.LINE - 1 == 0 and get64(access + SCOPE) < ws.AGENT
        if not whole_lines or not spans.are_untouched(state, range_at, range_bytes, start):
            hint = -1
    if hint >= 0:
        peers = count * np.int64(peek32(np.uint64(get64(launch + PEERS) + 4 * hint)))
        used = segments = spans.lines_of(range_at, range_bytes, start)
        is_sorted = True
    else:
        segments, used, peers, is_sorted = _cut(state, launch, kind, size, takes, at, same)
    if segments < 0:
        return -1
    outside = active & ~lanes
    if outside and kind != STORE and conversion != TYPED and conversion != TO_SHARE:
        if kind == LOAD:
            deliver(wave, get64(access + REGISTER), size, False, get64(access + HALF), outside, 0, 0)
        elif get64(access + TARGET) >= 0:
            deliver(wave, get64(access + TARGET), size, False, 0, outside, 0, 0)
    instruction, scope = get64(access + INSTRUCTION), get64(access + SCOPE)
    if count == 0:
        return new(state, flight, access, kind, scope, instruction, 1, OPERATION_BYTES)
    add(get64(launch + ACCESS_LANES) + 16 * site, count - peers)
    add(get64(launch + ACCESS_LANES) + 16 * site + 8, peers)
    data = OPERATION_BYTES
    other = data + ((size if same else count * size) + 7 & ~7)
    first = other + (8 * count if conversion == TO_SHARE or get64(access + OPERATION) == native.CMPSWAP else 0)
    parts = first + 8 * segments
    operation = new(state, flight, access, kind, scope, instruction, 0, parts + PART_BYTES * used)
    data, other, first, parts = operation + data, operation + other, operation + first, operation + parts
    put64(operation + LANES, lanes)
    put64(operation + STRIDE, 0 if same else size)
    put64(operation + DATA_AT, data)
    put64(operation + OTHER_AT, other)
    put64(operation + SEGMENTS_AT, first)
    put64(operation + PARTS_AT, parts)
    put64(operation + PARTS, used)
    put64(operation + LEFT, used)
    if hint >= 0:
        put64(operation + WHOLE, (1 << used) - 1)
        put64(operation + RANGE_AT, range_at)
        put64(operation + RANGE_BYTES, range_bytes)
        put64(operation + RANGE_START, start)
        put64(operation + RANGE_END, end)
        if kind == STORE:
            data = spans.new_span(state, operation) + ws.SPAN_DATA
        else:
            add(flight + WHOLE_LOADS, 1)
            return operation
    if conversion == TO_SHARE:
        n = 0
        for lane in range(64):
            if lanes >> lane & 1:
                put64(other + 8 * n, get64(prepared + 8 * lane))
                n += 1
    elif prepared:
        copy(data, prepared, count * size)
    elif kind != LOAD:
        if size >= 4:
            _gather(wave, get64(access + REGISTER), size >> 2, lanes, data)
        else:
            place = _register(wave, get64(access + REGISTER)) + (2 if get64(access + HALF) == 2 else 0)
            n = data
            for lane in range(64):
                if lanes >> lane & 1:
                    for i in range(size):
                        poke8(np.uint64(n + i), np.uint8(get8(place + 8 * lane + i)))
                    n += size
        if kind == ATOMIC and get64(access + OPERATION) == native.CMPSWAP:
            _gather(wave, get64(access + REGISTER) + (size >> 2), size >> 2, lanes, other)
    if hint >= 0:
        return operation
    copy(parts, state + ws.NEW_PARTS, PART_BYTES * used)
    if is_sorted:
        copy(first, state + ws.SEGMENTS, 8 * segments)
    else:
        _sort_segments(state, first, segments, used)
    past = 0
    starts, ends, images = get64(launch + STARTS), get64(launch + ENDS), get64(launch + IMAGES)
    if get64(flight + WHOLE_LOADS):
        last = get64(parts + PART_BYTES * (used - 1) + PART_LINE) + ws.LINE
        spans.split_loads(state, flight, get64(parts + PART_LINE), last, 0)
    for i in range(used):
        part = parts + PART_BYTES * i
        hint, some = get64(part + PART_PAST), get64(part + PART_FIRST)
        image = get64(images + 8 * hint) if images else 0
        line = spans.find_line(
            state, get64(part + PART_LINE), get64(starts + 8 * hint), get64(ends + 8 * hint), image
        )  # fmt: skip
        add(line + ws.PENDING, 1)
        add(line + ws.PENDING_WRITES, kind != LOAD)
        put64(part + PART_LINE, line)
        put64(part + PART_FIRST, past)
        past += some
        put64(part + PART_PAST, past)
    return operation


@helper
def _cut(state, launch, kind, size, takes, at, same):
    """Cut an access into segments and parts, which are written to the state.

    Returns the number of segments, or -1 if a lane's access is bad; the number of parts; that of lanes that access a
    peer's memory; and whether the segments are in the order of the parts, which is that of their addresses. ``same``:
    all lanes have the first one's data.

    A segment is the offset of its data << 16 | bytes << 8 | offset in the line. ``PART_FIRST`` counts the segments of
    a part here, and ``PART_PAST`` is the allocation; a part that has no line yet keeps its address.
    """
    lows, words, parts = state + ws.SEGMENT_LINES, state + ws.SEGMENTS, state + ws.NEW_PARTS
    starts, ends, peer_of = get64(launch + STARTS), get64(launch + ENDS), get64(launch + PEERS)
    # The allocation of the last lane, which is often that of the next.
    hint, start, end, peer = np.int64(-1), np.uint64(1), np.uint64(0), np.int64(0)
    peers, n, used, data, lane, is_sorted, last = np.int64(0), 0, 0, 0, 0, True, np.uint64(0)
    while lane < 64:
        if not takes[lane]:
            lane += 1
            continue
        if at[lane] < start or at[lane] >= end or np.uint64(size) > end - at[lane]:
            hint = find(starts, ends, get64(launch + ALLOCATIONS), np.int64(at[lane]), size)
            if hint < 0:
                return -1, 0, 0, False
            start, end = np.uint64(get64(starts + 8 * hint)), np.uint64(get64(ends + 8 * hint))
            peer = np.int64(peek32(np.uint64(peer_of + 4 * hint)))
        if kind == ATOMIC and at[lane] % np.uint64(size) != 0:
            return -1, 0, 0, False
        address, total = np.int64(at[lane]), size
        lane += 1
        peers += peer
        if same:
            while lane < 64:
                peers += peer & takes[lane]
                lane += 1
        elif kind != ATOMIC:
            # The lanes whose bytes follow those of this one.
            room = np.int64(end) - address - size
            while lane < 64 and takes[lane] and np.int64(at[lane]) == address + total and total <= room:
                total += size
                peers += peer
                lane += 1
        byte = 0
        while byte < total:
            offset = (address + byte - np.int64(start)) & ws.LINE - 1
            length = min(total - byte, ws.LINE - offset)
            low = address + byte - offset
            is_sorted &= last <= np.uint64(low)
            last = np.uint64(low)
            put64(lows + 8 * n, low)
            put64(words + 8 * n, (data + byte) << 16 | length << 8 | offset)
            i = used
            while i > 0 and np.uint64(get64(parts + PART_BYTES * (i - 1) + PART_LINE)) > np.uint64(low):
                i -= 1
            if i == 0 or get64(parts + PART_BYTES * (i - 1) + PART_LINE) != low:
                for k in range(used, i, -1):
                    copy(parts + PART_BYTES * k, parts + PART_BYTES * (k - 1), PART_BYTES)
                put64(parts + PART_BYTES * i + PART_LINE, low)
                put64(parts + PART_BYTES * i + PART_FIRST, 0)
                put64(parts + PART_BYTES * i + PART_PAST, hint)
                put64(parts + PART_BYTES * i + PART_DONE, 0)
                used += 1
            else:
                i -= 1
            add(parts + PART_BYTES * i + PART_FIRST, 1)
            byte += length
            n += 1
        data += total
    return n, used, peers, is_sorted


@helper
def _sort_segments(state, first, count, used):
    """Copy segments, which are in the order of the lanes, to ``first`` in that of the parts' lines; stable."""
    parts, next_of = state + ws.NEW_PARTS, allocate(state, 8 * used)
    past = 0
    for i in range(used):
        put64(next_of + 8 * i, past)
        past += get64(parts + PART_BYTES * i + PART_FIRST)
    for i in range(count):
        line, low, high = np.uint64(get64(state + ws.SEGMENT_LINES + 8 * i)), 0, used - 1
        while low < high:
            middle = (low + high) >> 1
            if np.uint64(get64(parts + PART_BYTES * middle + PART_LINE)) < line:
                low = middle + 1
            else:
                high = middle
        put64(first + 8 * get64(next_of + 8 * low), get64(state + ws.SEGMENTS + 8 * i))
        add(next_of + 8 * low, 1)
    release(state, next_of, 8 * used)
