"""Checks of accesses to the data share in mode ``check``, in native code: see ``native.checked``.

After the state of a work-group lie a byte for each of the data share's, 0xFF where it is defined, and three records of
accesses for each: of the last write, and of reads by two wavefronts, see ``watch.check.compiled``. A record's count is
the number of the access among all of the work-groups that used this memory, so old records need not be cleared, and an
earlier access is a lesser number. A record of a write with the sign bit is one of undefined bits. If all accesses are
to whole words or dwords, only every second or fourth record is used: ``SCALE`` is then 1 or 2, otherwise 0. A
work-group of one wavefront has no records.

Usually a wavefront reads what was written before the last s_barrier, and writes what was last accessed before it. This
is checked first, for all lanes at once (``_reads``, ``_writes``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import njit, types

from harness.emulator import compilation
from harness.emulator.native import record
from harness.emulator.native.checked import (
    ACCESSES,
    ATOMIC,
    COUNT_MASK,
    DEFINED,
    FIRST,
    PUBLISHED,
    READ,
    RECORDS,
    SCALE,
    SHARE_BYTES,
    WAVES,
    WRITE,
    config_of,
    field,
    group_of,
)
from harness.emulator.native.execute import Function
from harness.emulator.native.raw import get64, pointer, put64

_inline = njit(inline="always")
_helper = njit(nogil=True)
carray: Any = numba.carray  # type: ignore[attr-defined]

# A record of an access, as in ``watch.check.compiled``.
_COUNT, _WAVE, _INSTRUCTION = 37, 22, 2
_WAVE_MASK = (1 << 15) - 1
_ATOMIC_FLAG = 1
_SHORT = 8
"""Records from which on loops that are vector instructions take less time."""


def _expand(group, records, size):
    """Keep a record for each byte from now on. ``group``, ``records``: addresses."""
    scale = get64(group + 8 * SCALE)
    put64(group + 8 * SCALE, 0)
    if scale:
        for i in range(3):
            table = carray(pointer(records + 8 * size * i), (size,), np.int64)
            for at in range(size - 1, -1, -1):
                table[at] = table[at >> scale]
    return 0


_expand_here = _helper(_expand)


@_inline
def _count(last):
    return last >> _COUNT & COUNT_MASK


@_inline
def _races(last, number, published):
    """Return True for an access of another wavefront that is not before the last s_barrier."""
    return _count(last) > published and (last >> _WAVE) & _WAVE_MASK != number + 1


# -- accesses that are surely right ------------------------------------------------------------------------------------


def _reads(count: int) -> Callable[..., bool]:
    """Return a function that records reads of ``count`` successive records in each lane."""

    @_helper
    def reads(tables, places, offset, scale, active, mine, low, high):
        """Return False, without an effect, if a record of a write is less than ``low``, or ``high`` or more and of
        another wavefront."""
        written, read, other_read, _ = tables
        right = True
        for lane in range(64):
            if (active >> lane) & 1:
                at = np.uint64(places[lane] + offset) >> np.uint64(scale)
                for i in range(count):
                    last = written[at + np.uint64(i)]
                    right &= (last >= low) & ((last < high) | ((last ^ mine) & (_WAVE_MASK << _WAVE) == 0))
        if not right:
            return False
        for lane in range(64):
            if (active >> lane) & 1:
                at = np.uint64(places[lane] + offset) >> np.uint64(scale)
                free = True
                for i in range(count):
                    before = read[at + np.uint64(i)]
                    free &= (before < high) | ((before ^ mine) & (_WAVE_MASK << _WAVE) == 0)
                if free:
                    for i in range(count):
                        read[at + np.uint64(i)] = mine
                    continue
                for i in range(count):
                    before = read[at + np.uint64(i)]
                    if before < high or (before ^ mine) & (_WAVE_MASK << _WAVE) == 0:
                        read[at + np.uint64(i)] = mine
                    else:
                        other_read[at + np.uint64(i)] = mine
        return True

    return reads


def _writes(count: int) -> Callable[..., bool]:
    """Return a function that records writes of ``count`` successive records in each lane."""

    @_helper
    def writes(tables, places, offset, scale, active, mine, high):
        """Return False, without an effect, if some record is negative, or ``high`` or more.

        A read of a second wavefront is recorded only if that of the first one is ``high`` or more.
        """
        written, read, _, _ = tables
        right = True
        for lane in range(64):
            if (active >> lane) & 1:
                at = np.uint64(places[lane] + offset) >> np.uint64(scale)
                for i in range(count):
                    last, reader = written[at + np.uint64(i)], read[at + np.uint64(i)]
                    right &= (last >= 0) & (last < high) & (reader < high)
        if not right:
            return False
        for lane in range(64):
            if (active >> lane) & 1:
                at = np.uint64(places[lane] + offset) >> np.uint64(scale)
                for i in range(count):
                    written[at + np.uint64(i)] = mine
        return True

    return writes


_reads_1, _reads_2, _reads_4, _reads_8 = (_reads(count) for count in (1, 2, 4, 8))
_writes_1, _writes_2, _writes_4, _writes_8 = (_writes(count) for count in (1, 2, 4, 8))


@_helper
def _is_usual(tables, places, offset, count, kind, scale, active, mine, first, published):
    """Record an access of ``count`` records in each lane, and return True, if it is surely right."""
    low, high = (first + 1) << _COUNT, (published + 1) << _COUNT
    if kind == READ:
        if count == 1:
            return _reads_1(tables, places, offset, scale, active, mine, low, high)
        if count == 2:
            return _reads_2(tables, places, offset, scale, active, mine, low, high)
        if count == 4:
            return _reads_4(tables, places, offset, scale, active, mine, low, high)
        if count == 8:
            return _reads_8(tables, places, offset, scale, active, mine, low, high)
    if kind == WRITE:
        if count == 1:
            return _writes_1(tables, places, offset, scale, active, mine, high)
        if count == 2:
            return _writes_2(tables, places, offset, scale, active, mine, high)
        if count == 4:
            return _writes_4(tables, places, offset, scale, active, mine, high)
        if count == 8:
            return _writes_8(tables, places, offset, scale, active, mine, high)
    return False


# -- all accesses ------------------------------------------------------------------------------------------------------


@_helper
def _read(tables, at, count, mine, number, first, published):
    """Record a read of ``count`` successive records; return False if it may race, or find undefined bytes."""
    written, read, other_read, _ = tables
    if count < _SHORT:
        for i in range(at, at + count):
            last, before = written[i], read[i]
            if last < 0 or _count(last) <= first or _races(last, number, published):
                return False
            if _races(before, number, published):
                other_read[i] = mine
            else:
                read[i] = mine
        return True
    lowest, latest = np.int64(COUNT_MASK), np.int64(0)
    for i in range(at, at + count):
        last = written[i]
        lowest = min(lowest, -1 if last < 0 else _count(last))
        latest = max(latest, _count(last))
    if lowest <= first:
        return False
    if latest > published:
        for i in range(at, at + count):
            if _races(written[i], number, published):
                return False
    for i in range(at, at + count):
        before, other = read[i], other_read[i]
        another = _races(before, number, published)
        read[i] = before if another else mine
        other_read[i] = mine if another else other
    return True


@_helper
def _write(tables, at, count, mine, number, published):
    """Record a write of ``count`` successive records; return False if it may race."""
    written, read, other_read, _ = tables
    if count < _SHORT:
        for i in range(at, at + count):
            if _races(written[i], number, published) or _races(read[i], number, published):
                return False
            if _races(other_read[i], number, published):
                return False
            written[i] = mine
        return True
    latest = np.int64(0)
    for i in range(at, at + count):
        latest = max(latest, _count(written[i]), _count(read[i]), _count(other_read[i]))
    if latest > published:
        for i in range(at, at + count):
            if _races(written[i], number, published) or _races(read[i], number, published):
                return False
            if _races(other_read[i], number, published):
                return False
    for i in range(at, at + count):
        written[i] = mine
    return True


@_helper
def _write_same(wave, tables, lane, inner, data, high, size, scale, mine, number, published):
    """Record a write to which another wavefront has written: it may have written the same value."""
    written, read, other_read, share = tables
    v = carray(pointer(wave + record.VECTORS), (256, 64, 2), np.uint32)
    for i in range(0, size, 1 << scale):
        at = (inner + i) >> scale
        register = data + (i >> 2)
        word = v[register >> 1, lane, register & 1] >> np.uint32(16 if high else 0)
        racing, same = _races(written[at], number, published), True
        for k in range(1 << scale):
            byte = np.uint8((word >> np.uint32(8 * ((i + k) & 3))) & np.uint32(0xFF))
            if byte != share[inner + i + k]:
                same = False
        if racing and same and written[at] >= 0:
            continue  # wavefronts that hold the same element write the same value
        if racing or _races(read[at], number, published) or _races(other_read[at], number, published):
            return False
        written[at] = mine
    return True


@_helper
def _exchange(tables, at, count, mine, number, first, published):
    """Record an atomic; return False if it may race, or find undefined bytes."""
    written, read, other_read, _ = tables
    for i in range(at, at + count):
        last = written[i]
        if last < 0 or _count(last) <= first:
            return False
        if _races(last, number, published) and not last & _ATOMIC_FLAG:
            return False
        if _races(read[i], number, published) or _races(other_read[i], number, published):
            return False
        written[i] = mine
    return True


@_helper
def _touch(wave, config, group, places, offset, data, high, size, kind, instruction, active, bits):
    """Record one part of an access; return False if the interpreter has to decide."""
    waves, share_bytes = field(config, WAVES), field(config, SHARE_BYTES)
    number = get64(wave + record.NUMBER) % waves
    share = get64(wave + record.SHARE)
    records = share + field(config, RECORDS)
    scale = get64(group + 8 * SCALE)
    if (bits | size) & ((1 << scale) - 1):
        _expand_here(group, records, share_bytes)
        scale = 0
    written = carray(pointer(records), (share_bytes,), np.int64)
    read = carray(pointer(records + 8 * share_bytes), (share_bytes,), np.int64)
    other_read = carray(pointer(records + 16 * share_bytes), (share_bytes,), np.int64)
    tables = written, read, other_read, carray(pointer(share), (share_bytes,), np.uint8)
    first, published = get64(group + 8 * FIRST), get64(group + 8 * PUBLISHED)
    flags = _ATOMIC_FLAG if kind == ATOMIC else 0
    mine = get64(group + 8 * ACCESSES) << _COUNT | (number + 1) << _WAVE | instruction << _INSTRUCTION | flags
    if _is_usual(tables, places, offset, size >> scale, kind, scale, active, mine, first, published):
        return True
    lane = 0
    while lane < 64:
        if not (active >> lane) & 1:
            lane += 1
            continue
        # Lanes that access successive elements are as one access.
        begin, start = lane, places[lane]
        end = start + size
        lane += 1
        if kind != ATOMIC:
            while lane < 64 and (active >> lane) & 1 and places[lane] == end:
                end += size
                lane += 1
            while lane < 64 and (active >> lane) & 1 and places[lane] == end - size:  # they access the same element
                lane += 1
        at, count = (start + offset) >> scale, (end - start) >> scale
        if kind == READ:
            if not _read(tables, at, count, mine, number, first, published):
                return False
        elif kind == ATOMIC:
            if not _exchange(tables, at, count, mine, number, first, published):
                return False
        elif not _write(tables, at, count, mine, number, published):
            for each in range(begin, lane):
                inner = places[each] + offset
                if not _write_same(wave, tables, each, inner, data, high, size, scale, mine, number, published):
                    return False
    return True


@_helper
def _define(defined, places, offset, size, kind, active):
    """Without records: return False if a lane reads undefined bytes; those that it writes become defined."""
    for lane in range(64):
        if (active >> lane) & 1:
            each = carray(pointer(defined + places[lane] + offset), (size,), np.uint8)
            for i in range(size):
                if kind == WRITE:
                    each[i] = np.uint8(0xFF)
                elif each[i] != 0xFF:
                    return False
    return True


@Function
def check_share(wave, p):
    """Before an access to the data share.

    Parameters: address register, bytes, kind, index of the instruction, whether data is in the upper half, a multiple
    of which the address must be, the number of parts, and the offset and data register of each.
    """
    areg, size, kind, instruction = get64(p), get64(p + 8), get64(p + 16), get64(p + 24)
    high, alignment, parts = get64(p + 32), get64(p + 40), get64(p + 48)
    active, config = get64(wave + record.EXEC_BYTES), config_of(wave)
    group, share_bytes = group_of(wave, config), field(config, SHARE_BYTES)
    row = carray(pointer(wave + record.VECTORS + record.PAIR_BYTES * (areg >> 1)), (64, 2), np.uint32)
    half = areg & 1
    places = carray(pointer(wave + record.ADDRESSES), (64,), np.int64)
    highest, bits = np.int64(0), np.int64(0)
    for lane in range(64):
        inner = np.int64(row[lane, half])
        places[lane] = inner
        inner &= -((active >> lane) & 1)
        highest = max(highest, inner)
        bits |= inner
    for part in range(parts):
        offset = get64(p + 56 + 16 * part)
        if active and (highest + offset + size > share_bytes or (bits | offset) & (alignment - 1)):
            return 1
    several = field(config, WAVES) > 1
    count = group + 8 * ACCESSES
    put64(count, get64(count) + 1)
    for part in range(parts):
        offset, data = get64(p + 56 + 16 * part), get64(p + 64 + 16 * part)
        if several:
            if not _touch(
                wave, config, group, places, offset, data, high, size, kind, instruction, active, bits | offset
            ):
                return 1
        elif not _define(get64(wave + record.SHARE) + field(config, DEFINED), places, offset, size, kind, active):
            return 1
    return 0


expand_records: Any = njit(cache=True)(_expand)
_I = types.int64
_SIGNATURES: dict[Any, tuple[Any, ...]] = {expand_records: (_I, _I, _I)}


def prepare() -> None:
    """Compile the function that Python calls, or load it from the cache."""
    compilation.compile_now(_SIGNATURES)
