"""Global memory accesses in flight in mode ``weak``: issued, and performed at any time until a wait requires it.

Accesses of one wavefront to different lines are performed in any order, those to the same line in program order.
``native.caches`` decides where a store is then visible, and how old a line a load sees; ``weak_state`` describes the
structures. A *flight* is a wavefront's operations in flight; a *part* of an operation is its
bytes in one line, some of its *segments*, which are successive bytes of successive lanes in one line.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from harness.emulator import compilation
from harness.emulator.native import caches, queues, spans
from harness.emulator.native import memory as native
from harness.emulator.native import weak_state as ws
from harness.emulator.native.atomics import _fold32, _fold64
from harness.emulator.native.execute import Function
from harness.emulator.native.flight_state import (
    ACCESS,
    ATOMIC,
    COUNT,
    DATA_AT,
    DONE,
    FIRST,
    FLIGHT_BYTES,
    INVALIDATE,
    LANES,
    LEFT,
    LOAD,
    NEXT_FLIGHT,
    NEXT_OPERATION,
    NUMBER,
    OF_FLIGHT,
    OF_INSTRUCTION,
    OF_KIND,
    OF_SCOPE,
    OF_UNIT,
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
    RANGE_START,
    RECORD,
    SEGMENTS_AT,
    STORE,
    STRIDE,
    WAVEFRONT,
    WHOLE,
    WHOLE_LOADS,
    WRITE_BACK,
)  # fmt: skip
from harness.emulator.native.issuing import (
    ANSWERED,
    APPEND,
    ARGUMENTS_BYTES,
    COMPLETE,
    CONVERSION,
    COUNTED,
    DROP,
    FENCE,
    FIRST_WRITTEN,
    FLUSH,
    HALF,
    ISSUE,
    LINGERS,
    MOVE,
    MOVE_NOW,
    NEW_FLIGHT,
    NEW_UNIT,
    NUMPY_FOLD,
    OPERATION,
    PASS_FENCE,
    PERFORM,
    PERFORM_LINE,
    PRIVATE,
    REGISTER,
    SETTLE,
    SIGNED,
    SIZE,
    STORES_MOVING,
    TARGET,
    TO_SHARE,
    TYPED,
    WAIT,
    WRITTEN,
    deliver,
    deliver_to_share,
    finish,
    forget,
    issue,
    new,
)  # fmt: skip
from harness.emulator.native.raw import call, clear, copy, get8, get64, put64
from harness.emulator.native.weak_state import add, allocate, helper, log, pick, release
from harness.emulator.native.words import peek32, peek64, poke8, poke32, poke64


@helper
def _writes_same_registers(a, b):
    first, second = get64(a + ACCESS), get64(b + ACCESS)
    if first == 0 or second == 0:
        return False
    low, high = get64(first + FIRST_WRITTEN), get64(second + FIRST_WRITTEN)
    return low < high + get64(second + WRITTEN) and high < low + get64(first + WRITTEN)


@helper
def _act(state, job, operation, part):
    """Call ``_perform``."""
    arguments = allocate(state, ARGUMENTS_BYTES)
    put64(arguments, job)
    put64(arguments + 8, operation)
    put64(arguments + 16, part)
    call(get64(state + ws.ACT), state, arguments)
    release(state, arguments, ARGUMENTS_BYTES)
    return 0


def _perform(state, arguments):
    """Complete an operation, perform a fence, or perform a part of an operation, after its predecessors.

    Predecessors are earlier accesses of the compute unit to the same line, an earlier invalidate of the wavefront, and
    an earlier load of it into the same registers: loads return in order (AMD "CDNA3 ISA", vmcnt).
    """
    # Of PERFORM_LINE, the line's number in the operation, which is whole.
    job, operation, part = get64(arguments), get64(arguments + 8), get64(arguments + 16)
    kind = get64(operation + OF_KIND)
    if job == COMPLETE and kind >= WRITE_BACK:
        if get64(operation + DONE):
            return 0
        job = PASS_FENCE
    if job == PASS_FENCE:
        _pass_fence(state, operation)
    elif job == PERFORM:
        _perform_predecessors(state, operation)
        _perform_part(state, operation, part)
    elif job == PERFORM_LINE:
        _perform_predecessors(state, operation)
        _perform_line(state, operation, part)
    else:
        _perform_predecessors(state, operation)
        if get64(operation + WHOLE) and _perform_whole(state, operation):
            return 0
        for i in range(get64(operation + PARTS)):
            each = get64(operation + PARTS_AT) + PART_BYTES * i
            if get64(each + PART_DONE) == 0:
                _perform_part(state, operation, each)
    return 0


@helper
def _pass_fence(state, operation):
    kind, flight = get64(operation + OF_KIND), get64(operation + OF_FLIGHT)
    unit, scope, number = get64(flight + OF_UNIT), get64(operation + OF_SCOPE), get64(operation + NUMBER)
    finish(state, operation)
    origin, instruction = get64(flight + WAVEFRONT), get64(operation + OF_INSTRUCTION)
    if kind == INVALIDATE:
        caches.invalidate(state, unit, scope)
        log(state, ws.INVALIDATED, 0, origin, instruction)
        return
    sibling = get64(unit + ws.FIRST_FLIGHT)
    while sibling:
        if sibling == flight or get64(state + ws.COVERS):
            other = get64(sibling + FIRST)
            while other and get64(other + NUMBER) < number:
                if get64(other + OF_KIND) != LOAD and get64(other + DONE) == 0:
                    _act(state, COMPLETE, other, 0)
                other = get64(other + NEXT_OPERATION)
        sibling = get64(sibling + NEXT_FLIGHT)
    written = caches.write_back(state, unit, scope) if scope >= ws.AGENT else 0
    log(state, ws.WRITTEN_BACK | written << 8, 0, origin, instruction)


@helper
def _perform_predecessors(state, operation):
    """Perform the wavefront's operations that come before all parts of one of its accesses."""
    flight, number = get64(operation + OF_FLIGHT), get64(operation + NUMBER)
    kind, other = get64(operation + OF_KIND), get64(flight + FIRST)
    while other and get64(other + NUMBER) < number:
        if get64(other + DONE) == 0:
            if kind == LOAD and get64(other + OF_KIND) == INVALIDATE:
                _act(state, PASS_FENCE, other, 0)
            elif _writes_same_registers(operation, other):
                _act(state, COMPLETE, other, 0)
        other = get64(other + NEXT_OPERATION)


@helper
def _perform_whole(state, operation):
    """Perform an access to lines that nothing else concerns, without parts; return False if it has parts now."""
    if get64(operation + OF_KIND) != LOAD:
        spans.land(state, operation)
        finish(state, operation)
        return True
    if get64(operation + LEFT) < get64(operation + PARTS):
        for i in range(get64(operation + PARTS)):
            _perform_line(state, operation, i)
        return True
    address, size = get64(operation + RANGE_AT), get64(operation + RANGE_BYTES)
    if not spans.are_untouched(state, address, size, get64(operation + RANGE_START)):
        spans.split_load(state, operation)
        return False
    _perform_earlier_whole(state, operation, address, size)
    put64(operation + DATA_AT, address)
    put64(operation + LEFT, 0)
    _end_whole_load(state, operation)
    return True


@helper
def _perform_earlier_whole(state, operation, address, size):
    """Perform the wavefront's earlier whole loads of the lines of some bytes, which each have one line."""
    flight = get64(operation + OF_FLIGHT)
    if get64(flight + WHOLE_LOADS) < 2:
        return
    low = address - (address - get64(operation + RANGE_START)) % ws.LINE
    other = get64(flight + FIRST)
    while other != operation:
        if spans.is_whole_load(other, low, address + size):
            _act(state, COMPLETE, other, 0)
        other = get64(other + NEXT_OPERATION)


@helper
def _end_whole_load(state, operation):
    put64(operation + WHOLE, 0)
    add(get64(operation + OF_FLIGHT) + WHOLE_LOADS, -1)
    finish(state, operation)
    _return_data(state, operation)


@helper
def _perform_line(state, operation, i):
    """Perform the part of an access that is in its line ``i``, if that has not been performed."""
    if get64(operation + DONE):
        return
    if get64(operation + WHOLE) == 0:
        part = get64(operation + PARTS_AT) + PART_BYTES * i
        if get64(part + PART_DONE) == 0:
            _perform_part(state, operation, part)
        return
    if get64(operation + WHOLE) >> i & 1 == 0:
        return
    if get64(operation + OF_KIND) == LOAD:
        byte, size = spans.bytes_of(operation, i)
        _perform_earlier_whole(state, operation, get64(operation + RANGE_AT) + byte, size)
        if not spans.read_line(state, operation, i):
            spans.split_load(state, operation)
            _perform_part(state, operation, get64(operation + PARTS_AT) + PART_BYTES * i)
            return
        add(operation + LEFT, -1)
        if get64(operation + LEFT) == 0:
            _end_whole_load(state, operation)
        return
    flight, instruction = get64(operation + OF_FLIGHT), get64(operation + OF_INSTRUCTION)
    unit, scope, origin = get64(flight + OF_UNIT), get64(operation + OF_SCOPE), get64(flight + WAVEFRONT)
    line, data = spans.peel(state, operation, i)
    caches.store_line(state, unit, line, -1, -1, data, scope, origin, instruction)
    log(state, ws.LANDS, get64(line + ws.ADDRESS), origin, instruction)
    add(operation + LEFT, -1)
    if get64(operation + LEFT) == 0:
        finish(state, operation)


@helper
def _perform_part(state, operation, part):
    line, write = get64(part + PART_LINE), get64(operation + OF_KIND) != LOAD
    if get64(line + ws.PENDING) > 1:
        _perform_earlier(state, operation, line, get64(line + ws.PENDING_WRITES) > write)
    if get64(part + PART_DONE):
        return  # performed as a predecessor of another part
    _access(state, operation, part)
    put64(part + PART_DONE, 1)
    add(line + ws.PENDING, -1)
    add(line + ws.PENDING_WRITES, -write)
    add(operation + LEFT, -1)
    if get64(operation + LEFT) == 0:
        finish(state, operation)
        _return_data(state, operation)


@helper
def _perform_earlier(state, operation, line, of_siblings):
    """Perform the wavefront's earlier accesses to a line, and with ``of_siblings`` those of its siblings but loads."""
    flight, number = get64(operation + OF_FLIGHT), get64(operation + NUMBER)
    sibling = get64(get64(flight + OF_UNIT) + ws.FIRST_FLIGHT) if of_siblings else flight
    while sibling:
        other = get64(sibling + FIRST)
        while other and get64(other + NUMBER) < number:
            if get64(other + DONE) == 0 and (sibling == flight or get64(other + OF_KIND) != LOAD):
                for i in range(get64(other + PARTS)):
                    each = get64(other + PARTS_AT) + PART_BYTES * i
                    if get64(each + PART_LINE) == line and get64(each + PART_DONE) == 0:
                        _act(state, PERFORM, other, each)
            other = get64(other + NEXT_OPERATION)
        sibling = get64(sibling + NEXT_FLIGHT) if of_siblings else 0


@helper
def _access(state, operation, part):
    flight, line, access = get64(operation + OF_FLIGHT), get64(part + PART_LINE), get64(operation + ACCESS)
    unit, kind, scope = get64(flight + OF_UNIT), get64(operation + OF_KIND), get64(operation + OF_SCOPE)
    origin, instruction = get64(flight + WAVEFRONT), get64(operation + OF_INSTRUCTION)
    size, data, segments = get64(access + SIZE), get64(operation + DATA_AT), get64(operation + SEGMENTS_AT)
    address = get64(line + ws.ADDRESS)
    if kind == ATOMIC:
        for i in range(get64(part + PART_FIRST), get64(part + PART_PAST)):
            segment = get64(segments + 8 * i)
            _exchange(state, operation, access, unit, line, (segment >> 16) // size, segment & 0xFF, size, scope)
        log(state, ws.EXCHANGES | scope << 8, address, origin, instruction)
        return
    hidden = 0
    if kind == LOAD:
        hidden = caches.load_line(state, unit, line, scope)
    low, high = 0, 0
    for i in range(get64(part + PART_FIRST), get64(part + PART_PAST)):
        segment = get64(segments + 8 * i)
        offset, length, at = segment & 0xFF, segment >> 8 & 0xFF, data + (segment >> 16)
        if kind == LOAD:
            _move(at, state + ws.SEEN_LINE + offset, length)
        else:
            _move(state + ws.NEW_DATA + offset, at, length)
            some_low, some_high = caches.mask_of(offset, length)
            low |= some_low
            high |= some_high
    if kind == STORE:
        caches.store_line(state, unit, line, low, high, state + ws.NEW_DATA, scope, origin, instruction)
        log(state, ws.LANDS, address, origin, instruction)
    elif hidden:
        log(state, ws.READS_OLD, address, origin, instruction)


@helper
def _move(target, source, length):
    """Copy bytes of a line."""
    if length == ws.LINE:
        copy(target, source, ws.LINE)
        return
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


@helper
def _exchange(state, operation, access, unit, line, index, offset, size, scope):
    """Perform an atomic for one lane; its data is then the old value."""
    place, function = get64(operation + DATA_AT) + size * index, get64(access + OPERATION)
    origin, instruction = get64(get64(operation + OF_FLIGHT) + WAVEFRONT), get64(operation + OF_INSTRUCTION)
    value = _word(place, size)
    old = 0
    while True:
        old = caches.read_for_exchange(state, unit, line, offset, size, scope)
        if function == native.CMPSWAP and old != _word(get64(operation + OTHER_AT) + size * index, size):
            break
        if function == native.CMPSWAP or function == native.SWAP:
            new = value
        elif get64(access + CONVERSION) == NUMPY_FOLD:
            put64(state + ws.NEW_DATA, old)
            new = call(get64(state + ws.FOLD), access, value)
        elif size == 4:
            new = np.int64(_fold32(function, np.uint32(old & 0xFFFFFFFF), np.uint32(value & 0xFFFFFFFF)))
        else:
            new = np.int64(_fold64(function, np.uint64(old), np.uint64(value)))
        if caches.write_for_exchange(state, unit, line, offset, size, scope, old, new, origin, instruction):
            break
    if size == 4:
        poke32(np.uint64(place), np.uint32(old & 0xFFFFFFFF))
    else:
        put64(place, old)


@helper
def _word(address, size):
    return np.int64(peek32(np.uint64(address))) if size == 4 else np.int64(peek64(np.uint64(address)))


@helper
def _return_data(state, operation):
    """Write what an operation has loaded to registers, or to the data share."""
    kind, access, data = get64(operation + OF_KIND), get64(operation + ACCESS), get64(operation + DATA_AT)
    wave, lanes, size = get64(get64(operation + OF_FLIGHT) + RECORD), get64(operation + LANES), get64(access + SIZE)
    conversion = get64(access + CONVERSION)
    if conversion == TO_SHARE:
        deliver_to_share(operation, access, data)
    elif kind == LOAD and conversion == TYPED:
        call(get64(state + ws.DELIVER), operation, data)
    elif kind == LOAD:
        signed, half, stride = get64(access + SIGNED), get64(access + HALF), get64(operation + STRIDE)
        deliver(wave, get64(access + REGISTER), size, signed, half, lanes, data, stride)
    elif kind == ATOMIC and get64(access + TARGET) >= 0:
        deliver(wave, get64(access + TARGET), size, False, 0, lanes, data, size)


# -- calls of a wavefront's instructions, and of the scheduler ---------------------------------------------------------


@helper
def _wait(state, flight, count):
    """Perform one of the ``count`` oldest operations of a wavefront; return how many of them were not performed."""
    waiting = 0
    operation = get64(flight + FIRST)
    for _ in range(count):
        waiting += 1 - get64(operation + DONE)
        operation = get64(operation + NEXT_OPERATION)
    if waiting:
        chosen = pick(state, waiting, ws.COMPLETES)
        operation = get64(flight + FIRST)
        while True:
            if get64(operation + DONE) == 0:
                if chosen == 0:
                    break
                chosen -= 1
            operation = get64(operation + NEXT_OPERATION)
        _act(state, COMPLETE, operation, 0)
    return waiting


@helper
def _drift(state, ending):
    """Let memory change without an instruction: perform an access, or evict a line.

    ``ending``: whether a kernel's end is due. Returns 0, or -1 if it is to be performed.
    """
    moves, local = get64(state + ws.MOVES), get64(state + ws.QUEUES_USED)
    evictable = get64(state + ws.DIRTY) if get64(state + ws.EVICTS) else 0
    possible = moves + evictable + local + ending
    if possible == 0:
        return 0
    chosen = pick(state, possible, ws.WHAT_MOVES)
    if chosen == moves + evictable + local:
        return -1
    if chosen >= moves + evictable:
        queues.perform(state, queues.nth(state, chosen - moves - evictable))
        return 0
    if chosen >= moves:
        return caches.evict(state, chosen - moves)
    operation = get64(get64(state + ws.MOVING) + 8 * chosen)
    if get64(operation + LEFT) == 0:
        return _act(state, COMPLETE, operation, 0)
    n = pick(state, get64(operation + LEFT), ws.WHICH_LINE)
    if get64(operation + WHOLE):
        i = 0
        while get64(operation + WHOLE) >> i & 1 == 0 or n > 0:
            n -= get64(operation + WHOLE) >> i & 1
            i += 1
        return _act(state, PERFORM_LINE, operation, i)
    part = get64(operation + PARTS_AT)
    while True:
        if get64(part + PART_DONE) == 0:
            if n == 0:
                return _act(state, PERFORM, operation, part)
            n -= 1
        part += PART_BYTES


@helper
def _private(state, flight, access):
    """Complete the operations that write the registers which an access to the private segment writes."""
    operation = get64(flight + FIRST)
    while operation:
        other = get64(operation + ACCESS)
        if get64(operation + DONE) == 0 and other:
            low, high = get64(other + FIRST_WRITTEN), get64(access + FIRST_WRITTEN)
            if low < high + get64(access + WRITTEN) and high < low + get64(other + WRITTEN):
                _act(state, COMPLETE, operation, 0)
        operation = get64(operation + NEXT_OPERATION)
    return 0


def _enter(state, request):
    """Perform a call, whose arguments ``ask`` has stored."""
    task, a, b, d = get64(request), get64(request + 8), get64(request + 16), get64(request + 24)
    e = get64(request + 32)
    if task == MOVE:
        return _drift(state, a) if ws.moves_now(state) else 0
    if task == MOVE_NOW:
        return _drift(state, a)
    if task == ISSUE:
        return issue(state, a, b, d, e)
    if task == WAIT:
        count = max(0, get64(a + COUNT) - b)
        waiting = _wait(state, a, count)
        if waiting <= 1:
            forget(state, a, count)
        return waiting
    if task == LINGERS:
        waiting = _wait(state, a, get64(a + COUNT))
        if waiting == 0:
            forget(state, a, get64(a + COUNT))
        return waiting
    if task == FENCE:
        operation = new(state, a, 0, b, d, e, 0, OPERATION_BYTES)
        if b == INVALIDATE and get64(state + ws.COVERS):
            _act(state, PASS_FENCE, operation, 0)
        return 0
    if task == PRIVATE:
        return _private(state, a, b)
    if task == COUNTED:
        new(state, a, 0, b, ws.WAVE, d, 1, OPERATION_BYTES)
        return 0
    if task == FLUSH:
        return caches.flush(state, a, b)
    if task == ANSWERED:
        return caches.answered(state, a, b)
    if task == NEW_UNIT:  # of agent a, on XCD b, which began at d
        unit = allocate(state, ws.UNIT_BYTES)
        clear(unit, ws.UNIT_BYTES)
        put64(unit + ws.OF_AGENT, a)
        put64(unit + ws.XCD, b)
        for level in range(4):
            put64(unit + ws.FLOORS + 8 * level, d)
        return unit
    if task == NEW_FLIGHT:  # of unit a, with record b, wavefront d
        flight = allocate(state, FLIGHT_BYTES)
        clear(flight, FLIGHT_BYTES)
        put64(flight + OF_UNIT, a)
        put64(flight + RECORD, b)
        put64(flight + WAVEFRONT, d)
        last = get64(a + ws.LAST_FLIGHT)
        if last:
            put64(last + NEXT_FLIGHT, flight)
        else:
            put64(a + ws.FIRST_FLIGHT, flight)
        put64(a + ws.LAST_FLIGHT, flight)
        return flight
    if task == APPEND:  # record, token
        queues.append(state, a, 0, b)
        return 0
    if task == SETTLE:
        queues.settle(state, a, b)
        return 0
    if task == DROP:
        queues.drop(state, a)
        return 0
    if task == STORES_MOVING:
        stores = 0
        for i in range(get64(state + ws.MOVES)):
            kind = get64(get64(get64(state + ws.MOVING) + 8 * i) + OF_KIND)
            stores += kind != LOAD and kind != ATOMIC
        return stores
    return -1


def _run(state, task, a, b, d, e):
    """Perform a call; ``a`` to ``e`` are its arguments."""
    return ws.ask(state, task, a, b, d, e)


perform = Function(_perform)
enter = Function(_enter)
run: Any = njit(cache=True)(_run)
_I = types.int64
_SIGNATURES: dict[Any, tuple[Any, ...]] = {run: (_I,) * 6}


def prepare() -> None:
    """Compile ``run``, or load it from the cache."""
    compilation.compile_now(_SIGNATURES)
