"""The memory unit: loads, stores and atomics for each lane of a memory instruction, compiled by numba.

Here, and nowhere else, the emulator touches real addresses. Each function visits the lanes of all wavefronts once: it
forms the address, checks it against the table of known allocations, and moves the bytes. An access of up to 8 bytes is
one machine access, so it is never torn; read-modify-writes are the host's own atomic instructions, sequentially
consistent, so they are atomic across rank processes that map the same memory. Every function returns the flat lane
(wavefront * 64 + lane) of the first bad access, or -1.

Shapes: ``v`` uint32[pairs, W, 64, 2], ``s`` uint32[W, 128], ``mask`` bool[W, 64]; ``starts``, ``ends``, ``peer``
describe the sorted allocations (``peer`` is 1 where another rank's memory is mapped); ``counts`` int64[2] counts active
lanes by local and peer. ``prepare`` compiles them all, and numba keeps them in its cache on disk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from harness.emulator import compilation
from harness.emulator.native.words import load8, load16, load32, load64, store8, store16, store32, store64

# Forms of an address.
GLOBAL, GLOBAL_SADDR, BUFFER, BUFFER_INDEX, BUFFER_INDEX_OFFSET = range(5)

# Read-modify-write operations.
(ADD, SUB, SWAP, CMPSWAP, AND, OR, XOR, SMIN, SMAX, UMIN, UMAX, INC, DEC, FADD, FMIN, FMAX) = range(16)
# Packed 16-bit float additions, implemented in ``operations.atomics``.
PK_ADD_F16, PK_ADD_BF16 = 16, 17


_jit = njit(cache=True, nogil=True)
_inline = njit(inline="always")


@_inline
def find_allocation(starts, ends, address, size, hint):
    """Return the allocation that holds [address, address + size), or -1; ``hint``, the last one, is tried first."""
    # No sum of address and size: it may pass 2**64.
    if starts[hint] <= address and address <= ends[hint] and size <= ends[hint] - address:
        return hint
    for i in range(len(starts)):
        if starts[i] <= address and address <= ends[i] and size <= ends[i] - address:
            return i
    return -1


@njit
def _structured(form, v, s, w, lane, areg, sreg, soffset, offset, size):
    """Return ``_address`` for a buffer of records: ``idxen``, or a descriptor that swizzles.

    AMD "CDNA3 ISA", "Buffer Addressing" and "Range Checking": with a stride, num_records counts records and the index
    is checked; with swizzling, ``index_stride`` records are interleaved, ``element_size`` bytes of each at a time, and
    the offset must lie in the record.
    """
    word1, word3 = np.uint64(s[w, sreg + 1]), np.uint64(s[w, sreg + 3])
    base = np.uint64(s[w, sreg]) | (word1 & np.uint64(0xFFFF)) << np.uint64(32)
    stride, swizzle = (word1 >> np.uint64(16)) & np.uint64(0x3FFF), word1 >> np.uint64(31)
    index, inner = np.uint64(0), np.uint64(offset)
    if form != BUFFER:
        index = np.uint64(v[areg >> 1, w, lane, areg & 1])
        areg += 1
    if form != BUFFER_INDEX and areg >= 0:
        inner += np.uint64(v[areg >> 1, w, lane, areg & 1])
    if word3 >> np.uint64(23) & np.uint64(1):
        index += np.uint64(lane)
    outer = np.uint64(s[w, soffset]) if soffset >= 0 else np.uint64(0)
    records = np.uint64(s[w, sreg + 2])
    if not swizzle:
        linear = inner + stride * index
        inside = index < records if stride else linear + outer + np.uint64(size) <= records
        return base + outer + linear, inside
    element = np.uint64(2) << (word3 >> np.uint64(19) & np.uint64(3))
    group = np.uint64(8) << (word3 >> np.uint64(21) & np.uint64(3))
    linear = (index // group * stride + inner // element * element) * group
    linear += index % group * element + inner % element
    return base + outer + linear, index < records and inner + np.uint64(size) <= stride


@_inline
def _address(form, v, s, w, lane, areg, sreg, soffset, offset, size):
    """Return the address of one lane, and whether it takes part (a buffer access out of range does not)."""
    if form == GLOBAL:
        low = np.uint64(v[areg >> 1, w, lane, areg & 1])
        high = np.uint64(v[(areg + 1) >> 1, w, lane, (areg + 1) & 1])
        return (low | high << np.uint64(32)) + np.uint64(offset), True
    base = np.uint64(s[w, sreg]) | np.uint64(s[w, sreg + 1]) << np.uint64(32)
    if form == GLOBAL_SADDR:
        return base + np.uint64(v[areg >> 1, w, lane, areg & 1]) + np.uint64(offset), True
    if form != BUFFER or s[w, sreg + 1] >> np.uint32(31):
        return _structured(form, v, s, w, lane, areg, sreg, soffset, offset, size)
    # A raw buffer: base has 48 bits, num_records counts bytes, and the range check is on the offset.
    inner = np.uint64(offset)
    if areg >= 0:
        inner += np.uint64(v[areg >> 1, w, lane, areg & 1])
    outer = np.uint64(s[w, soffset]) if soffset >= 0 else np.uint64(0)
    inside = inner + outer + np.uint64(size) <= np.uint64(s[w, sreg + 2])
    return (base & np.uint64(0xFFFFFFFFFFFF)) + inner + outer, inside


@_jit
def lane_masks(s, register, out):
    """Write the lane mask in scalar register ``register`` and the next to ``out`` bool[W, 64]; return its bit count."""
    count = 0
    for w in range(out.shape[0]):
        word = np.uint64(s[w, register]) | np.uint64(s[w, register + 1]) << np.uint64(32)
        for lane in range(64):
            bit = (word >> np.uint64(lane)) & np.uint64(1)
            out[w, lane] = bit != 0
            count += np.int64(bit)
    return count


@_jit
def addresses(v, s, form, areg, sreg, soffset, offset, size, out, inside):
    """Write every lane's address to ``out`` uint64[W, 64], and to ``inside`` bool[W, 64] whether it takes part."""
    for w in range(out.shape[0]):
        for lane in range(64):
            out[w, lane], inside[w, lane] = _address(form, v, s, w, lane, areg, sreg, soffset, offset, size)


@njit
def _lanes(form, v, s, mask, w, areg, sreg, soffset, offset, size, at, takes):
    """Write the addresses of a wavefront's lanes to ``at``, and to ``takes`` which of them access memory.

    Returns the number of accessing lanes, and their lowest and highest address.
    """
    count = _taking(form, v, s, mask, w, areg, sreg, soffset, offset, size, at, takes)
    lowest, highest = ~np.uint64(0), np.uint64(0)
    if count == 64:
        for lane in range(64):
            lowest, highest = min(lowest, at[lane]), max(highest, at[lane])
        return count, lowest, highest
    for lane in range(64):
        if takes[lane]:
            lowest, highest = min(lowest, at[lane]), max(highest, at[lane])
    return count, lowest, highest


@njit
def _taking(form, v, s, mask, w, areg, sreg, soffset, offset, size, at, takes):
    """Do what ``_lanes`` does, and return the number of accessing lanes."""
    # Short loops without conditions, which LLVM turns into vector instructions.
    active = mask[w]
    for lane in range(64):
        takes[lane] = active[lane]
    if form == GLOBAL and areg & 1 == 0:
        row = v[areg >> 1, w]
        for lane in range(64):
            at[lane] = (np.uint64(row[lane, 0]) | np.uint64(row[lane, 1]) << np.uint64(32)) + np.uint64(offset)
    elif form == GLOBAL_SADDR:
        base = (np.uint64(s[w, sreg]) | np.uint64(s[w, sreg + 1]) << np.uint64(32)) + np.uint64(offset)
        row, half = v[areg >> 1, w], areg & 1
        for lane in range(64):
            at[lane] = base + np.uint64(row[lane, half])
    elif form == BUFFER and areg >= 0 and not s[w, sreg + 1] >> np.uint32(31):
        base = (np.uint64(s[w, sreg]) | np.uint64(s[w, sreg + 1]) << np.uint64(32)) & np.uint64(0xFFFFFFFFFFFF)
        outer = np.uint64(offset) + (np.uint64(s[w, soffset]) if soffset >= 0 else np.uint64(0))
        row, half = v[areg >> 1, w], areg & 1
        for lane in range(64):
            at[lane] = np.uint64(row[lane, half]) + outer
        end = np.uint64(s[w, sreg + 2])
        for lane in range(64):
            takes[lane] &= at[lane] + np.uint64(size) <= end
        for lane in range(64):
            at[lane] += base
    else:
        for lane in range(64):
            at[lane], inside = _address(form, v, s, w, lane, areg, sreg, soffset, offset, size)
            takes[lane] &= inside
    count = 0
    for lane in range(64):
        count += takes[lane]
    return count


@njit
def _check(starts, ends, peer, counts, count, lowest, highest, size, at, takes, hint):
    """Find the allocation that each active lane of a wavefront accesses, and add the lanes to ``counts``.

    ``counts``: index 0 for this rank's memory, 1 for a peer's. ``at`` and ``takes``: address of each lane, and whether
    it accesses memory; ``count``, ``lowest`` and ``highest`` summarize them, since usually all lanes access the same
    allocation. Returns the index of the last allocation, or -1 - lane for the first lane whose access is in none.
    """
    one = find_allocation(starts, ends, lowest, highest - lowest + np.uint64(size), hint)
    if one >= 0:
        counts[peer[one]] += count
        return one
    for lane in range(64):
        if takes[lane]:
            hint = find_allocation(starts, ends, at[lane], np.uint64(size), hint)
            if hint < 0:
                return -1 - lane
            counts[peer[hint]] += 1
    return hint


@_jit
def load(v, s, mask, form, areg, sreg, soffset, offset, dst, size, signed, half, starts, ends, peer, counts):
    """Load ``size`` bytes per lane (1, 2 or 4n) into ``dst``.

    ``half``: 0 the whole register; 1 the low half, 2 the high half, keeping the other half.
    """
    at, takes = np.empty(64, np.uint64), np.empty(64, np.bool_)
    hint = 0
    for w in range(mask.shape[0]):
        count, lowest, highest = _lanes(form, v, s, mask, w, areg, sreg, soffset, offset, size, at, takes)
        if form >= BUFFER:
            for lane in range(64):
                if mask[w, lane] and not takes[lane]:
                    where = (form, v, s, w, lane, areg, sreg, soffset, offset)
                    if not _out_of_range(where, dst, size, half, False, starts, ends, peer, counts):
                        return w * 64 + lane
        if count == 0:
            continue
        hint = _check(starts, ends, peer, counts, count, lowest, highest, size, at, takes, hint)
        if hint < 0:
            return w * 64 - 1 - hint
        if size < 4:
            _load_narrow(v[dst >> 1, w], dst & 1, at, takes, size, signed, half)
            continue
        for i in range(size >> 3):
            _load_wide(v, w, dst + 2 * i, 8 * i, at, takes)
        if size & 4:
            i = (size >> 2) - 1
            row, column = v[(dst + i) >> 1, w], (dst + i) & 1
            for lane in range(64):
                if takes[lane]:
                    row[lane, column] = load32(at[lane] + np.uint64(4 * i))
    return -1


@njit
def _out_of_range(where, register, size, half, stores, starts, ends, peer, counts):
    """Execute one lane of a buffer access that is partly out of range; return False for a bad memory access.

    Out of range loads return 0 (a d16 load in its half) and stores do nothing; each of several dwords is checked by
    itself (AMD "CDNA3 ISA", "Range Checking").
    """
    form, v, s, w, lane, areg, sreg, soffset, offset = where
    counted = False
    # Read everything before writing: the address register may be among the destination registers.
    words = (size + 3) >> 2
    loaded = np.zeros(4, np.uint32)
    for i in range(words):
        if size < 8:
            break
        address, inside = _address(form, v, s, w, lane, areg, sreg, soffset, offset + 4 * i, 4)
        if not inside:
            continue
        known = find_allocation(starts, ends, address, np.uint64(4), 0)
        if known < 0:
            return False
        if not counted:
            counts[peer[known]] += 1
            counted = True
        if stores:
            store32(address, v[(register + i) >> 1, w, lane, (register + i) & 1])
        else:
            loaded[i] = load32(address)
    if not stores:
        old = v[register >> 1, w, lane, register & 1]
        kept = np.uint32(0) if half == 0 else np.uint32(0xFFFF0000) if half == 1 else np.uint32(0xFFFF)
        if half:
            v[register >> 1, w, lane, register & 1] = old & kept
        else:
            for i in range(words):
                v[(register + i) >> 1, w, lane, (register + i) & 1] = loaded[i]
    return True


@njit
def _load_wide(v, w, dst, offset, at, takes):
    """Load 8 bytes per lane into two registers: one row of an aligned pair, or halves of two pairs."""
    if dst & 1 == 0:
        pair = v[dst >> 1, w]
        for lane in range(64):
            if takes[lane]:
                word = load64(at[lane] + np.uint64(offset))
                pair[lane, 0] = np.uint32(word & np.uint64(0xFFFFFFFF))
                pair[lane, 1] = np.uint32(word >> np.uint64(32))
        return
    low, high = v[dst >> 1, w], v[(dst + 1) >> 1, w]
    for lane in range(64):
        if takes[lane]:
            word = load64(at[lane] + np.uint64(offset))
            low[lane, 1] = np.uint32(word & np.uint64(0xFFFFFFFF))
            high[lane, 0] = np.uint32(word >> np.uint64(32))


@njit
def _load_narrow(row, column, at, takes, size, signed, half):
    for lane in range(64):
        if not takes[lane]:
            continue
        if size == 1:
            value = np.uint32(load8(at[lane]))
            if signed and value & np.uint32(0x80):
                value |= np.uint32(0xFFFFFF00)
        else:
            value = np.uint32(load16(at[lane]))
            if signed and value & np.uint32(0x8000):
                value |= np.uint32(0xFFFF0000)
        old = row[lane, column]
        if half == 1:
            value = np.uint32(old & np.uint32(0xFFFF0000)) | np.uint32(value & np.uint32(0xFFFF))
        elif half == 2:
            value = np.uint32(old & np.uint32(0xFFFF)) | np.uint32(value << np.uint32(16))
        row[lane, column] = value


@_jit
def store(v, s, mask, form, areg, sreg, soffset, offset, src, size, high, starts, ends, peer, counts):
    """Store ``size`` bytes per lane (1, 2 or 4n) from ``src``; ``high``: a narrow store takes bits 16 and up."""
    at, takes = np.empty(64, np.uint64), np.empty(64, np.bool_)
    hint = 0
    for w in range(mask.shape[0]):
        count, lowest, highest = _lanes(form, v, s, mask, w, areg, sreg, soffset, offset, size, at, takes)
        if form >= BUFFER and size > 4:
            for lane in range(64):
                if mask[w, lane] and not takes[lane]:
                    where = (form, v, s, w, lane, areg, sreg, soffset, offset)
                    if not _out_of_range(where, src, size, 0, True, starts, ends, peer, counts):
                        return w * 64 + lane
        if count == 0:
            continue
        hint = _check(starts, ends, peer, counts, count, lowest, highest, size, at, takes, hint)
        if hint < 0:
            return w * 64 - 1 - hint
        if size < 4:
            _store_narrow(v[src >> 1, w], src & 1, at, takes, size, 16 * high)
            continue
        for i in range(size >> 3):
            _store_wide(v, w, src + 2 * i, 8 * i, at, takes)
        if size & 4:
            i = (size >> 2) - 1
            row, column = v[(src + i) >> 1, w], (src + i) & 1
            for lane in range(64):
                if takes[lane]:
                    store32(at[lane] + np.uint64(4 * i), row[lane, column])
    return -1


@njit
def _store_wide(v, w, src, offset, at, takes):
    if src & 1 == 0:
        pair = v[src >> 1, w]
        for lane in range(64):
            if takes[lane]:
                word = np.uint64(pair[lane, 0]) | np.uint64(pair[lane, 1]) << np.uint64(32)
                store64(at[lane] + np.uint64(offset), word)
        return
    low, high = v[src >> 1, w], v[(src + 1) >> 1, w]
    for lane in range(64):
        if takes[lane]:
            word = np.uint64(low[lane, 1]) | np.uint64(high[lane, 0]) << np.uint64(32)
            store64(at[lane] + np.uint64(offset), word)


@njit
def _store_narrow(row, column, at, takes, size, shift):
    for lane in range(64):
        if takes[lane]:
            value = np.uint32(row[lane, column] >> np.uint32(shift))
            if size == 1:
                store8(at[lane], np.uint8(value & np.uint32(0xFF)))
            else:
                store16(at[lane], np.uint16(value & np.uint32(0xFFFF)))


@_jit
def load_scalar(s, dst, words, base, soffset, offset, starts, ends):
    """s_load_dword*: load ``words`` dwords per wavefront.

    The two low address bits are ignored. Returns the wavefront, or -1.
    """
    for w in range(s.shape[0]):
        address = np.uint64(s[w, base]) | np.uint64(s[w, base + 1]) << np.uint64(32)
        address += np.uint64(offset)
        if soffset >= 0:
            address += np.uint64(s[w, soffset])
        address &= ~np.uint64(3)
        if find_allocation(starts, ends, address, np.uint64(4 * words), 0) < 0:
            return w
        for i in range(words):
            s[w, dst + i] = load32(address + np.uint64(4 * i))
    return -1


_V, _S, _MASK = types.uint32[:, :, :, ::1], types.uint32[:, ::1], types.boolean[:, ::1]
_TABLE = (types.uint64[::1], types.uint64[::1], types.int32[::1])
_COUNTS = types.int64[::1]
_I, _B = types.int64, types.boolean
_FORM = (_I, _I, _I, _I, _I)
_SIGNATURES: dict[Any, tuple[Any, ...]] = {
    lane_masks: (_S, _I, types.boolean[:, ::1]),
    addresses: (_V, _S, *_FORM, _I, types.uint64[:, ::1], types.boolean[:, ::1]),
    load: (_V, _S, _MASK, *_FORM, _I, _I, _B, _I, *_TABLE, _COUNTS),
    store: (_V, _S, _MASK, *_FORM, _I, _I, _B, *_TABLE, _COUNTS),
    load_scalar: (_S, _I, _I, _I, _I, _I, *_TABLE[:2]),
}


def prepare() -> None:
    """Compile every function of this module, or load it from the cache."""
    compilation.compile_now(_SIGNATURES)
