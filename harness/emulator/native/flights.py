"""Global memory accesses in flight in mode ``weak``: issued, and performed at any time until a wait requires it.

Accesses of one wavefront to different lines are performed in any order, those to the same line in program order.
``native.caches`` decides where a store is then visible, and how old a line a load sees; see it for the structures,
which are in memory at addresses. A *flight* is a wavefront's operations in flight; a *part* of an operation is its
bytes in one line, some of its *segments*, which are bytes of one lane in one line.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from harness.emulator.native import caches as c
from harness.emulator.native import memory as native
from harness.emulator.native import record
from harness.emulator.native.atomics import _fold32, _fold64
from harness.emulator.native.caches import _helper, add, allocate, log, pick, release
from harness.emulator.native.execute import Function
from harness.emulator.native.located import find, lanes_of
from harness.emulator.native.raw import call, clear, copy, get8, get64, put32, put64
from harness.emulator.native.words import peek16, peek32, peek64, poke8, poke32, poke64

# Of an access: fields as in ``operations.access``, the first vector register that it writes and their number, how its
# data are converted.
(KIND, SIZE, SCOPE, SITE, INSTRUCTION, FORM, AREG, SREG, SOFFSET, OFFSET) = range(0, 80, 8)
(REGISTER, TARGET, OPERATION, SIGNED, HALF, FIRST_WRITTEN, WRITTEN, CONVERSION) = range(80, 144, 8)
ACCESS_FIELDS = 18
LOAD, STORE, ATOMIC, WRITE_BACK, INVALIDATE = range(5)
"""Kinds of operations."""
PLAIN, TYPED, TO_SHARE, NUMPY_FOLD = range(4)
"""Conversions. TYPED: Python converts elements of a buffer's format. TO_SHARE: a load to the data share. NUMPY_FOLD:
Python computes the new value of an atomic."""

# A flight, by which also the wavefront is known: its place among the flights, compute unit, record, operations, the
# next flight of the unit, launch << 32 | wavefront.
(ORDER, OF_UNIT, RECORD, FIRST, LAST, COUNT, NEXT_FLIGHT, WAVEFRONT) = range(0, 64, 8)
FLIGHT_BYTES = 64

# An operation: its number, flight, access, kind, scope, instruction, accessing lanes as a mask; whether it has been
# performed, parts that have not, parts, the next operation of the flight; addresses of the segments, the parts, the
# data, the places in the data share or a compare-and-swap's values; bytes.
(NUMBER, OF_FLIGHT, ACCESS, OF_KIND, OF_SCOPE, OF_INSTRUCTION, LANES, DONE, LEFT, PARTS) = range(0, 80, 8)
(NEXT_OPERATION, SEGMENTS_AT, PARTS_AT, DATA_AT, OTHER_AT, BYTES) = range(80, 128, 8)
OPERATION_BYTES = 128

# A part: its line, first segment and the one after its last, whether it has been performed.
(PART_LINE, PART_FIRST, PART_PAST, PART_DONE) = range(0, 32, 8)
PART_BYTES = 32

# A launch: addresses of its table of allocations, of the copies of each, number of allocations, counters of access
# sites (executions; local and peer lanes).
(STARTS, ENDS, PEERS, IMAGES, ALLOCATIONS, EXECUTIONS, ACCESS_LANES) = range(0, 56, 8)
LAUNCH_FIELDS = 7

# Calls of ``run``.
(NEW_UNIT, NEW_FLIGHT, ISSUE, FENCE, PRIVATE, COUNTED, WAIT, LINGERS, MOVE, FLUSH, ANSWERED, STORES_MOVING) = range(12)
_ARGUMENTS_BYTES = 32
_COMPLETE, _FENCE, _PERFORM = range(3)


# -- the operations of a wavefront -------------------------------------------------------------------------------------


@_helper
def _new(state, flight, access, kind, scope, instruction, done, size):
    """Append an operation to a flight; ``size``: bytes of the structure."""
    operation = allocate(state, size)
    clear(operation, OPERATION_BYTES)
    add(state + c.ISSUED, 1)
    put64(operation + NUMBER, get64(state + c.ISSUED))
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


@_helper
def _place(state, operation):
    """Return the index of an operation, or for it, among those that are not performed."""
    order, number = get64(get64(operation + OF_FLIGHT) + ORDER), get64(operation + NUMBER)
    moving, low, high = get64(state + c.MOVING), 0, get64(state + c.MOVES)
    while low < high:
        middle = (low + high) >> 1
        other = get64(moving + 8 * middle)
        its = get64(get64(other + OF_FLIGHT) + ORDER)
        if its < order or (its == order and get64(other + NUMBER) < number):
            low = middle + 1
        else:
            high = middle
    return low


@_helper
def _start_moving(state, operation):
    count = get64(state + c.MOVES)
    if count == get64(state + c.MOVES_CAPACITY):
        call(get64(state + c.MORE), c.MOVING_TABLE, count)
    at = _place(state, operation)
    moving = get64(state + c.MOVING)
    for i in range(count, at, -1):
        put64(moving + 8 * i, get64(moving + 8 * i - 8))
    put64(moving + 8 * at, operation)
    put64(state + c.MOVES, count + 1)


@_helper
def _finish(state, operation):
    """Mark an operation as performed."""
    put64(operation + DONE, 1)
    moving, count = get64(state + c.MOVING), get64(state + c.MOVES)
    for i in range(_place(state, operation), count - 1):
        put64(moving + 8 * i, get64(moving + 8 * i + 8))
    put64(state + c.MOVES, count - 1)


@_helper
def _forget(state, flight, count):
    """Remove the oldest operations of a flight, which have been performed."""
    for _ in range(count):
        operation = get64(flight + FIRST)
        put64(flight + FIRST, get64(operation + NEXT_OPERATION))
        release(state, operation, get64(operation + BYTES))
    if get64(flight + FIRST) == 0:
        put64(flight + LAST, 0)
    add(flight + COUNT, -count)


# -- registers ---------------------------------------------------------------------------------------------------------


@_helper
def _register(wave, register):
    """Return the address of a vector register's first lane; the next lane is 8 bytes further."""
    return wave + record.VECTORS + (register >> 1) * record.PAIR_BYTES + 4 * (register & 1)


@_helper
def _gather(wave, register, words, lanes, target):
    """Copy consecutive registers of the lanes in a mask to ``target``, lane after lane."""
    at = target
    for lane in range(64):
        if lanes >> lane & 1:
            for i in range(words):
                poke32(np.uint64(at), peek32(np.uint64(_register(wave, register + i) + 8 * lane)))
                at += 4


@_helper
def _extended(at, size, signed):
    """Return a value of 1, 2 or 4 bytes as a dword."""
    if size >= 4:
        return np.int64(peek32(np.uint64(at)))
    if size == 2:
        value = np.int64(peek16(np.uint64(at)))
        return value | 0xFFFF0000 if signed and value & 0x8000 else value
    value = get8(at)
    return value | 0xFFFFFF00 if signed and value & 0x80 else value


@_helper
def _deliver(wave, register, size, signed, half, lanes, data):
    """Write the bytes of a load, ``size`` for each lane in a mask, to registers; ``data`` 0: zeros."""
    at = data
    for lane in range(64):
        if not lanes >> lane & 1:
            continue
        for i in range(max(1, size >> 2)):
            place = _register(wave, register + i) + 8 * lane
            word = _extended(at + 4 * i, size, signed) if data else 0
            if half:
                old = np.int64(peek32(np.uint64(place)))
                word = old & 0xFFFF0000 | word & 0xFFFF if half == 1 else old & 0xFFFF | (word << 16 & 0xFFFF0000)
            put32(place, word)
        at += size


@_helper
def _deliver_to_share(operation, access, data):
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


@_helper
def _allocation(launch, address, size):
    """Return the index of the allocation that holds the bytes, or -1."""
    return find(get64(launch + STARTS), get64(launch + ENDS), get64(launch + ALLOCATIONS), address, size)


@_helper
def _issue(state, flight, access, launch, prepared):
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
    lanes = 0
    for lane in range(64):
        lanes |= np.int64(takes[lane]) << lane
    site = get64(access + SITE)
    add(get64(launch + EXECUTIONS) + 8 * site, 1)
    peers, segments, hint = 0, 0, 0
    starts, ends = get64(launch + STARTS), get64(launch + ENDS)
    for lane in range(64):
        if not takes[lane]:
            continue
        address = np.int64(at[lane])
        hint = _allocation(launch, address, size)
        if hint < 0 or (kind == ATOMIC and at[lane] % np.uint64(size) != 0):
            return -1
        peers += np.int64(peek32(np.uint64(get64(launch + PEERS) + 4 * hint)))
        segments += 1 + ((address - get64(starts + 8 * hint)) % c.LINE + size > c.LINE)
    outside = active & ~lanes
    if outside and kind != STORE and conversion != TYPED and conversion != TO_SHARE:
        if kind == LOAD:
            _deliver(wave, get64(access + REGISTER), size, False, get64(access + HALF), outside, 0)
        elif get64(access + TARGET) >= 0:
            _deliver(wave, get64(access + TARGET), size, False, 0, outside, 0)
    instruction, scope = get64(access + INSTRUCTION), get64(access + SCOPE)
    if count == 0:
        return _new(state, flight, access, kind, scope, instruction, 1, OPERATION_BYTES)
    add(get64(launch + ACCESS_LANES) + 16 * site, count - peers)
    add(get64(launch + ACCESS_LANES) + 16 * site + 8, peers)
    data = OPERATION_BYTES
    other = data + (count * size + 7 & ~7)
    first = other + (8 * count if conversion == TO_SHARE or get64(access + OPERATION) == native.CMPSWAP else 0)
    parts = first + 8 * segments
    operation = _new(state, flight, access, kind, scope, instruction, 0, parts + PART_BYTES * segments)
    data, other, first, parts = operation + data, operation + other, operation + first, operation + parts
    put64(operation + LANES, lanes)
    put64(operation + DATA_AT, data)
    put64(operation + OTHER_AT, other)
    put64(operation + SEGMENTS_AT, first)
    put64(operation + PARTS_AT, parts)
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
    # The segments by line, each line's in the order of the lanes: index of the lane << 32 | first byte << 24 | bytes
    # << 16 | offset in the line; the line is known to the part. Lines are sorted by address.
    n, lane_index, used = 0, 0, 0
    for lane in range(64):
        if not takes[lane]:
            continue
        address = np.int64(at[lane])
        hint = _allocation(launch, address, size)
        start, end = get64(starts + 8 * hint), get64(ends + 8 * hint)
        byte = 0
        while byte < size:
            offset = (address + byte - start) % c.LINE
            length = min(size - byte, c.LINE - offset)
            low = address + byte - offset
            put64(first + 8 * n, lane_index << 32 | byte << 24 | length << 16 | offset)
            # ``PART_PAST`` counts segments; a part that has no line yet keeps its address.
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
        lane_index += 1
    put64(operation + PARTS, used)
    put64(operation + LEFT, used)
    _sort_segments(at, takes, size, launch, first, n, parts, used)
    past = 0
    for i in range(used):
        part = parts + PART_BYTES * i
        hint, some = get64(part + PART_PAST), get64(part + PART_FIRST)
        start, end = get64(starts + 8 * hint), get64(ends + 8 * hint)
        image = get64(launch + IMAGES)
        image = get64(image + 8 * hint) if image else 0
        put64(part + PART_LINE, c.find_line(state, get64(part + PART_LINE), start, end, image))
        put64(part + PART_FIRST, past)
        past += some
        put64(part + PART_PAST, past)
    return operation


@_helper
def _sort_segments(at, takes, size, launch, first, count, parts, used):
    """Sort segments, which are in the order of the lanes, by the parts' lines; stable."""
    lows = np.empty(count, np.int64)
    starts = get64(launch + STARTS)
    n, sorted_ = 0, True
    for lane in range(64):
        if not takes[lane]:
            continue
        address = np.int64(at[lane])
        start = get64(starts + 8 * _allocation(launch, address, size))
        byte = 0
        while byte < size:
            offset = (address + byte - start) % c.LINE
            lows[n] = address + byte - offset
            sorted_ &= n == 0 or np.uint64(lows[n - 1]) <= np.uint64(lows[n])
            byte += min(size - byte, c.LINE - offset)
            n += 1
    if sorted_:
        return
    segments = np.empty(count, np.int64)
    for i in range(count):
        segments[i] = get64(first + 8 * i)
    next_of = np.empty(used, np.int64)
    past = 0
    for i in range(used):
        next_of[i] = past
        past += get64(parts + PART_BYTES * i + PART_FIRST)
    for i in range(count):
        low, high = 0, used - 1
        while low < high:
            middle = (low + high) >> 1
            if np.uint64(get64(parts + PART_BYTES * middle + PART_LINE)) < np.uint64(lows[i]):
                low = middle + 1
            else:
                high = middle
        put64(first + 8 * next_of[low], segments[i])
        next_of[low] += 1


# -- performing --------------------------------------------------------------------------------------------------------


@_helper
def _writes_same_registers(a, b):
    first, second = get64(a + ACCESS), get64(b + ACCESS)
    if first == 0 or second == 0:
        return False
    low, high = get64(first + FIRST_WRITTEN), get64(second + FIRST_WRITTEN)
    return low < high + get64(second + WRITTEN) and high < low + get64(first + WRITTEN)


@_helper
def _act(state, job, operation, part):
    """Call ``_perform``."""
    arguments = allocate(state, _ARGUMENTS_BYTES)
    put64(arguments, job)
    put64(arguments + 8, operation)
    put64(arguments + 16, part)
    call(get64(state + c.ACT), state, arguments)
    release(state, arguments, _ARGUMENTS_BYTES)
    return 0


def _perform(state, arguments):
    """Complete an operation, perform a fence, or perform a part of an operation, after its predecessors.

    Predecessors are earlier accesses of the compute unit to the same line, an earlier invalidate of the wavefront, and
    an earlier load of it into the same registers: loads return in order (AMD "CDNA3 ISA", vmcnt).
    """
    job, operation, part = get64(arguments), get64(arguments + 8), get64(arguments + 16)
    kind, flight = get64(operation + OF_KIND), get64(operation + OF_FLIGHT)
    unit, number = get64(flight + OF_UNIT), get64(operation + NUMBER)
    if job == _COMPLETE:
        if kind >= WRITE_BACK:
            if get64(operation + DONE) == 0:
                _act(state, _FENCE, operation, 0)
            return 0
        for i in range(get64(operation + PARTS)):
            each = get64(operation + PARTS_AT) + PART_BYTES * i
            if get64(each + PART_DONE) == 0:
                _act(state, _PERFORM, operation, each)
        return 0
    if job == _FENCE:
        scope = get64(operation + OF_SCOPE)
        _finish(state, operation)
        origin, instruction = get64(flight + WAVEFRONT), get64(operation + OF_INSTRUCTION)
        if kind == INVALIDATE:
            c.invalidate(state, unit, scope)
            log(state, c.INVALIDATED, 0, origin, instruction)
            return 0
        sibling = get64(unit + c.FIRST_FLIGHT)
        while sibling:
            if sibling == flight or get64(state + c.COVERS):
                other = get64(sibling + FIRST)
                while other and get64(other + NUMBER) < number:
                    if get64(other + OF_KIND) != LOAD:
                        _act(state, _COMPLETE, other, 0)
                    other = get64(other + NEXT_OPERATION)
            sibling = get64(sibling + NEXT_FLIGHT)
        written = c.write_back(state, unit, scope) if scope >= c.AGENT else 0
        log(state, c.WRITTEN_BACK | written << 8, 0, origin, instruction)
        return 0
    line = get64(part + PART_LINE)
    sibling = get64(unit + c.FIRST_FLIGHT)
    while sibling:
        other = get64(sibling + FIRST)
        while other and get64(other + NUMBER) < number:
            if get64(other + DONE) == 0:
                its = get64(other + OF_KIND)
                if sibling == flight and its == INVALIDATE and kind == LOAD:
                    _act(state, _FENCE, other, 0)
                elif sibling == flight and _writes_same_registers(operation, other):
                    _act(state, _COMPLETE, other, 0)
                elif sibling == flight or its != LOAD:
                    for i in range(get64(other + PARTS)):
                        each = get64(other + PARTS_AT) + PART_BYTES * i
                        if get64(each + PART_LINE) == line and get64(each + PART_DONE) == 0:
                            _act(state, _PERFORM, other, each)
            other = get64(other + NEXT_OPERATION)
        sibling = get64(sibling + NEXT_FLIGHT)
    if get64(part + PART_DONE):
        return 0  # performed as a predecessor of another part
    _access(state, operation, part)
    put64(part + PART_DONE, 1)
    add(operation + LEFT, -1)
    if get64(operation + LEFT) == 0:
        _finish(state, operation)
        _return_data(state, operation)
    return 0


@_helper
def _access(state, operation, part):
    flight, line, access = get64(operation + OF_FLIGHT), get64(part + PART_LINE), get64(operation + ACCESS)
    unit, kind, scope = get64(flight + OF_UNIT), get64(operation + OF_KIND), get64(operation + OF_SCOPE)
    origin, instruction = get64(flight + WAVEFRONT), get64(operation + OF_INSTRUCTION)
    size, data, segments = get64(access + SIZE), get64(operation + DATA_AT), get64(operation + SEGMENTS_AT)
    address = get64(line + c.ADDRESS)
    if kind == ATOMIC:
        for i in range(get64(part + PART_FIRST), get64(part + PART_PAST)):
            segment = get64(segments + 8 * i)
            _exchange(state, operation, access, unit, line, segment >> 32, segment & 0xFFFF, size, scope)
        log(state, c.EXCHANGES | scope << 8, address, origin, instruction)
        return
    hidden = 0
    if kind == LOAD:
        hidden = c.load_line(state, unit, line, scope)
    low, high = 0, 0
    for i in range(get64(part + PART_FIRST), get64(part + PART_PAST)):
        segment = get64(segments + 8 * i)
        offset, length = segment & 0xFFFF, segment >> 16 & 0xFF
        at = data + size * (segment >> 32) + (segment >> 24 & 0xFF)
        if kind == LOAD:
            _move(at, state + c.SEEN_LINE + offset, length)
        else:
            _move(state + c.NEW_DATA + offset, at, length)
            some_low, some_high = c.mask_of(offset, length)
            low |= some_low
            high |= some_high
    if kind == STORE:
        c.store_line(state, unit, line, low, high, state + c.NEW_DATA, scope, origin, instruction)
        log(state, c.LANDS, address, origin, instruction)
    elif hidden:
        log(state, c.READS_OLD, address, origin, instruction)


@_helper
def _move(target, source, length):
    """Copy up to 16 bytes."""
    i = 0
    while length - i >= 8:
        poke64(np.uint64(target + i), peek64(np.uint64(source + i)))
        i += 8
    if length - i >= 4:
        poke32(np.uint64(target + i), peek32(np.uint64(source + i)))
        i += 4
    while i < length:
        poke8(np.uint64(target + i), np.uint8(get8(source + i)))
        i += 1


@_helper
def _exchange(state, operation, access, unit, line, index, offset, size, scope):
    """Perform an atomic for one lane; its data is then the old value."""
    place, function = get64(operation + DATA_AT) + size * index, get64(access + OPERATION)
    origin, instruction = get64(get64(operation + OF_FLIGHT) + WAVEFRONT), get64(operation + OF_INSTRUCTION)
    value = _word(place, size)
    old = 0
    while True:
        old = c.read_for_exchange(state, unit, line, offset, size, scope)
        if function == native.CMPSWAP and old != _word(get64(operation + OTHER_AT) + size * index, size):
            break
        if function == native.CMPSWAP or function == native.SWAP:
            new = value
        elif get64(access + CONVERSION) == NUMPY_FOLD:
            put64(state + c.NEW_DATA, old)
            new = call(get64(state + c.FOLD), access, value)
        elif size == 4:
            new = np.int64(_fold32(function, np.uint32(old & 0xFFFFFFFF), np.uint32(value & 0xFFFFFFFF)))
        else:
            new = np.int64(_fold64(function, np.uint64(old), np.uint64(value)))
        if c.write_for_exchange(state, unit, line, offset, size, scope, old, new, origin, instruction):
            break
    if size == 4:
        poke32(np.uint64(place), np.uint32(old & 0xFFFFFFFF))
    else:
        put64(place, old)


@_helper
def _word(address, size):
    return np.int64(peek32(np.uint64(address))) if size == 4 else np.int64(peek64(np.uint64(address)))


@_helper
def _return_data(state, operation):
    """Write what an operation has loaded to registers, or to the data share."""
    kind, access, data = get64(operation + OF_KIND), get64(operation + ACCESS), get64(operation + DATA_AT)
    wave, lanes, size = get64(get64(operation + OF_FLIGHT) + RECORD), get64(operation + LANES), get64(access + SIZE)
    conversion = get64(access + CONVERSION)
    if conversion == TO_SHARE:
        _deliver_to_share(operation, access, data)
    elif kind == LOAD and conversion == TYPED:
        call(get64(state + c.DELIVER), operation, data)
    elif kind == LOAD:
        _deliver(wave, get64(access + REGISTER), size, get64(access + SIGNED), get64(access + HALF), lanes, data)
    elif kind == ATOMIC and get64(access + TARGET) >= 0:
        _deliver(wave, get64(access + TARGET), size, False, 0, lanes, data)


# -- calls of a wavefront's instructions, and of the scheduler ---------------------------------------------------------


@_helper
def _wait(state, flight, count):
    """Perform one of the ``count`` oldest operations of a wavefront; return how many of them were not performed."""
    waiting = 0
    operation = get64(flight + FIRST)
    for _ in range(count):
        waiting += 1 - get64(operation + DONE)
        operation = get64(operation + NEXT_OPERATION)
    if waiting:
        chosen = pick(state, waiting, c.COMPLETES)
        operation = get64(flight + FIRST)
        while True:
            if get64(operation + DONE) == 0:
                if chosen == 0:
                    break
                chosen -= 1
            operation = get64(operation + NEXT_OPERATION)
        _act(state, _COMPLETE, operation, 0)
    return waiting


@_helper
def _drift(state, local, ending):
    """Let memory change without an instruction: perform an access, or evict a line.

    ``local``: how many LDS accesses and scalar loads Python can perform, ``ending``: whether a kernel's end is due.
    Returns 0, -1 if the kernel's end is to be performed, or n + 1 for the n-th local access.
    """
    drift = get64(state + c.DRIFT)
    if drift == 0 or pick(state, drift, c.MOVES_NOW) == 0:
        return 0
    moves = get64(state + c.MOVES)
    evictable = get64(state + c.DIRTY) if get64(state + c.EVICTS) else 0
    possible = moves + evictable + local + ending
    if possible == 0:
        return 0
    chosen = pick(state, possible, c.WHAT_MOVES)
    if chosen == moves + evictable + local:
        return -1
    if chosen >= moves + evictable:
        return chosen - moves - evictable + 1
    if chosen >= moves:
        return c.evict(state, chosen - moves)
    operation = get64(get64(state + c.MOVING) + 8 * chosen)
    if get64(operation + LEFT) == 0:
        return _act(state, _COMPLETE, operation, 0)
    n = pick(state, get64(operation + LEFT), c.WHICH_LINE)
    part = get64(operation + PARTS_AT)
    while True:
        if get64(part + PART_DONE) == 0:
            if n == 0:
                return _act(state, _PERFORM, operation, part)
            n -= 1
        part += PART_BYTES


@_helper
def _private(state, flight, access):
    """Complete the operations that write the registers which an access to the private segment writes."""
    operation = get64(flight + FIRST)
    while operation:
        other = get64(operation + ACCESS)
        if get64(operation + DONE) == 0 and other:
            low, high = get64(other + FIRST_WRITTEN), get64(access + FIRST_WRITTEN)
            if low < high + get64(access + WRITTEN) and high < low + get64(other + WRITTEN):
                _act(state, _COMPLETE, operation, 0)
        operation = get64(operation + NEXT_OPERATION)
    return 0


def _run(state, task, a, b, d, e):
    """Perform a call; ``a`` to ``e`` are its arguments."""
    if task == MOVE:
        return _drift(state, a, b)
    if task == ISSUE:
        return _issue(state, a, b, d, e)
    if task == WAIT:
        count = max(0, get64(a + COUNT) - b)
        waiting = _wait(state, a, count)
        if waiting <= 1:
            _forget(state, a, count)
        return waiting
    if task == LINGERS:
        waiting = _wait(state, a, get64(a + COUNT))
        if waiting == 0:
            _forget(state, a, get64(a + COUNT))
        return waiting
    if task == FENCE:
        operation = _new(state, a, 0, b, d, e, 0, OPERATION_BYTES)
        if b == INVALIDATE and get64(state + c.COVERS):
            _act(state, _FENCE, operation, 0)
        return 0
    if task == PRIVATE:
        return _private(state, a, b)
    if task == COUNTED:
        _new(state, a, 0, b, c.WAVE, d, 1, OPERATION_BYTES)
        return 0
    if task == FLUSH:
        return c.flush(state, a)
    if task == ANSWERED:
        return c.answered(state, a, b)
    if task == NEW_UNIT:  # of agent a, on XCD b, which began at d
        unit = allocate(state, c.UNIT_BYTES)
        clear(unit, c.UNIT_BYTES)
        put64(unit + c.OF_AGENT, a)
        put64(unit + c.XCD, b)
        for level in range(4):
            put64(unit + c.FLOORS + 8 * level, d)
        return unit
    if task == NEW_FLIGHT:  # of unit a, with record b, wavefront d
        flight = allocate(state, FLIGHT_BYTES)
        clear(flight, FLIGHT_BYTES)
        put64(flight + ORDER, get64(state + c.FLIGHTS))
        add(state + c.FLIGHTS, 1)
        put64(flight + OF_UNIT, a)
        put64(flight + RECORD, b)
        put64(flight + WAVEFRONT, d)
        last = get64(a + c.LAST_FLIGHT)
        if last:
            put64(last + NEXT_FLIGHT, flight)
        else:
            put64(a + c.FIRST_FLIGHT, flight)
        put64(a + c.LAST_FLIGHT, flight)
        return flight
    if task == STORES_MOVING:
        stores = 0
        for i in range(get64(state + c.MOVES)):
            kind = get64(get64(get64(state + c.MOVING) + 8 * i) + OF_KIND)
            stores += kind != LOAD and kind != ATOMIC
        return stores
    return -1


perform = Function(_perform)
run: Any = njit(cache=True)(_run)
_I = types.int64
_SIGNATURES: dict[Any, tuple[Any, ...]] = {run: (_I,) * 6}


def prepare() -> None:
    """Compile ``run``, or load it from the cache."""
    native.compile_now(_SIGNATURES)
