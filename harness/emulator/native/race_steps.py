"""Native functions of the instructions that mode ``race`` judges, for translated code; see ``native.steps``.

Those of accesses come before the function that performs the access. Each returns 1 without an effect if Python has to
execute the whole instruction: because it faults, because it may be a race, or because only Python judges it.

A piece of an access is a number of bytes in succession, of lanes in succession: a word in the log with the distance of
its address from that of the first piece, above the lowest 8 bits, and the number of lanes in the lowest 7. The bit
between them is 1 if all these lanes access the bytes of one. The first address comes before the pieces.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from harness.emulator import compilation
from harness.emulator.native import race_order as order
from harness.emulator.native import race_shadow as shadow
from harness.emulator.native import race_state as st
from harness.emulator.native import record
from harness.emulator.native.execute import Function
from harness.emulator.native.flight_state import ATOMIC, LOAD
from harness.emulator.native.located import find, lanes_of, range_of
from harness.emulator.native.raw import get64, put64
from harness.emulator.native.weak_state import add, helper, release
from harness.emulator.native.words import peek32, peek64

# An access: as in ``operations.access``; the first data register of a compare-and-swap, or -1; whether its value is
# confirmed by a later compare-and-swap, so that it is not judged; whether it puts back some of the bytes that it swaps,
# so that Python judges it; whether it is a scoped write that ignores the value before it.
(KIND, SIZE, SCOPE, FORM, AREG, SREG, SOFFSET, OFFSET, SWAPS, GUESSES, KEEPS, OVERWRITES) = range(0, 96, 8)
ACCESS_FIELDS = 12
_PIECES = 40
COUNT_BITS = 7
SAME = 1 << COUNT_BITS
DISTANCE_SHIFT = COUNT_BITS + 1


@helper
def _pieces(wave, described, takes, at, lanes, words):
    """Write the pieces of an access by ``lanes`` lanes, and the address of the first one.

    Returns how many they are, or -1 for a bad one.
    """
    launch, size = get64(wave + record.LAUNCH), get64(described + SIZE)
    pieces, first, start, count = 0, np.int64(0), np.int64(0), 0
    if lanes == 0:
        return 0
    if get64(described + KIND) != ATOMIC:
        first, step = range_of(takes, at, lanes, size)
        if step >= 0:
            put64(words, first)
            put64(words + 8, lanes if step else SAME | lanes)
            all_bytes, known = lanes * size if step else size, get64(launch + st.ALLOCATIONS)
            return 1 if find(get64(launch + st.STARTS), get64(launch + st.ENDS), known, first, all_bytes) >= 0 else -1
    for lane in range(65):
        if lane < 64 and not takes[lane]:
            continue
        if lane < 64 and count and np.int64(at[lane]) == start + count * size:
            count += 1
            continue
        if count:
            if find(
                get64(launch + st.STARTS), get64(launch + st.ENDS), get64(launch + st.ALLOCATIONS), start, count * size
            ) < 0:  # fmt: skip
                return -1
            put64(words + 8 + 8 * pieces, (start - first) << DISTANCE_SHIFT | count)
            pieces += 1
        if lane < 64:
            start, count = np.int64(at[lane]), 1
            if pieces == 0:
                first = start
    put64(words, first)
    return pieces


@helper
def _is_repeated(takes, at):
    """Return whether two lanes access the same bytes."""
    for lane in range(64):
        for other in range(lane):
            if takes[lane] and takes[other] and at[lane] == at[other]:
                return True
    return False


@helper
def _swapping(wave, described, takes, at):
    """Return the lanes whose compare-and-swap swaps, as a mask."""
    # The values to compare with are in the registers after those of the new ones.
    size = get64(described + SIZE)
    register, mask = get64(described + SWAPS) + (size >> 2), 0
    for lane in range(64):
        if takes[lane]:
            low = np.int64(peek32(np.uint64(wave + record.VECTORS + _place(register) + 8 * lane)))
            if size == 4:
                same = np.int64(peek32(at[lane])) == low
            else:
                high = np.int64(peek32(np.uint64(wave + record.VECTORS + _place(register + 1) + 8 * lane)))
                same = np.int64(peek64(at[lane])) == high << 32 | low
            if same:
                mask |= 1 << lane
    return mask


@helper
def _place(register):
    return (register >> 1) * record.PAIR_BYTES + (register & 1) * 4


@helper
def _log(rs, at, wave, described, lanes, swaps, pieces):
    launch = get64(wave + record.LAUNCH)
    put64(at, st.ACCESS | get64(launch + st.KEY) << 32)
    put64(at + 8, get64(wave + record.NUMBER) | pieces << 32)
    put64(at + 16, described)
    put64(at + 24, lanes)
    put64(at + 32, swaps)
    put64(rs + st.LOG_AT, at + _PIECES + (8 + 8 * pieces if pieces else 0))


@helper
def _judge(rs, thread, described, kind, scope, size, at, pieces):
    """Return -1 if the access with these pieces may be a race; otherwise add it to the history, and return the released
    values that it reads."""
    event = shadow.event_of(rs, thread, kind, scope, size, described)
    first = get64(at + _PIECES)
    for i in range(pieces):
        piece = get64(at + _PIECES + 8 + 8 * i)
        count = 1 if piece & SAME else piece & (1 << COUNT_BITS) - 1
        if shadow.may_conflict(rs, first + (piece >> DISTANCE_SHIFT), count * size, event):
            release(get64(rs + st.MODEL), event, shadow.JUDGED_BYTES)
            return -1
    for i in range(pieces):
        piece = get64(at + _PIECES + 8 + 8 * i)
        count = 1 if piece & SAME else piece & (1 << COUNT_BITS) - 1
        shadow.note(rs, first + (piece >> DISTANCE_SHIFT), count * size, event)
    taken = get64(event + shadow.TAKEN)
    release(get64(rs + st.MODEL), event, shadow.JUDGED_BYTES)
    return taken


@Function
def access(wave, p):
    """Judge an access to global memory. Parameter: its description."""
    launch, described = get64(wave + record.LAUNCH), get64(p)
    rs, kind, scope, size = (
        get64(launch + st.RS),
        get64(described + KIND),
        get64(described + SCOPE),
        get64(described + SIZE),
    )
    if get64(launch + st.BY_PYTHON) or (scope == st.SYSTEM and get64(launch + st.SYSTEM_BY_PYTHON)):
        return 1
    if (get64(rs + st.RECORDS) and scope >= st.AGENT) or get64(described + KEEPS):
        return 1
    takes, where, count = lanes_of(
        wave, get64(described + FORM), get64(described + AREG), get64(described + SREG), get64(described + SOFFSET),
        get64(described + OFFSET), size,
    )  # fmt: skip
    at = st.room(rs)
    pieces = _pieces(wave, described, takes, where, count, at + _PIECES)
    if pieces < 0:
        return 1
    if count == 0 or get64(described + GUESSES):
        _log(rs, at, wave, described, 0, 0, 0)
        order.access(rs, st.thread_of(wave), 0)
        return 0
    lanes, swaps = get64(wave + record.EXEC_BYTES), 0
    aligns = scope > st.WAVE and size <= 8  # others are not atomic
    if count < 64 or aligns:
        lanes = 0
        for lane in range(64):
            if takes[lane]:
                lanes |= 1 << lane
                if aligns and where[lane] & np.uint64(size - 1):
                    return 1
    if get64(described + OVERWRITES) and count > 1 and _is_repeated(takes, where):
        return 1
    if get64(described + SWAPS) >= 0:
        swaps = _swapping(wave, described, takes, where)
        if swaps != 0 and swaps != lanes:
            return 1
        kind = ATOMIC if swaps else LOAD
    taken = 0
    if not get64(rs + st.RECORDS):
        taken = _judge(rs, st.thread_of(wave), described, kind, scope, size, at, pieces)
        if taken < 0:
            return 1
    _log(rs, at, wave, described, lanes, swaps, pieces)
    order.access(rs, st.thread_of(wave), taken)
    return 0


@Function
def private(wave, p):
    """Log an access to a lane's own memory. Parameter: its description."""
    rs = get64(get64(wave + record.LAUNCH) + st.RS)
    _log(rs, st.room(rs), wave, get64(p), 0, 0, 0)
    order.access(rs, st.thread_of(wave), 0)
    return 0


@Function
def scalar(wave, p):
    """Judge a scalar load. Parameters: its description, bytes, base, scalar offset register or -1, offset, and the mask
    of the address's upper half."""
    launch, described, size, base = get64(wave + record.LAUNCH), get64(p), get64(p + 8), get64(p + 16)
    low = np.int64(peek32(np.uint64(wave + 4 * base)))
    address = (np.int64(peek32(np.uint64(wave + 4 * base + 4))) & get64(p + 40)) << 32 | low
    address += get64(p + 32)
    if get64(p + 24) >= 0:
        address += np.int64(peek32(np.uint64(wave + 4 * get64(p + 24))))
    arguments = get64(launch + st.ARGUMENTS)
    if (arguments <= address < arguments + get64(launch + st.ARGUMENTS_BYTES)) or get64(described + GUESSES):
        return 0
    address &= ~3
    allocation = find(get64(launch + st.STARTS), get64(launch + st.ENDS), get64(launch + st.ALLOCATIONS), address, size)
    if allocation < 0 or get64(launch + st.BY_PYTHON):
        return 1
    rs = get64(launch + st.RS)
    at = st.room(rs)
    put64(at + _PIECES, address)
    put64(at + _PIECES + 8, 1)
    if not get64(rs + st.RECORDS) and _judge(rs, st.thread_of(wave), described, LOAD, st.WAVE, size, at, 1) < 0:
        return 1
    _log(rs, at, wave, described, 1, 0, 1)
    put64(at, st.SCALAR | get64(launch + st.KEY) << 32)
    add(st.thread_of(wave) + st.REACHED, 1)
    return 0


@Function
def fence(wave, p):
    """Parameters: the event, the scope."""
    launch = get64(wave + record.LAUNCH)
    rs, event, scope = get64(launch + st.RS), get64(p), get64(p + 8)
    st.log(rs, event, launch, get64(wave + record.NUMBER), scope)
    if not get64(rs + st.RECORDS):
        if event == st.WRITE_BACK:
            order.write_back(rs, st.thread_of(wave), scope)
        else:
            order.invalidate(rs, st.thread_of(wave), scope)
    return 0


@Function
def wait(wave, p):
    """s_waitcnt. Parameter: how many accesses may be in flight."""
    launch = get64(wave + record.LAUNCH)
    rs = get64(launch + st.RS)
    st.log(rs, st.WAIT, launch, get64(wave + record.NUMBER), get64(p))
    if not get64(rs + st.RECORDS):
        order.wait(rs, st.thread_of(wave), get64(p))
    return 0


def _executed(wave, is_scalar):
    """Python has executed an access of a wavefront; s_waitcnt vmcnt counts it unless it is a scalar one."""
    rs = get64(get64(wave + record.LAUNCH) + st.RS)
    if is_scalar:
        add(st.thread_of(wave) + st.REACHED, 1)
    else:
        order.access(rs, st.thread_of(wave), 0)


def _restore(rs, address, size, accesses, count):
    """Replace the history of bytes by accesses, which are as in ``race_shadow.cell_of``."""
    shadow.fill(rs, address, size, shadow.cell_of(rs, accesses, count))


executed: Any = njit(cache=True)(_executed)
restore: Any = njit(cache=True)(_restore)
_I = types.int64
_SIGNATURES: dict[Any, tuple[Any, ...]] = {
    executed: (_I, types.boolean),
    restore: (_I, _I, _I, _I, _I),
}


def prepare() -> None:
    """Compile the functions above, or load them from the cache."""
    compilation.compile_now(_SIGNATURES)
