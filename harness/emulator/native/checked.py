"""Checks of mode ``check`` in native code: operations before and after those of a program.

Each returns 0 if nothing can be wrong, and has then recorded what the instructions do to the mode's state. It returns 1
without a lasting effect if the interpreter has to decide: it knows undefined bits and words faults.

The *definition* of a register is a word in the record of a wavefront, at the offset ``shadow``: a bit for each lane in
which all of its bits are defined. A scalar register is defined (-1) or may not be (0). Numbers of registers are those
of ``watch.check.shadow``: 512 vector registers, 128 scalar ones, SCC.

After the data share of a work-group lie its state (``Group`` below), a byte for each of the share's, 0xFF where it is
defined, and three records of accesses for each, see ``watch.check.compiled``. As long as all accesses are to whole
dwords, only every fourth record is used: ``SCALE`` is then 2, otherwise 0.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import njit, types

from harness.emulator.native import memory as native
from harness.emulator.native import record
from harness.emulator.native.execute import Function
from harness.emulator.native.raw import clear, get8, get64, pointer, put64

_inline = njit(inline="always")
_helper = njit(nogil=True)
carray: Any = numba.carray  # type: ignore[attr-defined]

REGISTERS = 512 + 128 + 1
"""Number of words of a wavefront's definitions."""
SCALARS = 512

# The state that a launch has for these functions, int64 each: wavefronts of a work-group, bytes of its data share,
# offsets from the data share of the group's state, defined bytes and records, number of regions of forgotten memory and
# the address of int64[regions, 5]: start, size, addresses of state, memory and pattern.
WAVES, SHARE_BYTES, GROUP, DEFINED, RECORDS, REGIONS, REGION_TABLE = range(7)
FIELDS = 7

# Group: int64 each. Number of barriers that were released, the scale; then arrays of one or two numbers for each
# wavefront: barriers passed; the barrier (index of its instruction + 1) at which it waits, or - (index + 1) of the
# instruction with which it ended; accesses of both units issued, published, at arrival (issued, complete), arrived.
RELEASED, SCALE, PASSED = range(3)

# A record of an access to the data share, as in ``watch.check.compiled``.
_WAVE, _INSTRUCTION, _FLAGS = 48, 28, 26
_COUNT_MASK = (1 << _FLAGS) - 1
_ATOMIC_FLAG, _COPY_FLAG = 1, 2
READ, WRITE, ATOMIC = 0, 1, 2


def group_words(waves: int) -> int:
    """Return the number of int64 of a group's state."""
    return PASSED + 12 * waves


@_inline
def _config(wave):
    return get64(get64(wave + record.CONTEXT) + 8 * record.CHECKED)


@_inline
def _word(config, field):
    return get64(config + 8 * field)


@_inline
def _group(wave, config):
    return get64(wave + record.SHARE) + _word(config, GROUP)


# -- registers ---------------------------------------------------------------------------------------------------------


@Function
def enter(wave, p):
    """A wavefront begins: the hardware has set ``first`` scalar registers, v0, EXEC and a few others.

    Parameters: offset of the definitions, address of int32[n] numbers of defined registers, n, and the scale at first.
    """
    shadow, registers = wave + get64(p), carray(pointer(get64(p + 8)), (get64(p + 16),), np.int32)
    for register in registers:
        put64(shadow + 8 * register, -1)
    config = _config(wave)
    waves = _word(config, WAVES)
    if get64(wave + record.NUMBER) % waves == 0:
        scale = get64(p + 24)
        put64(_group(wave, config) + 8 * SCALE, scale)
        size = _word(config, SHARE_BYTES)
        if waves > 1:
            records = get64(wave + record.SHARE) + _word(config, RECORDS)
            for i in range(3):
                clear(records + 8 * size * i, 8 * ((size >> scale) + 1))
    return 0


@Function
def guard(wave, p):
    """Before a stretch of instructions: check the registers that it reads first, and define those that it writes.

    Parameters: offset of the definitions, address of int32[] numbers of registers, and how many of them are read in
    active lanes, read in all lanes, read in inactive lanes, written in active lanes, and written in all lanes; 1 if
    inactive lanes may be read although no lane is active.
    """
    shadow = wave + get64(p)
    masked = get64(p + 16)
    everywhere = masked + get64(p + 24)
    elsewhere = everywhere + get64(p + 32)
    written = elsewhere + get64(p + 40)
    wholly = written + get64(p + 48)
    registers = carray(pointer(get64(p + 8)), (wholly,), np.int32)
    active = get64(wave + record.EXEC_BYTES)
    needed = -1 if active == 0 and get64(p + 56) else active
    undefined = 0
    for i in range(masked):
        undefined |= needed & ~get64(shadow + 8 * registers[i])
    for i in range(masked, everywhere):
        undefined |= ~get64(shadow + 8 * registers[i])
    for i in range(everywhere, elsewhere):
        undefined |= ~(active | get64(shadow + 8 * registers[i]))
    if undefined:
        return 1
    for i in range(elsewhere, written):
        place = shadow + 8 * registers[i]
        put64(place, get64(place) | active)
    for i in range(written, wholly):
        put64(shadow + 8 * registers[i], -1)
    return 0


# -- global memory -----------------------------------------------------------------------------------------------------


@_helper
def forgotten(config, addresses, lanes, lowest, highest, size, stores):
    """Return True if an access reads bytes that were never written; with ``stores``, they become written.

    As ``watch.check.compiled.forgotten_bits``: see there. ``addresses`` uint64[64], ``lanes`` bool[64].
    """
    table = _word(config, REGION_TABLE)
    for region in range(_word(config, REGIONS)):
        at = table + 40 * region
        start, length = get64(at), get64(at + 8)
        if highest + np.uint64(size) <= np.uint64(start) or np.uint64(start + length) <= lowest:
            continue
        state = carray(pointer(get64(at + 16)), (length,), np.uint8)
        content = carray(pointer(get64(at + 24)), (length,), np.uint8)
        pattern = carray(pointer(get64(at + 32)), (length,), np.uint8)
        for lane in range(64):
            if not lanes[lane]:
                continue
            first = np.int64(addresses[lane]) - start
            for i in range(max(first, 0), min(first + size, length)):
                if state[i] == 0:
                    continue
                if stores:
                    state[i] = 0
                    continue
                low, high = i & ~15, min((i & ~15) + 16, length)
                outside = False
                for k in range(low, high):
                    if state[k] and content[k] != pattern[k]:
                        outside = True
                if not outside:
                    return True
                state[low:high] = 0
    return False


@_helper
def _misaligned(row, half, low, active):
    """Return True if a lane's register plus ``low`` is not a multiple of 4."""
    bits = np.uint32(0)
    for lane in range(64):
        bits |= row[lane, half] + low
    if bits & np.uint32(3) == 0:
        return False
    bits = np.uint32(0)
    for lane in range(64):
        if (active >> lane) & 1:
            bits |= row[lane, half] + low
    return bits & np.uint32(3) != 0


@Function
def check_global(wave, p):
    """Before an access to global memory. Parameters: the form of its address, its bytes, whether it must be aligned,
    and whether it stores."""
    config = _config(wave)
    aligned, regions = get64(p + 48), _word(config, REGIONS)
    if aligned == 0 and regions == 0:
        return 0
    form, areg, sreg, soffset, offset = get64(p), get64(p + 8), get64(p + 16), get64(p + 24), get64(p + 32)
    size, active = get64(p + 40), get64(wave + record.EXEC_BYTES)
    v = carray(pointer(wave + record.VECTORS), (256, 1, 64, 2), np.uint32)
    s = carray(pointer(wave), (1, 128), np.uint32)
    if regions == 0 and areg >= 0 and (form == native.GLOBAL or form == native.GLOBAL_SADDR):
        low = np.uint32(offset & 3)
        if form == native.GLOBAL_SADDR:
            low += s[0, sreg]
        return 1 if _misaligned(v[areg >> 1, 0], areg & 1, low, active) else 0
    if regions == 0 and areg >= 0 and form == native.BUFFER and not s[0, sreg + 1] >> np.uint32(31):
        low = np.uint32(offset & 3) + s[0, sreg]
        if soffset >= 0:
            low += s[0, soffset]
        if not _misaligned(v[areg >> 1, 0], areg & 1, low, active):
            return 0  # otherwise, lanes outside the buffer do not count
    mask = carray(pointer(wave + record.MASK), (1, 64), np.bool_)
    for lane in range(64):
        mask[0, lane] = (active >> lane) & 1 != 0
    at = carray(pointer(wave + record.ADDRESSES), (64,), np.uint64)
    takes = carray(pointer(wave + record.TAKES), (64,), np.bool_)
    count, lowest, highest = native._lanes(form, v, s, mask, 0, areg, sreg, soffset, offset, size, at, takes)
    if count == 0:
        return 0
    if aligned:
        bits = np.uint64(0)
        for lane in range(64):
            if takes[lane]:
                bits |= at[lane]
        if bits & np.uint64(3):
            return 1
    if regions and forgotten(config, at, takes, lowest, highest, size, get64(p + 56) != 0):
        return 1
    return 0


@Function
def check_scalar(wave, p):
    """Before a scalar load. Parameters: base register, register of an offset or -1, offset, bytes."""
    s = carray(pointer(wave), (128,), np.uint32)
    base, soffset = get64(p), get64(p + 8)
    address = np.uint64(s[base]) | np.uint64(s[base + 1]) << np.uint64(32)
    address += np.uint64(get64(p + 16))
    if soffset >= 0:
        address += np.uint64(s[soffset])
    if address & np.uint64(3):
        return 1
    config = _config(wave)
    table = _word(config, REGION_TABLE)
    for region in range(_word(config, REGIONS)):
        start, length = get64(table + 40 * region), get64(table + 40 * region + 8)
        if np.uint64(start) < address + np.uint64(get64(p + 24)) and address < np.uint64(start + length):
            return 1
    return 0


# -- the data share ----------------------------------------------------------------------------------------------------


@_inline
def _races(last, number, published, waves):
    """Return True for an access of another wavefront that may still be incomplete."""
    wave = (last >> _WAVE) - 1
    copy = waves if (last >> _FLAGS) & _COPY_FLAG else 0
    return last != 0 and wave != number and (last & _COUNT_MASK) > published[copy + wave]


def _expand(group, records, size):
    """Keep a record for each byte from now on, instead of each dword. ``group``, ``records``: addresses."""
    if get64(group + 8 * SCALE) == 0:
        return 0
    put64(group + 8 * SCALE, 0)
    for i in range(3):
        table = carray(pointer(records + 8 * size * i), (size,), np.int64)
        for at in range(size - 1, -1, -1):
            table[at] = table[at >> 2]
    return 0


_expand_here = _helper(_expand)


@_helper
def _touch(wave, config, group, row, half, offset, data, high, size, kind, instruction, active):
    """Record one part of an access, see ``watch.check.compiled.touch_lds``; return True if there may be a race."""
    waves, share_bytes = _word(config, WAVES), _word(config, SHARE_BYTES)
    number = get64(wave + record.NUMBER) % waves
    share = get64(wave + record.SHARE)
    records = share + _word(config, RECORDS)
    scale = get64(group + 8 * SCALE)
    if scale:
        bits = size
        for lane in range(64):
            if (active >> lane) & 1:
                bits |= np.int64(row[lane, half]) + offset
        if bits & 3:
            _expand_here(group, records, share_bytes)
            scale = 0
    # Not more than are used: of one dword and one byte, the last may be in use.
    written = carray(pointer(records), (share_bytes,), np.int64)
    read = carray(pointer(records + 8 * share_bytes), (share_bytes,), np.int64)
    other_read = carray(pointer(records + 16 * share_bytes), (share_bytes,), np.int64)
    issued = get64(group + 8 * (PASSED + 2 * waves + number))
    published = carray(pointer(group + 8 * (PASSED + 4 * waves)), (2 * waves,), np.int64)
    flags = _ATOMIC_FLAG if kind == ATOMIC else 0
    mine = (number + 1) << _WAVE | instruction << _INSTRUCTION | flags << _FLAGS | issued
    v = carray(pointer(wave + record.VECTORS), (256, 64, 2), np.uint32)
    bytes_ = carray(pointer(share), (share_bytes,), np.uint8)
    step = 1 << scale
    for lane in range(64):
        if not (active >> lane) & 1:
            continue
        inner = np.int64(row[lane, half]) + offset
        for i in range(0, size, step):
            at = (inner + i) >> scale
            racing = _races(written[at], number, published, waves)
            if kind == READ:
                if racing:
                    return True
                before = read[at]
                if _races(before, number, published, waves):
                    other_read[at] = mine
                else:
                    read[at] = mine
                continue
            if racing and kind == ATOMIC and (written[at] >> _FLAGS) & _ATOMIC_FLAG:
                racing = False
            if kind == WRITE:
                register = data + (i >> 2)
                word = v[register >> 1, lane, register & 1]
                same = True
                for k in range(step):
                    shift = 8 * ((i + k) & 3) + (16 if high else 0)
                    byte = np.uint8((word >> np.uint32(shift)) & np.uint32(0xFF))
                    if racing and byte != bytes_[inner + i + k]:
                        same = False
                if racing and same:
                    continue  # wavefronts that hold the same element write the same value
            if racing:
                return True
            if _races(read[at], number, published, waves) or _races(other_read[at], number, published, waves):
                return True
            written[at] = mine
    return False


@Function
def check_share(wave, p):
    """Before an access to the data share.

    Parameters: address register, bytes, kind, index of the instruction, whether data is in the upper half, a multiple
    of which the address must be, the number of parts, and the offset and data register of each.
    """
    areg, size, kind, instruction = get64(p), get64(p + 8), get64(p + 16), get64(p + 24)
    high, alignment, parts = get64(p + 32), get64(p + 40), get64(p + 48)
    active, config = get64(wave + record.EXEC_BYTES), _config(wave)
    group, share_bytes = _group(wave, config), _word(config, SHARE_BYTES)
    row = carray(pointer(wave + record.VECTORS + record.PAIR_BYTES * (areg >> 1)), (64, 2), np.uint32)
    half = areg & 1
    defined = get64(wave + record.SHARE) + _word(config, DEFINED)
    for part in range(parts):
        offset = get64(p + 56 + 16 * part)
        highest, bits = np.int64(0), np.int64(0)
        for lane in range(64):
            if (active >> lane) & 1:
                inner = np.int64(row[lane, half]) + offset
                highest = max(highest, inner)
                bits |= inner
        if active and highest + size > share_bytes:
            return 1
        if bits & (alignment - 1):
            return 1
        if kind == WRITE:
            continue
        every = np.int64(-1)
        for lane in range(64):
            if (active >> lane) & 1:
                place = defined + np.int64(row[lane, half]) + offset
                if size == 16:
                    every &= get64(place) & get64(place + 8)
                elif size == 8:
                    every &= get64(place)
                else:
                    for i in range(size):
                        every &= get8(place + i) | ~np.int64(0xFF)
        if every != -1:
            return 1
    waves = _word(config, WAVES)
    number = get64(wave + record.NUMBER) % waves
    count = group + 8 * (PASSED + 2 * waves + number)
    put64(count, get64(count) + 1)
    for part in range(parts):
        offset, data = get64(p + 56 + 16 * part), get64(p + 64 + 16 * part)
        if waves > 1 and _touch(wave, config, group, row, half, offset, data, high, size, kind, instruction, active):
            return 1
        if kind == WRITE:
            for lane in range(64):
                if (active >> lane) & 1:
                    place = defined + np.int64(row[lane, half]) + offset
                    if size == 16:
                        put64(place, -1)
                        put64(place + 8, -1)
                    elif size == 8:
                        put64(place, -1)
                    else:
                        each = carray(pointer(place), (size,), np.uint8)
                        for i in range(size):
                            each[i] = np.uint8(0xFF)
    return 0


# -- s_barrier ---------------------------------------------------------------------------------------------------------


@Function
def arrive(wave, p):
    """Before an s_barrier. Parameters: the index of its instruction, and the operations of both units that are
    outstanding."""
    config = _config(wave)
    group, waves = _group(wave, config), _word(config, WAVES)
    number = get64(wave + record.NUMBER) % waves
    mine = group + 8 * (PASSED + number)
    put64(mine + 8 * waves, get64(p) + 1)
    for unit in range(2):
        issued = get64(mine + 8 * waves * (2 + unit))
        put64(mine + 8 * waves * (6 + unit), issued)
        put64(mine + 8 * waves * (8 + unit), issued - get64(p + 8 + 8 * unit))
    return 0


@Function
def passed(wave, p):
    """After an s_barrier: the first wavefront releases it, unless they did not all wait at the same one."""
    config = _config(wave)
    group, waves = _group(wave, config), _word(config, WAVES)
    first = group + 8 * PASSED
    mine = first + 8 * (get64(wave + record.NUMBER) % waves)
    if get64(mine) == get64(group + 8 * RELEASED):
        at = get64(first + 8 * waves)
        for i in range(waves):
            if get64(first + 8 * (waves + i)) != at or at <= 0:
                return 1
        for i in range(waves):
            put64(first + 8 * (waves + i), 0)
        for i in range(2 * waves):
            put64(first + 8 * (10 * waves + i), get64(first + 8 * (6 * waves + i)))
            put64(first + 8 * (4 * waves + i), get64(first + 8 * (8 * waves + i)))
        put64(group + 8 * RELEASED, get64(group + 8 * RELEASED) + 1)
    put64(mine, get64(mine) + 1)
    return 0


@Function
def end(wave, p):
    """Before s_endpgm. Parameter: the index of its instruction."""
    config = _config(wave)
    group, waves = _group(wave, config), _word(config, WAVES)
    mine = group + 8 * (PASSED + get64(wave + record.NUMBER) % waves)
    put64(mine + 8 * waves, -1 - get64(p))
    for unit in range(2):
        issued = get64(mine + 8 * waves * (2 + unit))
        put64(mine + 8 * waves * (6 + unit), issued)
        put64(mine + 8 * waves * (8 + unit), issued)
    return 0


expand_records: Any = njit(cache=True)(_expand)
_I = types.int64
_SIGNATURES: dict[Any, tuple[Any, ...]] = {expand_records: (_I, _I, _I)}


def prepare() -> None:
    """Compile the function that Python calls, or load it from the cache."""
    native.compile_now(_SIGNATURES)
