"""Single events of the memory of mode ``weak``, as native functions for tests."""

from __future__ import annotations

import numpy as np
from numba import njit

from harness.emulator.native import caches, spans, weak_state

_STORE = [
    weak_state.LANDED, weak_state.AT_AGENT, weak_state.AT_SYSTEM, weak_state.LOW, weak_state.HIGH,
    weak_state.IS_DIRTY, weak_state.UNIT,
]  # fmt: skip
"""Fields of a store that ``stores`` returns."""


@njit
def line_of(state, address, start, end):
    return spans.find_line(state, address, start, end, 0)


@njit
def store(state, unit, line, at, size, scope):
    """Store ``size`` bytes at offset ``at``, which are at ``weak_state.NEW_DATA`` of the state."""
    low, high = caches.mask_of(at, size)
    caches.store_line(state, unit, line, low, high, state + weak_state.NEW_DATA, scope, 0, 0)


@njit
def load(state, unit, line, scope):
    return caches.load_line(state, unit, line, scope)


@njit
def exchange(state, unit, line, at, scope, new):
    """Replace a dword; return the old one."""
    old = caches.read_for_exchange(state, unit, line, at, 4, scope)
    caches.write_for_exchange(state, unit, line, at, 4, scope, old, new, 0, 0)
    return old


@njit
def invalidate(state, unit, scope):
    caches.invalidate(state, unit, scope)


@njit
def write_back(state, unit, scope):
    return caches.write_back(state, unit, scope)


@njit
def answered(state, address, size):
    return caches.answered(state, address, size)


@njit
def stores(line, fields):
    """Return the addresses of a line's stores, oldest first, and their fields."""
    count = caches.get64(line + weak_state.STORES)
    places, out = np.empty(count, np.int64), np.empty((count, len(fields)), np.int64)
    each = caches.get64(line + weak_state.FIRST)
    for i in range(count):
        places[i] = each
        for k in range(len(fields)):
            out[i, k] = caches.get64(each + fields[k])
        each = caches.get64(each + weak_state.NEXT_STORE)
    return places, out


def fields() -> np.ndarray:
    return np.array(_STORE, np.int64)
