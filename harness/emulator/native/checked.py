"""Checks of mode ``check`` in native code: operations before and after those of a program.

Each returns 0 if nothing can be wrong, and has then recorded what the instructions do to the mode's state. It returns 1
without a lasting effect if the interpreter has to decide: it knows undefined bits and words faults.

The *definition* of a register is a word in the record of a wavefront, from the offset ``shadow`` on: a bit for each
lane in which all of its bits are defined. A scalar register is defined (-1) or may not be (0). ``word_of`` gives the
place of a register's word.

After the data share of a work-group lie its state (``Group`` below), and what ``native.checked_share`` keeps of its
bytes.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import njit

from harness.emulator.native import memory as native
from harness.emulator.native import record
from harness.emulator.native.execute import Function
from harness.emulator.native.raw import clear, copy, get64, pointer, put64

_inline = njit(inline="always")
_helper = njit(nogil=True)
carray: Any = numba.carray  # type: ignore[attr-defined]

SCALARS = 512
"""First scalar register in a set of registers (``watch.check.shadow``); SCC is the last one."""
SAVED = 129
"""Place of the word that is not 0 if the interpreter has saved undefined bits of the wavefront."""
VECTORS = 130


def word_of(register: int) -> int:
    """Return the place of a register's definition: scalar registers, SCC, ``SAVED``, vector registers."""
    return register - SCALARS if register >= SCALARS else VECTORS + register


# The state that a launch has for these functions, int64 each: wavefronts of a work-group, bytes of its data share,
# offsets from the data share of the group's state, defined bytes and records, number of regions of forgotten memory and
# the address of int64[regions, 5]: start, size, addresses of state, memory and pattern.
WAVES, SHARE_BYTES, GROUP, DEFINED, RECORDS, REGIONS, REGION_TABLE = range(7)
FIELDS = 7

# Group: int64 each. Accesses to the share so far, those before the work-group began, and those before the last
# s_barrier; the scale; the number of releases from an s_barrier. Then for each wavefront how many it has passed, and
# the s_barrier at which it waits (index of its instruction + 1), or - (index + 1) of the instruction with which it
# ended.
ACCESSES, FIRST, PUBLISHED, SCALE, RELEASED, PASSED = range(6)

COUNT_MASK = (1 << 26) - 1
"""Of the number of an access in a record."""
READ, WRITE, ATOMIC = 0, 1, 2


def group_words(waves: int) -> int:
    """Return the number of int64 of a group's state."""
    return PASSED + 2 * waves


@_inline
def config_of(wave):
    return get64(get64(wave + record.CONTEXT) + 8 * record.CHECKED)


@_inline
def field(config, field):
    return get64(config + 8 * field)


@_inline
def group_of(wave, config):
    return get64(wave + record.SHARE) + field(config, GROUP)


# -- registers ---------------------------------------------------------------------------------------------------------


@Function
def enter(wave, p):
    """A wavefront begins. Parameters: offset of the definitions, address of those at entry, their bytes, and the
    scale at first."""
    copy(wave + get64(p), get64(p + 8), get64(p + 16))
    config = config_of(wave)
    waves = field(config, WAVES)
    if get64(wave + record.NUMBER) % waves == 0:
        group, size = group_of(wave, config), field(config, SHARE_BYTES)
        share = get64(wave + record.SHARE)
        if waves == 1:
            clear(share + field(config, DEFINED), size)
        elif get64(group + 8 * ACCESSES) > COUNT_MASK >> 1:
            clear(share + field(config, RECORDS), 24 * size)
            put64(group + 8 * ACCESSES, 0)
        before = get64(group + 8 * ACCESSES)
        put64(group + 8 * FIRST, before)
        put64(group + 8 * PUBLISHED, before)
        put64(group + 8 * SCALE, get64(p + 24))
        put64(group + 8 * RELEASED, 0)
        clear(group + 8 * PASSED, 16 * waves)
    return 0


@_helper
def _guard(wave, p):
    """Before a stretch of instructions: check the registers that it reads first, and define those that it writes.

    Parameters: offset of the definitions, address of int32[] places of registers, and how many of them are read in
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


@Function
def guard(wave, p):
    """Before a stretch of instructions: see ``_guard``."""
    return _guard(wave, p)


@Function
def guard_high(wave, p):
    """Before a sum of 64 bits, of which the upper half of one term may be undefined: so is that of the result then.

    Parameters: those of ``guard``, the places of the upper half's definition, and of n results that it makes
    undefined, n.
    """
    if _guard(wave, p) == 0:
        return 0
    shadow = wave + get64(p)
    high = shadow + 8 * get64(p + 64)
    if get64(high) != 0 or get64(wave + record.EXEC_BYTES) != -1 or get64(shadow + 8 * SAVED) != 0:
        return 1
    put64(high, -1)
    status = _guard(wave, p)
    put64(high, 0)
    if status == 0:
        for i in range(get64(p + 72)):
            put64(shadow + 8 * get64(p + 80 + 8 * i), 0)
    return status


# -- global memory -----------------------------------------------------------------------------------------------------


@_helper
def forgotten(config, addresses, lanes, lowest, highest, size, stores):
    """Return True if an access reads bytes that were never written; with ``stores``, they become written.

    As ``watch.check.compiled.forgotten_bits``: see there. ``addresses`` uint64[64], ``lanes`` bool[64].
    """
    table = field(config, REGION_TABLE)
    for region in range(field(config, REGIONS)):
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
    config = config_of(wave)
    aligned, regions = get64(p + 48), field(config, REGIONS)
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
    config = config_of(wave)
    table = field(config, REGION_TABLE)
    for region in range(field(config, REGIONS)):
        start, length = get64(table + 40 * region), get64(table + 40 * region + 8)
        if np.uint64(start) < address + np.uint64(get64(p + 24)) and address < np.uint64(start + length):
            return 1
    return 0


# -- s_barrier ---------------------------------------------------------------------------------------------------------


@Function
def arrive(wave, p):
    """Before an s_barrier, or s_endpgm. Parameter: the index of its instruction + 1, or - (the index + 1)."""
    config = config_of(wave)
    waves = field(config, WAVES)
    number = get64(wave + record.NUMBER) % waves
    put64(group_of(wave, config) + 8 * (PASSED + waves + number), get64(p))
    return 0


@Function
def passed(wave, p):
    """After an s_barrier: the first wavefront releases it, unless they did not all wait at the same one."""
    config = config_of(wave)
    group, waves = group_of(wave, config), field(config, WAVES)
    first = group + 8 * PASSED
    mine = first + 8 * (get64(wave + record.NUMBER) % waves)
    if get64(mine) == get64(group + 8 * RELEASED):
        at = get64(first + 8 * waves)
        for i in range(waves):
            if get64(first + 8 * (waves + i)) != at or at <= 0:
                return 1
        clear(first + 8 * waves, 8 * waves)
        put64(group + 8 * PUBLISHED, get64(group + 8 * ACCESSES))
        put64(group + 8 * RELEASED, get64(group + 8 * RELEASED) + 1)
    put64(mine, get64(mine) + 1)
    return 0
