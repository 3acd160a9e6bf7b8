"""The local data share: ``ds_*`` instructions and copies to LDS for each lane, compiled by numba.

``lds`` uint8[groups * group_bytes] is the data share of a chunk, the parts of its work-groups one after the other;
``wave``, ``per_group`` and ``first`` determine the part of a wavefront. A lane's address is its register ``areg`` plus
``offset``, in bytes, without wrapping. Functions return the flat lane of the first access beyond ``group_bytes``, or
-1; shapes as in ``native``. M0 limits nothing: since gfx9 it need not be set up for LDS (LLVM AMDGPUUsage).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from harness.emulator import compilation
from harness.emulator.native import memory as native
from harness.emulator.native.atomics import _fold32, _fold64
from harness.emulator.native.memory import SWAP, _inline, _jit, find_allocation
from harness.emulator.native.words import peek8, peek16, peek32, peek64, poke8, poke16, poke32, poke64

# Read-modify-writes that only LDS has, in addition to those of ``native``; ``second`` is the second data register.
RSUB, MSKOR, CMPST, CMPST_F, WRAP = range(32, 37)


@_inline
def _narrow(value, size, signed, half, old):
    """Return a byte or short as stored in a register: extended, or in one half with the other half of ``old``."""
    if signed:
        bits = np.uint32(8 * size)
        top = np.uint32(1) << (bits - np.uint32(1))
        value = np.uint32((value ^ top) - top)
    if half == 1:
        return np.uint32(old & np.uint32(0xFFFF0000)) | np.uint32(value & np.uint32(0xFFFF))
    if half == 2:
        return np.uint32(old & np.uint32(0xFFFF)) | np.uint32(value << np.uint32(16))
    return value


@_jit
def load(v, mask, wave, per_group, first, lds, group_bytes, areg, offset, second, dst, size, signed, half):
    """ds_read: load ``size`` bytes (1, 2 or 4n) to ``dst``; if ``second`` >= 0, as many to the next registers."""
    data = np.uint64(lds.ctypes.data)
    words = size >> 2
    for w in range(mask.shape[0]):
        base = (wave[w] // per_group - first) * group_bytes
        for lane in range(64):
            if not mask[w, lane]:
                continue
            inner = np.int64(v[areg >> 1, w, lane, areg & 1])
            if inner + max(offset, second) + size > group_bytes:
                return w * 64 + lane
            at = data + np.uint64(base + inner + offset)
            if size >= 4:
                for i in range(words):
                    v[(dst + i) >> 1, w, lane, (dst + i) & 1] = peek32(at + np.uint64(4 * i))
                if second >= 0:
                    at = data + np.uint64(base + inner + second)
                    for i in range(words):
                        v[(dst + words + i) >> 1, w, lane, (dst + words + i) & 1] = peek32(at + np.uint64(4 * i))
                continue
            value = np.uint32(peek8(at)) if size == 1 else np.uint32(peek16(at))
            v[dst >> 1, w, lane, dst & 1] = _narrow(value, size, signed, half, v[dst >> 1, w, lane, dst & 1])
    return -1


@_jit
def store(v, mask, wave, per_group, first, lds, group_bytes, areg, offset, src, size, high):
    """ds_write: the counterpart of ``load``; ``high``: a narrow store takes bits 16 and up."""
    data = np.uint64(lds.ctypes.data)
    for w in range(mask.shape[0]):
        base = (wave[w] // per_group - first) * group_bytes
        for lane in range(64):
            if not mask[w, lane]:
                continue
            inner = np.int64(v[areg >> 1, w, lane, areg & 1]) + offset
            if inner + size > group_bytes:
                return w * 64 + lane
            at = data + np.uint64(base + inner)
            if size >= 4:
                for i in range(size >> 2):
                    poke32(at + np.uint64(4 * i), v[(src + i) >> 1, w, lane, (src + i) & 1])
                continue
            value = v[src >> 1, w, lane, src & 1]
            if high:
                value = np.uint32(value >> np.uint32(16))
            if size == 1:
                poke8(at, np.uint8(value & np.uint32(0xFF)))
            else:
                poke16(at, np.uint16(value & np.uint32(0xFFFF)))
    return -1


@_inline
def _new32(op, old, value, second):
    if op == SWAP:
        return value
    if op == RSUB:
        return np.uint32(value - old)
    if op == MSKOR:
        return np.uint32((old & ~value) | second)
    if op == CMPST:
        return second if old == value else old
    if op == CMPST_F:
        return second if np.uint32(old).view(np.float32) == np.uint32(value).view(np.float32) else old
    if op == WRAP:
        return np.uint32(old - value) if old >= value else np.uint32(old + second)
    return _fold32(op, old, value)


@_inline
def _new64(op, old, value, second):
    if op == SWAP:
        return value
    if op == RSUB:
        return np.uint64(value - old)
    if op == MSKOR:
        return np.uint64((old & ~value) | second)
    if op == CMPST:
        return second if old == value else old
    if op == CMPST_F:
        return second if np.uint64(old).view(np.float64) == np.uint64(value).view(np.float64) else old
    return _fold64(op, old, value)


@_inline
def _pair(v, w, lane, register):
    low = np.uint64(v[register >> 1, w, lane, register & 1])
    return low | np.uint64(v[(register + 1) >> 1, w, lane, (register + 1) & 1]) << np.uint64(32)


@_jit
def atomic(v, mask, wave, per_group, first, lds, group_bytes, areg, offset, op, src, second, dst, size):
    """Perform a read-modify-write of 4 or 8 bytes per lane, in lane order; ``dst`` < 0: no old value is returned."""
    data = np.uint64(lds.ctypes.data)
    for w in range(mask.shape[0]):
        base = (wave[w] // per_group - first) * group_bytes
        for lane in range(64):
            if not mask[w, lane]:
                continue
            inner = np.int64(v[areg >> 1, w, lane, areg & 1]) + offset
            if inner + size > group_bytes or inner % size:
                return w * 64 + lane
            at = data + np.uint64(base + inner)
            if size == 4:
                word = peek32(at)
                other = v[second >> 1, w, lane, second & 1] if second >= 0 else np.uint32(0)
                poke32(at, _new32(op, word, v[src >> 1, w, lane, src & 1], other))
                if dst >= 0:
                    v[dst >> 1, w, lane, dst & 1] = word
            else:
                old = peek64(at)
                wide = _pair(v, w, lane, second) if second >= 0 else np.uint64(0)
                poke64(at, _new64(op, old, _pair(v, w, lane, src), wide))
                if dst >= 0:
                    v[dst >> 1, w, lane, dst & 1] = np.uint32(old & np.uint64(0xFFFFFFFF))
                    v[(dst + 1) >> 1, w, lane, (dst + 1) & 1] = np.uint32(old >> np.uint64(32))
    return -1


@_jit
def load_transposed(v, mask, wave, per_group, first, lds, group_bytes, areg, offset, dst, size, bits):
    """ds_read_*_tr_*: see ``operations.lds``. Each of 16 lanes reads ``size`` bytes, ``bits`` per element."""
    data = np.uint64(lds.ctypes.data)
    count = 8 * size // bits
    row = np.zeros((16, 12), np.uint8)
    out = np.zeros((16, 3), np.uint32)
    element_mask = np.uint32((1 << bits) - 1)
    for w in range(mask.shape[0]):
        base = (wave[w] // per_group - first) * group_bytes
        for group in range(0, 64, 16):
            for i in range(16):
                lane = group + i
                row[i, :] = 0
                if not mask[w, lane]:
                    continue
                inner = np.int64(v[areg >> 1, w, lane, areg & 1]) + offset
                if inner + size > group_bytes:
                    return w * 64 + lane
                for k in range(size):
                    row[i, k] = peek8(data + np.uint64(base + inner + k))
            out[:, :] = 0
            for i in range(16):
                for k in range(count):
                    # Element (k, i) of a matrix that the lanes hold row after row, ``count`` elements per lane.
                    source, first_bit = (16 * k + i) // count, (16 * k + i) % count * bits
                    byte = first_bit >> 3
                    pair = np.uint32(row[source, byte])
                    if byte + 1 < size:
                        pair |= np.uint32(row[source, byte + 1]) << np.uint32(8)
                    value = (pair >> np.uint32(first_bit & 7)) & element_mask
                    to = k * bits
                    out[i, to >> 5] |= value << np.uint32(to & 31)
                    if (to & 31) + bits > 32:
                        out[i, (to >> 5) + 1] |= value >> np.uint32(32 - (to & 31))
            for i in range(16):
                if mask[w, group + i]:
                    for k in range(size >> 2):
                        v[(dst + k) >> 1, w, group + i, (dst + k) & 1] = out[i, k]
    return -1


@_jit
def copy(mask, address, inside, at, wave, per_group, first, lds, group_bytes, size, signed, starts, ends, peer, counts):
    """Perform a load to LDS: from ``address`` uint64[W, 64] to ``at`` int64[W, 64]; narrow data is stored as a dword.

    A lane that is not ``inside`` its buffer writes 0. Returns the flat lane of the first bad access to global memory,
    or -2 minus the flat lane of the first access beyond the data share.
    """
    data = np.uint64(lds.ctypes.data)
    width = max(size, 4)
    hint = 0
    for w in range(mask.shape[0]):
        base = (wave[w] // per_group - first) * group_bytes
        for lane in range(64):
            if not mask[w, lane]:
                continue
            inner = at[w, lane]
            if inner < 0 or inner + width > group_bytes:
                return -2 - (w * 64 + lane)
            to = data + np.uint64(base + inner)
            if not inside[w, lane]:
                for i in range(width >> 2):
                    poke32(to + np.uint64(4 * i), np.uint32(0))
                continue
            source = address[w, lane]
            hint = find_allocation(starts, ends, source, np.uint64(size), max(hint, 0))
            if hint < 0:
                return w * 64 + lane
            counts[peer[hint]] += 1
            if size >= 4:
                for i in range(size >> 2):
                    poke32(to + np.uint64(4 * i), peek32(source + np.uint64(4 * i)))
                continue
            value = np.uint32(peek8(source)) if size == 1 else np.uint32(peek16(source))
            poke32(to, _narrow(value, size, signed, 0, np.uint32(0)))
    return -1


_I, _B, _V, _MASK = native._I, native._B, native._V, native._MASK
_SHARE = (types.int64[::1], _I, _I, types.uint8[::1], _I)
_SIGNATURES: dict[Any, tuple[Any, ...]] = {
    load: (_V, _MASK, *_SHARE, _I, _I, _I, _I, _I, _B, _I),
    store: (_V, _MASK, *_SHARE, _I, _I, _I, _I, _B),
    atomic: (_V, _MASK, *_SHARE, _I, _I, _I, _I, _I, _I, _I),
    load_transposed: (_V, _MASK, *_SHARE, _I, _I, _I, _I, _I),
    copy: (_MASK, types.uint64[:, ::1], _MASK, types.int64[:, ::1], *_SHARE, _I, _B, *native._TABLE, native._COUNTS),
}


def prepare() -> None:
    """Compile the functions above, or load them; a process that never uses the data share skips this."""
    compilation.compile_now(_SIGNATURES)
