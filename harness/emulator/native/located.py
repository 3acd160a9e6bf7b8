"""Addresses of one wavefront's access to global memory, checked against the allocations, for modes that judge them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit, types  # type: ignore[attr-defined]

from harness.emulator import compilation
from harness.emulator.native import memory as native
from harness.emulator.native import record
from harness.emulator.native.raw import get64, pointer

# Called by compiled functions only.
_helper: Any = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)  # type: ignore[call-overload]


@_helper
def find(starts, ends, count, address, size):
    """Return the index of the allocation that holds [address, address + size), or -1.

    ``starts`` and ``ends`` are addresses of uint64[count], sorted.
    """
    low, high, at = 0, count, np.uint64(address)
    while low < high:
        middle = (low + high) >> 1
        if np.uint64(get64(starts + 8 * middle)) <= at:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return -1
    end = np.uint64(get64(ends + 8 * low - 8))
    # No sum of address and size: it may pass 2**64.
    return low - 1 if at <= end and np.uint64(size) <= end - at else -1


@_helper
def lanes_of(wave, form, areg, sreg, soffset, offset, size):
    """Return the lanes that access memory as bool[64], their addresses uint64[64], and their number.

    ``wave`` is the address of a wavefront's record, whose scratch space the arrays are in.
    """
    # More pairs of vector registers than there are.
    v = carray(pointer(wave + record.VECTORS), (256, 1, 64, 2), np.uint32)
    s = carray(pointer(wave), (1, 128), np.uint32)
    mask = carray(pointer(wave + record.MASK), (1, 64), np.bool_)
    at = carray(pointer(wave + record.ADDRESSES), (64,), np.uint64)
    takes = carray(pointer(wave + record.TAKES), (64,), np.bool_)
    active = get64(wave + record.EXEC_BYTES)
    for lane in range(64):
        mask[0, lane] = (active >> lane & 1) != 0
    count = native._taking(form, v, s, mask, 0, areg, sreg, soffset, offset, size, at, takes)
    return takes, at, count


@_helper
def range_of(takes, at, count, size):
    """Return the address of the first of ``count`` lanes that access memory, and the bytes from each to the next one.

    They are ``size`` if the lanes access bytes in succession, 0 if all access the same ones, and -1 otherwise.
    """
    lane = 0
    while not takes[lane]:
        lane += 1
    first, step = at[lane], np.uint64(size)
    if count == 64:
        # A short loop without conditions, which LLVM turns into vector instructions.
        step = np.uint64(0) if at[1] == first else step
        different = np.uint64(0)
        for i in range(64):
            different |= at[i] ^ (first + np.uint64(i) * step)
        return np.int64(first), np.int64(step) if different == 0 else np.int64(-1)
    expected, is_first = first, True
    for i in range(lane + 1, 64):
        if takes[i]:
            if is_first:
                step = np.uint64(0) if at[i] == first else step
                is_first = False
            expected += step
            if at[i] != expected:
                return np.int64(first), np.int64(-1)
    return np.int64(first), np.int64(step)


def _locate(wave, form, areg, sreg, soffset, offset, size, atomic, starts, ends, count, addresses, lanes):
    """Write the addresses and numbers of the accessing lanes of a wavefront; return how many there are.

    -1: an access is in no allocation, or ``atomic`` and misaligned. ``wave`` is the address of its record, ``starts``
    and ``ends`` those of the table of ``count`` allocations. ``addresses`` uint64[64], ``lanes`` int64[64].
    """
    takes, at, _ = lanes_of(wave, form, areg, sreg, soffset, offset, size)
    n = 0
    for lane in range(64):
        if takes[lane]:
            if find(starts, ends, count, np.int64(at[lane]), size) < 0:
                return -1
            if atomic and at[lane] % np.uint64(size) != 0:
                return -1
            addresses[n], lanes[n] = at[lane], lane
            n += 1
    return n


locate: Any = njit(cache=True)(_locate)
_I = types.int64
_SIGNATURES: dict[Any, tuple[Any, ...]] = {
    locate: (_I, *native._FORM, _I, types.boolean, _I, _I, _I, types.uint64[::1], types.int64[::1])
}


def prepare() -> None:
    """Compile ``locate``, or load it from the cache."""
    compilation.compile_now(_SIGNATURES)
