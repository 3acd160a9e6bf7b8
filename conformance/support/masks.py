"""Mask patterns: the lanes that a mask keeps."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

LANES = 64
"""Lanes of a wavefront, the unit of the blocks of cases."""

MASKS = ("none", "range", "even", "odd", "last", "holes", "all_false", "rows", "columns", "fourths")
"""``none``: no mask argument, n is a multiple of the block. ``range``: only offsets < n. The others also mask lanes
below n off, by a pattern that differs from rank to rank; ``rows`` and ``columns`` those of a tile of 16 columns.
``fourths``: one lane of four, so that all lanes of a wavefront keep the same one of a thread's elements."""


def kept_lanes(pattern: str, count: int, rank: int) -> NDArray[Any]:
    """Return which of ``count`` elements the calling ``rank`` moves, as booleans.

    The array is cached and shared between calls: do not write to it.
    """
    return _kept(pattern, count, rank)


@functools.lru_cache(maxsize=2048)
def _kept(pattern: str, count: int, rank: int) -> NDArray[Any]:
    index = np.arange(count)
    if pattern in ("none", "range"):
        return np.ones(count, dtype=bool)
    if pattern in ("even", "odd"):
        return np.equal((index + rank + (pattern == "odd")) % 2, 0)
    if pattern == "last":
        return np.equal(index, count - 1)
    if pattern == "holes":
        # Runs of 1 to 3 lanes between gaps, so that masks change inside and across a thread's elements.
        return np.less((index * 7 + rank * 3) % 11, 6)
    if pattern == "fourths":
        return np.equal(index % 4, (rank + 2 + index // 256) % 4)
    if pattern in ("rows", "columns"):
        number = index // 16 if pattern == "rows" else index % 16
        return np.less((number * 7 + rank * 3) % 11, 6)
    return np.zeros(count, dtype=bool)
