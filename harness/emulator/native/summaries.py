"""Sums over the lanes of an access, where mode ``trace`` is interpreted; compiled by numba, shapes as in ``memory``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from harness.emulator import compilation
from harness.emulator.native.memory import _jit


@_jit
def summarize(addresses, taking, counts, firsts):
    """Write how many lanes of each wavefront access memory to ``counts`` int64[W], and the address of the first one to
    ``firsts`` uint64[W]; return the lowest and the highest address."""
    lowest, highest = ~np.uint64(0), np.uint64(0)
    for w in range(taking.shape[0]):
        count = 0
        for lane in range(64):
            if taking[w, lane]:
                if count == 0:
                    firsts[w] = addresses[w, lane]
                count += 1
                lowest, highest = min(lowest, addresses[w, lane]), max(highest, addresses[w, lane])
        counts[w] = count
    return lowest, highest


@_jit
def count_bytes(addresses, taking, start, width, size, counts):
    """Add ``size`` to the bucket of ``counts`` int64[n] in which each accessing lane's address lies.

    Buckets have ``width`` bytes each, from the address ``start`` on.
    """
    for w in range(taking.shape[0]):
        for lane in range(64):
            if taking[w, lane]:
                # An access may begin after the end, in the same dword.
                counts[min((addresses[w, lane] - start) // width, np.uint64(len(counts) - 1))] += size
    return 0


_U = types.uint64
_LANES = (types.uint64[:, ::1], types.boolean[:, ::1])
_SIGNATURES: dict[Any, tuple[Any, ...]] = {
    summarize: (*_LANES, types.int64[::1], types.uint64[::1]),
    count_bytes: (*_LANES, _U, _U, types.int64, types.int64[::1]),
}


def prepare() -> None:
    """Compile the functions above, or load them from the cache."""
    compilation.compile_now(_SIGNATURES)
