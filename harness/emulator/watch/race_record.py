"""Mode ``race`` across processes: each rank records what its kernels do, and the records are judged together.

    watch = Race(choices, recording=Recording(rank, turns))      # in each rank's process; ``turns`` they share
    ...                                                          # launches; give() and expect() for the host
    state = race_judge.judge([recording.to_plain(), ...])        # in one of them, of all; raises DataRace

A record lists the calls of ``HappensBefore`` in the order of the process. What orders accesses of different ranks are
scoped accesses and the hosts. Each of these happens in a *turn* of its own: a lock that all processes share, and a
counter that numbers the turns. Merged by turn, the records are an order in which the accesses may have happened:
every scoped load stands behind the store whose value it read. The judge executes that order on one ``HappensBefore``.
Where the plain accesses stand between two turns does not matter, since nothing there orders them.

Processes map one memory at different addresses. A record therefore has the file and the offset of each shared mapping
that a launch can access (``/proc/self/maps``), and the judge identifies bytes by these; all other memory is private to
its process. The accesses of the host to shared memory, which ``touch`` records, are judged where kernels access the
same lines.

A wavefront that polls would record each of its loads. So an iteration that repeats the previous one, without a store,
replaces it; the first one stays, in case it has released something.
"""

from __future__ import annotations

import fcntl
import mmap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from harness.emulator.execution.allocations import Table
from harness.emulator.listing.instructions import Instruction
from harness.emulator.operations.access import STORE
from harness.emulator.watch.race_order import Launched
from harness.emulator.watch.race_report import Effect

EVENT_LIMIT = 30_000
"""Events of one rank; a longer record is not judged. It takes the judge about a second for each 10,000 if there may be
a race, and a sixth of it otherwise."""

Plain = dict[str, Any]
"""A record as plain data: None, int, str, bytes, and lists and tuples of those."""

_RECENT = 256
"""Events of a work-group among which an iteration is looked for."""


class Turns:
    """The turns of the processes that have ``file`` open, each by an ``open`` of its own. The file has one page."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._count = np.frombuffer(mmap.mmap(file, mmap.PAGESIZE), np.int64, 1)

    @contextmanager
    def take(self) -> Iterator[int]:
        """Exclude the other processes from the body; returns the number of the turn."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            self._count[0] += 1
            yield int(self._count[0])
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


class Recording:
    """The record of one rank; has the methods of ``HappensBefore`` that a rank's process calls."""

    def __init__(self, rank: int, turns: Turns, table: Table, limit: int = EVENT_LIMIT) -> None:
        self.rank = rank
        self.full = False
        """True if more events happened than ``limit``."""
        self._turns = turns
        self._limit = limit
        self._turn = 0
        self._events: list[tuple[Any, ...] | None] = []
        self._dropped = 0
        self._launches: list[Launched] = []
        self._sites: dict[int, tuple[int, Instruction]] = {}
        self._table: Table | None = None
        self._maps: list[tuple[Any, ...]] = []
        self._shared: list[tuple[int, int]] = []
        # Of each work-group, what happened since its last store.
        self._recent: dict[tuple[int, int], _Recent] = {}
        self.update(table)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Make the body a turn."""
        with self._turns.take() as self._turn:
            yield

    def to_plain(self) -> Plain:
        """Return the record as plain data."""
        sites = [
            (i.index, i.line, i.text, [(f.file, f.line, f.column) for f in i.frames]) for _, i in self._sites.values()
        ]
        events = [] if self.full else [event for event in self._events if event is not None]
        return {"rank": self.rank, "full": self.full, "sites": sites, "events": events}

    # -- the calls of HappensBefore ----------------------------------------------------------------------------------

    def start(self, launch: Launched, table: Table) -> int:
        self.update(table)
        with self.turn():
            self._add("start", launch.kernel, launch.grid, launch.waves_per_group)
        self._launches.append(launch)
        return len(self._launches) - 1

    def create(self, key: int, waves: Iterable[int]) -> None:
        self._add("create", key, list(waves))

    def barrier(self, key: int, group: int) -> None:
        self._add_repeatable(key, group, "barrier", key, group)

    def end(self, key: int, wave: int) -> None:
        self._add("end", key, wave)

    def finish(self, key: int) -> None:
        self._add("finish", key)
        self._recent.clear()

    def give(self, token: str) -> None:
        with self.turn():
            self._add("give", token)

    def expect(self, token: str, givers: int) -> None:
        with self.turn():  # where a rank has two records, it must not stand before the launches of the other one
            self._add("expect", token, givers)

    def is_shared(self, address: int) -> bool:
        """Return whether other processes can access the byte, as far as known at the last ``update``."""
        return any(start <= address < end for start, end in self._shared)

    def touch(self, kind: str, call: str, where: tuple[str, int], size: int, addresses: np.ndarray) -> None:
        """The host loads or stores ``size`` bytes at each of ``addresses`` by ``call``, in a file's line ``where``."""
        with self.turn():
            self._add("touch", kind, call, *where, size, addresses.astype(np.uint64).tobytes())

    def write_back(self, key: int, wave: int, scope: int) -> None:
        self._add_of_wave("write_back", key, wave, scope)

    def invalidate(self, key: int, wave: int, scope: int) -> None:
        self._add_of_wave("invalidate", key, wave, scope)

    def wait(self, key: int, wave: int, left: int) -> None:
        self._add_of_wave("wait", key, wave, left)

    def access(self, key: int, wave: int, effects: Sequence[Effect]) -> None:
        plain = tuple(self._plain(key, effect) for effect in effects)
        if any(effect.kind == STORE for effect in effects):
            self._recent.pop((key, wave // self._launches[key].waves_per_group), None)
            self._add("access", key, wave, plain)
        else:
            self._add_of_wave("access", key, wave, plain)

    def scalar(self, key: int, wave: int, effect: Effect) -> None:
        self._add_of_wave("scalar", key, wave, self._plain(key, effect))

    # -- events ------------------------------------------------------------------------------------------------------

    def update(self, table: Table) -> None:
        """The memory that this process accesses from now on. An allocation with the label "" is named by the records of
        other processes."""
        if table is self._table:  # reading the mappings takes longer than a small kernel
            return
        self._table = table
        maps = _pieces(table)
        if maps != self._maps:
            self._maps = maps
            self._shared = [(start, end) for start, end, file, *_ in maps if file is not None]
            self._add("map", maps)

    def _plain(self, key: int, effect: Effect) -> tuple[Any, ...]:
        site, _ = self._sites.setdefault(id(effect.instruction), (len(self._sites), effect.instruction))
        addresses, size, lanes = effect.addresses, effect.size, effect.lanes
        count, lowest = len(lanes), int(lanes[0])
        if int(lanes[-1]) - lowest == count - 1:
            mask = (1 << count) - 1 << lowest
        else:
            mask = sum(1 << lane for lane in lanes.tolist())
        run = count == 1 or bool((addresses[1:] - addresses[:-1] == size).all())
        return effect.kind, effect.scope, site, size, int(addresses[0]) if run else addresses.tobytes(), mask

    def _add_of_wave(self, call: str, key: int, wave: int, *arguments: Any) -> None:
        self._add_repeatable(key, wave // self._launches[key].waves_per_group, call, key, wave, *arguments)

    def _add_repeatable(self, key: int, group: int, *event: Any) -> None:
        if self.full:
            return
        if (recent := self._recent.get((key, group))) is None:
            recent = self._recent[key, group] = _Recent()
        for place in recent.repeated(event):
            self._events[place] = None
            self._dropped += 1
        recent.add(event, len(self._events))
        self._add(*event)

    def _add(self, *event: Any) -> None:
        if self.full:
            return
        if len(self._events) - self._dropped >= self._limit:
            self.full = True
            self._events.clear()
            self._recent.clear()
            return
        self._events.append((self._turn, *event))


class _Recent:
    """The last events of a work-group, without their turns, each with its place in the record."""

    def __init__(self) -> None:
        self._events: list[tuple[tuple[Any, ...], int]] = []
        self._counts: Counter[tuple[Any, ...]] = Counter()

    def repeated(self, event: tuple[Any, ...]) -> list[int]:
        """Return the places of the last but one iteration, and forget it, if ``event`` begins a third one at least and
        the last one had the same events."""
        if self._counts[event] <= 2:  # most events are new, and this is faster than to look for them
            return []
        *_, first, second = (n for n, (earlier, _) in enumerate(self._events) if earlier == event)
        before, last = self._events[first:second], self._events[second:]
        if Counter(e for e, _ in before) != Counter(e for e, _ in last):
            return []
        self._forget(first, second)
        return [place for _, place in before]

    def add(self, event: tuple[Any, ...], place: int) -> None:
        self._events.append((event, place))
        self._counts[event] += 1
        self._forget(0, len(self._events) - _RECENT)

    def _forget(self, first: int, end: int) -> None:
        if end > first:
            for event, _ in self._events[first:end]:
                self._counts[event] -= 1
                if not self._counts[event]:
                    del self._counts[event]
            del self._events[first:end]


def _pieces(table: Table) -> list[tuple[Any, ...]]:
    """Return the parts of the accessible memory, sorted: (start, end, file, offset, label, offset in the allocation).

    ``file`` is None and ``offset`` the address for memory that no other process has.
    """
    shared = _shared_mappings()
    pieces: list[tuple[Any, ...]] = []
    for allocation in table.allocations:
        at = allocation.address
        for start, end, file, offset in shared:
            if end <= at or start >= allocation.end:
                continue
            if at < start:
                pieces.append((at, start, None, at, allocation.label, at - allocation.address))
                at = start
            stop = min(end, allocation.end)
            pieces.append((at, stop, file, offset + at - start, allocation.label, at - allocation.address))
            at = stop
        if at < allocation.end:
            pieces.append((at, allocation.end, None, at, allocation.label, at - allocation.address))
    return pieces


def _shared_mappings() -> list[tuple[int, int, str, int]]:
    """Return the shared mappings of this process, sorted: start, end, the file's device and inode, offset."""
    mappings = []
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        span, access, offset, device, inode = line.split(maxsplit=5)[:5]
        if access.endswith("s"):
            start, _, end = span.partition("-")
            mappings.append((int(start, 16), int(end, 16), f"{device}:{inode}", int(offset, 16)))
    return mappings
