"""Single events of the memory of mode ``weak``, as native functions for tests."""

from __future__ import annotations

import numpy as np
from numba import njit

from harness.emulator.native import caches as c

_STORE = [
    c.LANDED, c.AT_AGENT, c.AT_SYSTEM, c.LOW, c.HIGH, c.IS_DIRTY, c.UNIT,
]  # fmt: skip
"""Fields of a store that ``stores`` returns."""


@njit
def line_of(state, address, start, end):
    return c.find_line(state, address, start, end, 0)


@njit
def store(state, unit, line, at, size, scope):
    """Store ``size`` bytes at offset ``at``, which are at ``c.NEW_DATA`` of the state."""
    low, high = c.mask_of(at, size)
    c.store_line(state, unit, line, low, high, state + c.NEW_DATA, scope, 0, 0)


@njit
def load(state, unit, line, scope):
    return c.load_line(state, unit, line, scope)


@njit
def exchange(state, unit, line, at, scope, new):
    """Replace a dword; return the old one."""
    old = c.read_for_exchange(state, unit, line, at, 4, scope)
    c.write_for_exchange(state, unit, line, at, 4, scope, old, new, 0, 0)
    return old


@njit
def invalidate(state, unit, scope):
    c.invalidate(state, unit, scope)


@njit
def write_back(state, unit, scope):
    return c.write_back(state, unit, scope)


@njit
def answered(state, address, size):
    return c.answered(state, address, size)


@njit
def stores(line, fields):
    """Return the addresses of a line's stores, oldest first, and their fields."""
    count = c.get64(line + c.STORES)
    places, out = np.empty(count, np.int64), np.empty((count, len(fields)), np.int64)
    each = c.get64(line + c.FIRST)
    for i in range(count):
        places[i] = each
        for k in range(len(fields)):
            out[i, k] = c.get64(each + fields[k])
        each = c.get64(each + c.NEXT_STORE)
    return places, out


def fields() -> np.ndarray:
    return np.array(_STORE, np.int64)
