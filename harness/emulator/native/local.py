"""Registers of LDS accesses and scalar loads in flight in mode ``weak``, at addresses passed as int64.

Such an access runs on a copy of its wavefront's record, made when it is issued. When it has run, what it has written is
copied to the wavefront: vector registers in the lanes of the copy's EXEC, and scalar registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit, types

from harness.emulator import compilation
from harness.emulator.native import record
from harness.emulator.native.raw import copy, get64, put32
from harness.emulator.native.words import peek32


class Numbers:
    """Numbers that native functions read: ``count`` of them as int64 at ``address``."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._array = np.array(numbers, np.int64)
        self.address = int(self._array.ctypes.data)
        self.count = len(numbers)


def _take(target, source, pairs, count):
    """Copy the scalar registers and ``count`` pairs of vector registers of a record."""
    copy(target, source, record.SET_UP)
    for i in range(count):
        at = record.VECTORS + record.PAIR_BYTES * get64(pairs + 8 * i)
        copy(target + at, source + at, record.PAIR_BYTES)


def _give(target, source, vectors, count, scalars, scalar_count):
    """Copy vector registers, in the lanes of the source's EXEC, and scalar registers."""
    lanes = get64(source + record.EXEC_BYTES)
    for i in range(count):
        register = get64(vectors + 8 * i)
        at = record.VECTORS + (register >> 1) * record.PAIR_BYTES + 4 * (register & 1)
        for lane in range(64):
            if lanes >> lane & 1:
                put32(target + at + 8 * lane, np.int64(peek32(np.uint64(source + at + 8 * lane))))
    for i in range(scalar_count):
        at = 4 * get64(scalars + 8 * i)
        put32(target + at, np.int64(peek32(np.uint64(source + at))))


take: Any = njit(cache=True)(_take)
give: Any = njit(cache=True)(_give)
_I = types.int64
_SIGNATURES: dict[Any, tuple[Any, ...]] = {take: (_I,) * 4, give: (_I,) * 6}


def prepare() -> None:
    """Compile the functions above, or load them from the cache."""
    compilation.compile_now(_SIGNATURES)
