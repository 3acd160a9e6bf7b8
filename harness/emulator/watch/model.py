"""The memory of the native functions of mode ``weak`` (``native.caches`` and ``native.flights``), and its events."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from harness.emulator.native import flights, issuing, weak_state
from harness.emulator.watch.choices import Choices
from harness.emulator.watch.decisions import Decisions

FIRST_BUCKETS, FIRST_MOVES, FIRST_QUEUES, FIRST_DIRTY = 1024, 1024, 1024, 4096
_NO_EPOCH = -1
_LOOKED_THROUGH = 4096


class Model(Decisions):
    """One model of memory. ``deliver(operation, data)``, ``fold(access, value)``, ``local(token, access)``: see
    ``Weak``."""

    def __init__(
        self,
        choices: Choices,
        covers_siblings: bool,
        deliver: Callable[[int, int], int] | None = None,
        fold: Callable[[int, int], int] | None = None,
        local: Callable[[int, int], int] | None = None,
    ) -> None:
        flights.prepare()
        services = {
            weak_state.MORE: self._more,
            weak_state.DELIVER: deliver,
            weak_state.FOLD: fold,
            weak_state.LOCAL: local,
        }
        super().__init__(choices, {f: each for f, each in services.items() if each is not None}, weak_state.MORE)
        self._log = np.zeros((weak_state.EVENTS, weak_state.EVENT_FIELDS), np.int64)
        self._buckets = np.zeros(FIRST_BUCKETS, np.int64)
        self._moving = np.zeros(FIRST_MOVES, np.int64)
        self._queued = np.zeros(FIRST_QUEUES, np.int64)
        self._dirty = np.zeros(FIRST_DIRTY, np.int64)
        self._set(weak_state.COVERS, covers_siblings)
        self._set(weak_state.LOG, self._log.ctypes.data)
        self._set(weak_state.ACT, flights.perform.address)
        self._set(weak_state.ENTER, flights.enter.address)
        self._set(weak_state.NOW, 1)
        self.reset(outside=True)

    def reset(self, outside: bool) -> None:
        """Start afresh before kernels run: everything earlier is complete and visible to them."""
        if len(self._buckets) > FIRST_BUCKETS:
            self._buckets = np.zeros(FIRST_BUCKETS, np.int64)
        elif self._get(weak_state.PAGES):
            self._buckets.fill(0)
        for field in (
            weak_state.PAGES, weak_state.LAST_PAGE, weak_state.FIRST_LINE, weak_state.LAST_LINE,
            weak_state.FIRST_DIRTY, weak_state.LAST_DIRTY, weak_state.DIRTY, weak_state.MOVES,
            weak_state.QUEUES_USED, weak_state.QUEUES,
        ):  # fmt: skip
            self._set(field, 0)
        self.forget_structures()
        self._set(weak_state.OUTSIDE, outside)
        self._set_tables()
        self._set(weak_state.ELSEWHERE, self.call(issuing.NEW_UNIT, -1, 0, 0))

    def _set_tables(self) -> None:
        self._set(weak_state.HASH, self._buckets.ctypes.data)
        self._set(weak_state.BUCKETS, len(self._buckets))
        self._set(weak_state.MOVING, self._moving.ctypes.data)
        self._set(weak_state.MOVES_CAPACITY, len(self._moving))
        self._set(weak_state.DIRTY_TABLE, self._dirty.ctypes.data)
        self._set(weak_state.DIRTY_CAPACITY, len(self._dirty))
        self._set(weak_state.QUEUED, self._queued.ctypes.data)
        self._set(weak_state.QUEUES_CAPACITY, len(self._queued))

    def call(self, task: int, a: int = 0, b: int = 0, d: int = 0, e: int = 0) -> int:
        """Perform a call of ``flights.run``; raises what a function that it called has raised."""
        result: int = flights.run(self.address, task, a, b, d, e)
        if self._failure is not None:
            self.raise_failure()
        return result

    def tick(self) -> int:
        """Let time pass; return it."""
        self._state[weak_state.NOW >> 3] += 1
        return self._get(weak_state.NOW)

    @property
    def changes(self) -> int:
        """Number of stores, promotions, and loads that did not see the newest value."""
        return self._get(weak_state.CHANGES)

    @property
    def dirty(self) -> int:
        """Number of stores that have not reached the system."""
        return self._get(weak_state.DIRTY)

    @property
    def epoch(self) -> int:
        """Number of acquires that made the copies of allocations outdated."""
        return self._get(weak_state.EPOCH)

    @property
    def issued(self) -> int:
        """Number of operations so far."""
        return self._get(weak_state.ISSUED)

    @property
    def outside(self) -> bool:
        """True if other processes, or the host between launches, may change memory."""
        return bool(self._get(weak_state.OUTSIDE))

    @property
    def scratch(self) -> int:
        """Address of the bytes of a store by a test, and of an atomic's old value."""
        return self.address + weak_state.NEW_DATA

    @property
    def seen_line(self) -> np.ndarray:
        """The line as the last load saw it, uint8[128]."""
        return self._memory[weak_state.SEEN_LINE : weak_state.SEEN_LINE + weak_state.LINE]

    def may_move(self) -> bool:
        """Return whether stores or fences are in flight, or stores that a cache may evict."""
        evictable = self._get(weak_state.EVICTS) and self._get(weak_state.DRIFT) and self.dirty
        return bool(evictable) or self.call(issuing.STORES_MOVING) > 0

    def adversary(self, drift: int, evicts: bool) -> None:
        """Set how often memory moves by itself, 0 for never, and whether caches evict."""
        self._set(weak_state.DRIFT, drift)
        self._set(weak_state.EVICTS, evicts)

    def events(self) -> list[tuple[int, ...]]:
        """Return the last events, oldest first: see ``native.weak_state``."""
        count = self._get(weak_state.LOGGED)
        first = max(0, count - weak_state.EVENTS)
        return [tuple(self._log[i % weak_state.EVENTS].tolist()) for i in range(first, count)]

    # -- functions that native code calls ----------------------------------------------------------------------------

    def _more(self, wanted: int, size: int) -> int:
        if wanted == weak_state.MEMORY:
            self.more_memory(size)
        elif wanted == weak_state.TABLE:
            self._buckets = np.zeros(4 * size, np.int64)
            self._set_tables()
        elif wanted == weak_state.QUEUED_TABLE:
            self._queued = np.concatenate([self._queued, np.zeros_like(self._queued)])
            self._set_tables()
        elif wanted == weak_state.MORE_DIRTY:
            self._dirty = np.concatenate([self._dirty, np.zeros_like(self._dirty)])
            self._set_tables()
        else:
            self._moving = np.concatenate([self._moving, np.zeros_like(self._moving)])
            self._set_tables()
        return 0


def at_address(address: int, size: int) -> np.ndarray:
    """Return the bytes at an address as an array, without a copy."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


class Image:
    """A copy of an allocation: later changes by other processes may still be seen as this old value."""

    def __init__(self, start: int, size: int) -> None:
        self.size = size
        self._copy = np.empty(size, np.uint8)
        self._fields = np.array([self._copy.ctypes.data, 0, start, size], np.int64)
        self.address = self._fields.ctypes.data

    def take(self, epoch: int) -> None:
        """Copy the allocation as it is in this epoch."""
        start = int(self._fields[weak_state.IMAGE_START >> 3])
        ctypes.memmove(self._copy.ctypes.data, start, self.size)
        self._fields[weak_state.IMAGE_EPOCH >> 3] = epoch

    def postpone(self) -> None:
        """Let the first access to the allocation copy it."""
        self._fields[weak_state.IMAGE_EPOCH >> 3] = _NO_EPOCH

    @property
    def taken(self) -> bool:
        """True once the copy has been made."""
        return bool(self._fields[weak_state.IMAGE_EPOCH >> 3] != _NO_EPOCH)


class Images:
    """Copies of the allocations, which are made again for each run of kernels."""

    def __init__(self) -> None:
        # By address.
        self._images: dict[int, Image] = {}
        # Kept between launches: new memory costs more time than the copy.
        self._spare: dict[int, Image] = {}

    def forget(self) -> None:
        """Start afresh."""
        self._spare, self._images = self._images, {}

    def of(self, table: tuple[np.ndarray, np.ndarray, np.ndarray], epoch: int, arguments: np.ndarray) -> list[Image]:
        """Return a copy of each allocation of a table, for a launch with ``arguments`` (uint8[n]).

        Made now, if there is none, for the allocations that the arguments lead to, and for the others at the first
        access: a process has heaps of many tests, and copying them all takes longer than a small kernel.
        """
        starts, ends, _ = table
        reachable = _reachable(starts, ends, arguments)
        copies = []
        for start, end, reached in zip(starts.tolist(), ends.tolist(), reachable.tolist(), strict=True):
            image = self._images.get(start)
            if image is None or image.size < end - start:
                image = self._spare.pop(start, None)
                if image is None or image.size != end - start:
                    image = Image(start, end - start)
                image.postpone()
                self._images[start] = image
            if reached and not image.taken:
                image.take(epoch)
            copies.append(image)
        return copies


def _reachable(starts: np.ndarray, ends: np.ndarray, arguments: np.ndarray) -> np.ndarray:
    """Return as bool[allocations] those that the arguments point to, or an address in such memory, and so on.

    Addresses are looked for in the first ``_LOOKED_THROUGH`` bytes of what an address points to.
    """
    reached = np.zeros(len(starts), np.bool_)
    words, looked = arguments[: arguments.nbytes & ~7].view(np.uint64), set()
    while len(words):
        at = np.searchsorted(starts, words, side="right") - 1
        inside = (at >= 0) & (words < ends[np.maximum(at, 0)]) if len(starts) else np.zeros(len(words), np.bool_)
        places = dict(zip(words[inside].tolist(), at[inside].tolist(), strict=True))
        parts = []
        for address, allocation in places.items():
            reached[allocation] = True
            first = (address + 7) & ~7
            size = min(int(ends[allocation]) - first, _LOOKED_THROUGH) & ~7
            if first not in looked and size > 0:
                looked.add(first)
                parts.append(at_address(first, size).view(np.uint64))
        words = np.concatenate(parts) if parts else np.zeros(0, np.uint64)
    return reached
