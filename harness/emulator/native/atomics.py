"""Read-modify-writes on global memory for each lane of an atomic instruction, compiled by numba.

They use the host's own atomic instructions, so they are atomic across rank processes that map the same memory. Shapes
and results are those of ``native``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from harness.emulator import compilation
from harness.emulator.native import memory as native
from harness.emulator.native.memory import _address, _inline, _jit, find_allocation
from harness.emulator.native.words import cas32, cas64, load32, load64, swap32, swap64


@_inline
def _fold32(op, old, value):
    signed_old, signed_value = np.int32(old), np.int32(value)
    if op == native.ADD:
        return np.uint32(old + value)
    if op == native.SUB:
        return np.uint32(old - value)
    if op == native.AND:
        return np.uint32(old & value)
    if op == native.OR:
        return np.uint32(old | value)
    if op == native.XOR:
        return np.uint32(old ^ value)
    if op == native.SMIN:
        return old if signed_old < signed_value else value
    if op == native.SMAX:
        return old if signed_old > signed_value else value
    if op == native.UMIN:
        return min(value, old)
    if op == native.UMAX:
        return max(value, old)
    if op == native.INC:
        return np.uint32(0) if old >= value else np.uint32(old + np.uint32(1))
    if op == native.DEC:
        return value if old == 0 or old > value else np.uint32(old - np.uint32(1))
    x, y = np.uint32(old).view(np.float32), np.uint32(value).view(np.float32)
    if op == native.FADD:
        return np.float32(x + y).view(np.uint32)
    if op == native.FMIN:
        return old if x < y or y != y else value
    return old if x > y or y != y else value


@_inline
def _fold64(op, old, value):
    signed_old, signed_value = np.int64(old), np.int64(value)
    if op == native.ADD:
        return np.uint64(old + value)
    if op == native.SUB:
        return np.uint64(old - value)
    if op == native.AND:
        return np.uint64(old & value)
    if op == native.OR:
        return np.uint64(old | value)
    if op == native.XOR:
        return np.uint64(old ^ value)
    if op == native.SMIN:
        return old if signed_old < signed_value else value
    if op == native.SMAX:
        return old if signed_old > signed_value else value
    if op == native.UMIN:
        return min(value, old)
    if op == native.UMAX:
        return max(value, old)
    if op == native.INC:
        return np.uint64(0) if old >= value else np.uint64(old + np.uint64(1))
    if op == native.DEC:
        return value if old == 0 or old > value else np.uint64(old - np.uint64(1))
    x, y = np.uint64(old).view(np.float64), np.uint64(value).view(np.float64)
    if op == native.FADD:
        return np.float64(x + y).view(np.uint64)
    if op == native.FMIN:
        return old if x < y or y != y else value
    return old if x > y or y != y else value


@_jit
def fold32(op, old, value):
    """Return the new value of a 32-bit read-modify-write other than a swap."""
    return _fold32(op, old, value)


@_jit
def fold64(op, old, value):
    """Return the new value of a 64-bit read-modify-write other than a swap."""
    return _fold64(op, old, value)


@_jit
def replace32(address, expected, value):
    """Perform the host's compare-and-swap; return the old value of the dword."""
    return cas32(address, expected, value)


@_jit
def replace64(address, expected, value):
    """Perform ``replace32`` on 64 bits."""
    return cas64(address, expected, value)


@_jit
def atomic32(v, s, mask, form, areg, sreg, soffset, offset, op, data, dst, starts, ends, peer, counts):
    """Perform a 32-bit read-modify-write per lane, in lane order. ``dst`` < 0: the old value is not returned."""
    hint = 0
    for w in range(mask.shape[0]):
        for lane in range(64):
            if not mask[w, lane]:
                continue
            address, inside = _address(form, v, s, w, lane, areg, sreg, soffset, offset, 4)
            if not inside:
                if dst >= 0:
                    v[dst >> 1, w, lane, dst & 1] = 0
                continue
            hint = find_allocation(starts, ends, address, np.uint64(4), max(hint, 0))
            if hint < 0 or address & np.uint64(3):
                return w * 64 + lane
            counts[peer[hint]] += 1
            value = v[data >> 1, w, lane, data & 1]
            if op == native.SWAP:
                old = swap32(address, value)
            elif op == native.CMPSWAP:
                old = cas32(address, v[(data + 1) >> 1, w, lane, (data + 1) & 1], value)
            else:
                old = load32(address)
                while True:
                    seen = cas32(address, old, _fold32(op, old, value))
                    if seen == old:
                        break
                    old = seen
            if dst >= 0:
                v[dst >> 1, w, lane, dst & 1] = old
    return -1


@_jit
def atomic64(v, s, mask, form, areg, sreg, soffset, offset, op, data, dst, starts, ends, peer, counts):
    """Perform a 64-bit read-modify-write per lane; register pairs are even-aligned."""
    hint = 0
    for w in range(mask.shape[0]):
        for lane in range(64):
            if not mask[w, lane]:
                continue
            address, inside = _address(form, v, s, w, lane, areg, sreg, soffset, offset, 8)
            if not inside:
                if dst >= 0:
                    v[dst >> 1, w, lane, 0] = 0
                    v[dst >> 1, w, lane, 1] = 0
                continue
            hint = find_allocation(starts, ends, address, np.uint64(8), max(hint, 0))
            if hint < 0 or address & np.uint64(7):
                return w * 64 + lane
            counts[peer[hint]] += 1
            value = np.uint64(v[data >> 1, w, lane, 0]) | np.uint64(v[data >> 1, w, lane, 1]) << np.uint64(32)
            if op == native.SWAP:
                old = swap64(address, value)
            elif op == native.CMPSWAP:
                low = np.uint64(v[(data >> 1) + 1, w, lane, 0])
                old = cas64(address, low | np.uint64(v[(data >> 1) + 1, w, lane, 1]) << np.uint64(32), value)
            else:
                old = load64(address)
                while True:
                    seen = cas64(address, old, _fold64(op, old, value))
                    if seen == old:
                        break
                    old = seen
            if dst >= 0:
                v[dst >> 1, w, lane, 0] = np.uint32(old & np.uint64(0xFFFFFFFF))
                v[dst >> 1, w, lane, 1] = np.uint32(old >> np.uint64(32))
    return -1


_I = native._I
_ATOMIC = (native._V, native._S, native._MASK, *native._FORM, _I, _I, _I, *native._TABLE, native._COUNTS)
_SIGNATURES: dict[Any, tuple[Any, ...]] = {
    fold32: (_I, types.uint32, types.uint32),
    fold64: (_I, types.uint64, types.uint64),
    replace32: (types.uint64, types.uint32, types.uint32),
    replace64: (types.uint64, types.uint64, types.uint64),
    atomic32: _ATOMIC,
    atomic64: _ATOMIC,
}


def prepare() -> None:
    """Compile the functions above, or load them from the cache."""
    compilation.compile_now(_SIGNATURES)
