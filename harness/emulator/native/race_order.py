"""Happens-before of mode ``race`` for native functions: ``watch.race_order`` in the strict view, which implies both.

A clock is the address of an immutable structure, 0 for an empty one: the number of its entries, and then the entries in
their order, thread << 32 | number of an access. The end of a launch is a thread too, see ``end_of``. An order is five
clocks, at an address; it may be within another structure.

What native code does not know, such as released values that Python has read, is missing in the orders: then accesses
that are ordered seem to be unordered, and Python judges them. The opposite never happens.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from harness.emulator import compilation
from harness.emulator.native import race_state as st
from harness.emulator.native import record
from harness.emulator.native.raw import clear, copy, get64, put64
from harness.emulator.native.weak_state import add, allocate, helper, release

# The clocks of an order, as far as accesses have come, and the levels of a thread's own accesses.
ISSUED, COMPLETE, AGENT_WIDE, SYSTEM_WIDE, READ = range(0, 40, 8)
ORDER_BYTES = 40

# An operation in flight: its number, or 0 for a fence; the released values that it has read, each a structure with the
# distance of its thread and its order; the scope of a write-back, or 0, and its clock; whether it is an invalidate, and
# the order that it gives; the next operation.
(NUMBER, TAKEN, WRITES_BACK, WRITTEN, INVALIDATES, GAIN, NEXT) = (0, 8, 16, 24, 32, 40, 80)
OPERATION_BYTES = 88
(DISTANCE, TAKEN_ORDER, NEXT_TAKEN) = (0, 8, 48)
TAKEN_BYTES = 56


# -- clocks ------------------------------------------------------------------------------------------------------------


@helper
def _new_clock(rs, count):
    clock = allocate(get64(rs + st.MODEL), 8 + 8 * count)
    put64(clock, count)
    return clock


@helper
def last_of(clock, thread):
    """Return the last access of a thread in a clock, 0 if there is none."""
    if clock == 0:
        return 0
    low, high = 0, get64(clock)
    while low < high:
        middle = (low + high) >> 1
        if get64(clock + 8 + 8 * middle) >> 32 < thread:
            low = middle + 1
        else:
            high = middle
    if low == get64(clock):
        return 0
    entry = get64(clock + 8 + 8 * low)
    return entry & 0xFFFFFFFF if entry >> 32 == thread else 0


@helper
def _merged(a, b, target):
    """Write the later access for each thread in two clocks to ``target``, unless it is 0; return how many they are."""
    i, j, count, m, n = 0, 0, 0, get64(a), get64(b)
    while i < m or j < n:
        one = get64(a + 8 + 8 * i) if i < m else -1
        other = get64(b + 8 + 8 * j) if j < n else -1
        if other < 0 or (one >= 0 and one >> 32 < other >> 32):
            entry = one
            i += 1
        elif one < 0 or other >> 32 < one >> 32:
            entry = other
            j += 1
        else:
            entry = max(one, other)
            i += 1
            j += 1
        if target:
            put64(target + 8 + 8 * count, entry)
        count += 1
    return count


@helper
def _includes(a, b):
    """Return whether a clock has all that another one has."""
    i, m = 0, get64(a)
    for j in range(get64(b)):
        entry = get64(b + 8 + 8 * j)
        while i < m and get64(a + 8 + 8 * i) >> 32 < entry >> 32:
            i += 1
        if i == m or get64(a + 8 + 8 * i) >> 32 != entry >> 32 or get64(a + 8 + 8 * i) < entry:
            return False
    return True


@helper
def joined(rs, a, b):
    """Return the later access for each thread in two clocks."""
    if a == b or b == 0:
        return a
    if a == 0:
        return b
    if _includes(a, b):
        return a
    if _includes(b, a):
        return b
    clock = _new_clock(rs, _merged(a, b, 0))
    _merged(a, b, clock)
    return clock


@helper
def having(rs, clock, thread, number):
    """Return a clock with an access of a thread, the last one of it, or 0 for none."""
    if number == 0 or last_of(clock, thread) >= number:
        return clock
    one = _new_clock(rs, 1)
    put64(one + 8, thread << 32 | number)
    both = joined(rs, one, clock)
    if both != one:
        release(get64(rs + st.MODEL), one, 16)
    return both


@helper
def join(rs, target, order):
    """Add an order to another one."""
    for level in range(0, ORDER_BYTES, 8):
        put64(target + level, joined(rs, get64(target + level), get64(order + level)))


@helper
def end_of(launch):
    """Return the thread that stands for the end of a launch."""
    return (1 << 30) + get64(launch + st.KEY)


# -- threads -----------------------------------------------------------------------------------------------------------


@helper
def _learn(rs, thread, order):
    join(rs, thread + st.KNOWN, order)
    join(rs, thread + st.SHARED, order)


@helper
def _launched(rs, thread, operation):
    """Append an operation to those in flight."""
    put64(operation + NEXT, 0)
    if get64(thread + st.FLIGHT_COUNT):
        put64(get64(thread + st.FLIGHT_LAST) + NEXT, operation)
    else:
        put64(thread + st.FLIGHT_FIRST, operation)
    put64(thread + st.FLIGHT_LAST, operation)
    add(thread + st.FLIGHT_COUNT, 1)


@helper
def _operation(rs):
    operation = allocate(get64(rs + st.MODEL), OPERATION_BYTES)
    clear(operation, OPERATION_BYTES)
    return operation


@helper
def access(rs, thread, taken):
    """Issue an access; ``taken``: the released values that it reads."""
    add(thread + st.REACHED, 1)
    if get64(rs + st.RECORDS):
        return
    operation = _operation(rs)
    put64(operation + NUMBER, get64(thread + st.REACHED))
    put64(operation + TAKEN, taken)
    _launched(rs, thread, operation)


@helper
def publish(rs, thread, order):
    """Write the order that the next access passes on if it is a scoped store or atomic."""
    number = get64(thread + st.THREAD_NUMBER)
    for level in range(0, READ, 8):
        clock = get64(thread + st.KNOWN + level)
        put64(order + level, having(rs, clock, number, get64(thread + st.REACHED + level)))
    read = get64(thread + st.KNOWN + READ)
    put64(order + READ, having(rs, read, number, get64(thread + st.REACHED) + 1))


@helper
def _reachable(rs, thread, clock, reach):
    """Return the part of a clock of threads that are no further away than ``reach``, which is 0 if there is none."""
    if clock == 0:
        return clock
    count, part = 0, _new_clock(rs, get64(clock))
    for i in range(get64(clock)):
        entry = get64(clock + 8 + 8 * i)
        if entry >> 32 < 1 << 30:
            other = get64(get64(rs + st.THREADS) + 8 * (entry >> 32))
            if other and st.distance(thread, other) <= reach:
                put64(part + 8 + 8 * count, entry)
                count += 1
    put64(part, count)
    return part if count else 0


@helper
def write_back(rs, thread, scope):
    """``buffer_wbl2``: covers this thread's accesses so far, and all accesses that it knows to be complete."""
    clock = get64(thread + st.KNOWN + SYSTEM_WIDE)
    clock = joined(rs, clock, _reachable(rs, thread, get64(thread + st.KNOWN + AGENT_WIDE), st.AGENT))
    clock = joined(rs, clock, _reachable(rs, thread, get64(thread + st.KNOWN + COMPLETE), st.WORKGROUP))
    operation = _operation(rs)
    put64(operation + WRITES_BACK, scope)
    put64(operation + WRITTEN, having(rs, clock, get64(thread + st.THREAD_NUMBER), get64(thread + st.REACHED)))
    _launched(rs, thread, operation)


@helper
def invalidate(rs, thread, scope):
    """``buffer_inv``: values seen from within ``scope`` order all later loads."""
    operation = _operation(rs)
    put64(operation + INVALIDATES, 1)
    if scope >= st.AGENT:
        join(rs, operation + GAIN, thread + st.SEEN_AGENT)
    if scope >= st.SYSTEM:
        join(rs, operation + GAIN, thread + st.SEEN_SYSTEM)
    join(rs, thread + st.KNOWN, operation + GAIN)
    _launched(rs, thread, operation)


@helper
def _complete(rs, thread, operation):
    if get64(operation + NUMBER):
        put64(thread + st.REACHED + COMPLETE, get64(operation + NUMBER))
    taken = get64(operation + TAKEN)
    while taken:
        distance, following = get64(taken + DISTANCE), get64(taken + NEXT_TAKEN)
        if distance == st.WORKGROUP:
            _learn(rs, thread, taken + TAKEN_ORDER)
        else:
            join(rs, thread + (st.SEEN_AGENT if distance == st.AGENT else st.SEEN_SYSTEM), taken + TAKEN_ORDER)
        release(get64(rs + st.MODEL), taken, TAKEN_BYTES)
        taken = following
    scope = get64(operation + WRITES_BACK)
    if scope:
        clock, own = get64(operation + WRITTEN), get64(thread + st.THREAD_NUMBER)
        for level in range(COMPLETE, 8 * scope + 8, 8):
            for order in (st.KNOWN, st.SHARED):
                put64(thread + order + level, joined(rs, get64(thread + order + level), clock))
            put64(thread + st.REACHED + level, max(get64(thread + st.REACHED + level), last_of(clock, own)))
    if get64(operation + INVALIDATES):
        join(rs, thread + st.SHARED, operation + GAIN)


@helper
def wait(rs, thread, left):
    """``s_waitcnt vmcnt(left)``: complete all but the newest ``left`` operations."""
    while get64(thread + st.FLIGHT_COUNT) > left:
        operation = get64(thread + st.FLIGHT_FIRST)
        put64(thread + st.FLIGHT_FIRST, get64(operation + NEXT))
        add(thread + st.FLIGHT_COUNT, -1)
        _complete(rs, thread, operation)
        release(get64(rs + st.MODEL), operation, OPERATION_BYTES)
    if get64(thread + st.FLIGHT_COUNT) == 0:
        put64(thread + st.REACHED + COMPLETE, get64(thread + st.REACHED))


@helper
def meet(rs, waves, count):
    """s_barrier: share among wavefronts, whose addresses are at ``waves``, what each has done or knows."""
    joint = allocate(get64(rs + st.MODEL), 5 * ORDER_BYTES)
    clear(joint, 3 * ORDER_BYTES)
    # Most wavefronts know what the one before them knows: that is joined once.
    before, after = joint + 3 * ORDER_BYTES, joint + 4 * ORDER_BYTES
    for i in range(count):
        thread = st.thread_of(get64(waves + 8 * i))
        join(rs, joint, thread + st.SHARED)
        join(rs, joint + ORDER_BYTES, thread + st.SEEN_AGENT)
        join(rs, joint + 2 * ORDER_BYTES, thread + st.SEEN_SYSTEM)
    own = _new_clock(rs, count)
    for level in range(0, READ, 8):
        put64(own, _reached(waves, count, level, own))
        known = get64(joint + level)
        both = joined(rs, known, own) if get64(own) else known
        put64(joint + level, both)
        if both == own:
            own = _new_clock(rs, count)
    release(get64(rs + st.MODEL), own, 8 + 8 * count)
    for i in range(count):
        thread = st.thread_of(get64(waves + 8 * i))
        if i == 0 or not _are_same(thread + st.KNOWN, before):
            copy(before, thread + st.KNOWN, ORDER_BYTES)
            copy(after, before, ORDER_BYTES)
            join(rs, after, joint)
        copy(thread + st.KNOWN, after, ORDER_BYTES)
        copy(thread + st.SHARED, joint, 3 * ORDER_BYTES)
    release(get64(rs + st.MODEL), joint, 5 * ORDER_BYTES)


@helper
def _are_same(a, b):
    """Return whether two orders have the same clocks."""
    different = np.int64(0)
    for level in range(0, ORDER_BYTES, 8):
        different |= get64(a + level) ^ get64(b + level)
    return different == 0


@helper
def _reached(waves, count, level, clock):
    """Write the entries of wavefronts for their own accesses at a level to a clock; return how many they are."""
    entries = 0
    for i in range(count):
        thread = st.thread_of(get64(waves + 8 * i))
        number = get64(thread + st.REACHED + level)
        if number:
            entry, at = get64(thread + st.THREAD_NUMBER) << 32 | number, clock + 8 + 8 * entries
            while at > clock + 8 and get64(at - 8) > entry:
                put64(at, get64(at - 8))
                at -= 8
            put64(at, entry)
            entries += 1
    return entries


@helper
def end(rs, thread):
    """s_endpgm: the rank's next launch will know what the wavefront knows."""
    launch = get64(thread + st.OF_LAUNCH)
    wait(rs, thread, 0)
    for order in (st.KNOWN, st.SEEN_AGENT, st.SEEN_SYSTEM):
        for level in range(0, ORDER_BYTES, 8):
            after, clock = get64(launch + st.AFTER + level), get64(thread + order + level)
            if not _includes_others(launch, after, clock):
                put64(launch + st.AFTER + level, joined(rs, after, clock))


@helper
def _includes_others(launch, a, b):
    """Return whether a clock has all that another one has of threads of other launches.

    ``finish`` leaves out those of the launch itself, which would make the clock longer with each wavefront.
    """
    first, i, m = get64(launch + st.FIRST_THREAD), 0, get64(a) if a else 0
    past = first + get64(launch + st.WAVES)
    for j in range(get64(b) if b and b != a else 0):
        entry = get64(b + 8 + 8 * j)
        if first <= entry >> 32 < past:
            continue
        while i < m and get64(a + 8 + 8 * i) >> 32 < entry >> 32:
            i += 1
        if i == m or get64(a + 8 + 8 * i) >> 32 != entry >> 32 or get64(a + 8 + 8 * i) < entry:
            return False
    return True


@helper
def includes(order, level, thread, number):
    """Return whether an order includes an access, or the end of its thread's launch."""
    clock = get64(order + level)
    if clock == 0:
        return False
    if last_of(clock, get64(thread + st.THREAD_NUMBER)) >= number:
        return True
    return last_of(clock, end_of(get64(thread + st.OF_LAUNCH))) > 0


def _finish(launch: int) -> None:
    """A launch has ended: replace ``AFTER`` by what the rank's next launch knows."""
    rs, first = get64(launch + st.RS), get64(launch + st.FIRST_THREAD)
    for level in range(0, ORDER_BYTES, 8):
        clock = get64(launch + st.AFTER + level)
        count = get64(clock) if clock else 0
        kept, others = _new_clock(rs, count), 0
        for i in range(count):
            entry = get64(clock + 8 + 8 * i)
            if not first <= entry >> 32 < first + get64(launch + st.WAVES):
                put64(kept + 8 + 8 * others, entry)
                others += 1
        put64(kept, others)
        put64(launch + st.AFTER + level, having(rs, kept, end_of(launch), 1))


finish: Any = njit(cache=True)(_finish)
_SIGNATURES: dict[Any, tuple[Any, ...]] = {finish: (types.int64,)}


def prepare() -> None:
    """Compile ``finish``, or load it from the cache."""
    compilation.compile_now(_SIGNATURES)


@helper
def released(wave, waves, count):
    """Log that wavefronts pass an s_barrier, ``wave`` among them, and share what they know."""
    launch = get64(wave + record.LAUNCH)
    rs = get64(launch + st.RS)
    st.log(rs, st.BARRIER, launch, get64(wave + record.NUMBER) // get64(launch + st.PER_GROUP), 0)
    if not get64(rs + st.RECORDS):
        meet(rs, waves, count)


@helper
def ended(wave):
    """Log that a wavefront has executed s_endpgm."""
    launch = get64(wave + record.LAUNCH)
    rs = get64(launch + st.RS)
    st.log(rs, st.END, launch, get64(wave + record.NUMBER), 0)
    if not get64(rs + st.RECORDS):
        end(rs, st.thread_of(wave))
