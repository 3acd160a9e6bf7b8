"""Seldom searches for garbage that reference counts do not free, in the processes of a run.

A listing of 500 instructions becomes some 10,000 objects that stay. With Python's own thresholds, searches among them
take half of the time in which listings are parsed and decoded, and a fifth of the processor time of a cold run.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLDS = (50_000, 20, 20)
"""For ``gc.set_threshold``: new objects before the youngest are searched, and such searches before the older are."""

_BEFORE = gc.get_threshold()


@contextmanager
def none_so_far() -> Iterator[None]:
    """Search for no garbage in the body, and later never among the objects that exist at its end.

    After it, ``THRESHOLDS`` hold. A search also copies each page that a forked process shares with its parent, so the
    processes that fork ranks import everything in such a body.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(*THRESHOLDS)
        if enabled:
            gc.enable()


def set_aside() -> None:
    """Search for garbage now, and later never among the objects that exist then.

    For a case that calls ``gc.collect`` often: its searches take as long as it takes to visit what it makes itself, and
    not the hundreds of thousands of objects of the kernels that its process has decoded.
    """
    gc.collect()
    gc.freeze()


def as_before() -> None:
    """Undo ``none_so_far``: search among all objects, as often as when this module was imported."""
    gc.unfreeze()
    gc.set_threshold(*_BEFORE)
