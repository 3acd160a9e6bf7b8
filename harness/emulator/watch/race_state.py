"""Happens-before state of mode ``race``: judges each access against the earlier ones, and raises ``DataRace``.

The state receives what wavefronts do as calls with plain arguments: a launch has a key, a wavefront its number in the
launch. So it judges the running launches (``race.Race``) and recorded ones of several processes (``race_record``)
alike. ``race_order`` defines what orders accesses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import numpy as np

from harness.emulator.faults import DataRace
from harness.emulator.operations.access import ATOMIC, LOAD, STORE
from harness.emulator.watch.race_history import (
    UNTOUCHED,
    Cell,
    Released,
    add,
    are_copies,
    continue_release,
    events,
    may_come_back,
    ordered,
    same,
)
from harness.emulator.watch.race_order import (
    AGENT,
    ISSUED,
    LENIENT,
    NOTHING,
    STRICT,
    SYSTEM,
    WAVE,
    Launched,
    Order,
    Taken,
    Thread,
    distance,
    meet,
)
from harness.emulator.watch.race_report import UNSPECIFIED, Effect, Event, describe, missing
from harness.emulator.watch.shadow import Region, Shadow

_COPIES = "one loads a copy of what the other has loaded before it stores"


class HappensBefore:
    """See the module docstring. ``unspecified`` and ``replicated`` have one message for each pair of instructions.

    ``raises_unspecified``: a race that exists only in the strict reading raises too.
    """

    def __init__(self, raises_unspecified: bool = False) -> None:
        self.raises_unspecified = raises_unspecified
        self.unspecified: list[str] = []
        self.replicated: list[str] = []
        self._reported: set[tuple[frozenset[tuple[str, int]], str]] = set()
        self.clear()

    def clear(self) -> None:
        """Forget all accesses and launches; the messages are kept."""
        self._shadow = Shadow()
        self._threads: list[Thread] = []
        self._by_wave: dict[tuple[int, int], Thread] = {}
        # A launch has a negative thread number, its key, which stands for its end.
        self._launches: dict[int, Launched] = {}
        # What each rank's next launch knows at its start, and what the running one will pass on to it.
        self._stream: dict[int, tuple[Order, ...]] = {}
        self._ends: dict[int, tuple[Order, ...]] = {}
        # Everything published at system scope: for readers of other processes' values.
        self._outside = (NOTHING, NOTHING)
        # The host's accesses count as those of a thread of its own.
        self._hosts: dict[int, Thread] = {}
        # Host synchronizations: what each of their givers knew, and those from which a rank has still to learn.
        self._given: dict[str, list[tuple[Order, ...]]] = {}
        self._expected: dict[int, dict[str, int]] = {}

    @property
    def copies(self) -> list[frozenset[tuple[str, int]]]:
        """The pairs of instructions in ``replicated``, each by its kernel and index."""
        return [pair for pair, why in self._reported if why == _COPIES]

    def history(self, addresses: np.ndarray, size: int) -> Iterator[tuple[int, int, Cell]]:
        """Yield the history of ``size`` bytes at each of ``addresses``: first byte, number of bytes, and their cell."""
        for address in addresses.tolist():
            cells = self._shadow.cells(address, size)
            for cell, group in groupby(enumerate(cells), key=lambda pair: pair[1]):
                places = [at for at, _ in group]
                if cell is not None:
                    yield address + places[0], len(places), cell

    # -- launches ----------------------------------------------------------------------------------------------------

    def start(self, launch: Launched) -> int:
        """A launch begins: return its key. The launches of one rank run one after the other."""
        key = -1 - len(self._launches)
        self._launches[key] = launch
        self._learn(launch.rank)
        self._ends[key] = self._stream[launch.rank]
        return key

    def create(self, key: int, waves: Iterable[int]) -> None:
        """Wavefronts are created."""
        launch = self._launches[key]
        for wave in waves:
            thread = Thread(len(self._threads), launch, key, wave, self._stream[launch.rank])
            self._threads.append(thread)
            self._by_wave[key, wave] = thread

    def barrier(self, key: int, group: int) -> None:
        """All live wavefronts of a work-group have arrived at an s_barrier."""
        per_group = self._launches[key].waves_per_group
        waves = range(group * per_group, (group + 1) * per_group)
        meet([self._by_wave[key, wave] for wave in waves if (key, wave) in self._by_wave])

    def end(self, key: int, wave: int) -> None:
        """A wavefront has executed s_endpgm."""
        thread = self._by_wave[key, wave]
        thread.wait(0)
        known = [view.known.join(view.seen[AGENT]).join(view.seen[SYSTEM]) for view in thread.views]
        self._ends[key] = _joined(self._ends[key], known)

    def finish(self, key: int) -> None:
        """The last wavefront of a launch has ended."""
        launch = self._launches[key]
        for wave in range(launch.waves):
            self._by_wave.pop((key, wave))
        others = [
            Order(*({t: n for t, n in clock.items() if t < 0 or self._threads[t].key != key} | {key: 1} for clock in o))
            for o in self._ends.pop(key)
        ]
        self._stream[launch.rank] = tuple(others)

    # -- the host ----------------------------------------------------------------------------------------------------

    def give(self, rank: int, token: str) -> None:
        """The host of ``rank`` passes on, under ``token``, that its launches so far have ended."""
        self._learn(rank)
        self._given.setdefault(token, []).append(self._stream[rank])

    def expect(self, rank: int, token: str, givers: int) -> None:
        """The host of ``rank`` learns, at its next launch, what has been given under ``token``; at later ones too,
        until ``givers`` ranks have given."""
        self._expected.setdefault(rank, {})[token] = givers

    def touch(self, launch: Launched, effects: Sequence[Effect]) -> None:
        """The host of a rank accesses memory, after its launches so far and before the later ones."""
        self._learn(launch.rank)
        known, thread = self._stream[launch.rank], self._hosts.get(launch.rank)
        if thread is None:
            key = -1 - len(self._launches)
            self._launches[key] = launch
            thread = self._hosts[launch.rank] = Thread(len(self._threads), launch, key, 0, known)
            self._threads.append(thread)
        thread.launch = launch
        for view, order in zip(thread.views, known, strict=True):
            view.known = order
        for effect in effects:
            thread.reached[ISSUED] += 1
            self._note(Event.of(effect, thread, thread.reached[ISSUED]), False, {})
        done = [thread.reached[ISSUED]] * len(NOTHING)
        self._stream[launch.rank] = tuple(order.having(thread.number, done) for order in known)

    def _learn(self, rank: int) -> None:
        known = self._stream.get(rank, (NOTHING, NOTHING))
        expected = self._expected.get(rank, {})
        for token, givers in list(expected.items()):
            given = self._given.get(token, [])
            for order in given:
                known = _joined(known, order)
            if len(given) >= givers:
                del expected[token]
        self._stream[rank] = known

    # -- wavefronts --------------------------------------------------------------------------------------------------

    def write_back(self, key: int, wave: int, scope: int) -> None:
        """``buffer_wbl2``"""
        self._by_wave[key, wave].write_back(scope, self._threads)

    def invalidate(self, key: int, wave: int, scope: int) -> None:
        """``buffer_inv``"""
        self._by_wave[key, wave].invalidate(scope)

    def wait(self, key: int, wave: int, left: int) -> None:
        """``s_waitcnt vmcnt(left)``"""
        self._by_wave[key, wave].wait(left)

    def access(self, key: int, wave: int, effects: Sequence[Effect]) -> None:
        """A memory instruction that ``s_waitcnt vmcnt`` counts; without effects if it needs no check."""
        thread = self._by_wave[key, wave]
        taken: dict[int, Taken] = {}
        for effect in effects:
            self._note(Event.of(effect, thread, thread.reached[ISSUED] + 1), effect.outside, taken)
        thread.access(tuple(taken.values()))

    def scalar(self, key: int, wave: int, effect: Effect) -> None:
        """A scalar access: lgkmcnt waits for it, and it counts as complete when nothing else is in flight."""
        thread = self._by_wave[key, wave]
        thread.reached[ISSUED] += 1
        self._note(Event.of(effect, thread, thread.reached[ISSUED]), False, {})

    def _note(self, event: Event, outside: bool, taken: dict[int, Taken]) -> None:
        """Check an access against the history of its bytes, and add it; ``taken`` collects released values it reads."""
        thread, scope = event.thread, event.scope
        region = self._shadow.region(event.addresses, event.size)
        mine: Released | None = None
        if event.kind != LOAD and scope > WAVE:
            orders = thread.publish()
            mine = Released(scope, thread.rank, thread.place, orders)
            if scope == SYSTEM:
                self._outside = self._outside[0].join(orders[0]), self._outside[1].join(orders[1])
        if outside:
            taken[0] = SYSTEM, self._outside
        new = {}
        for cell in region.cells:
            old = cell or UNTOUCHED
            writes = tuple(e for e in old.writes if self._concurrent(e, event, region, cell))
            if event.kind == LOAD:
                new[cell] = Cell(old.writes, add(old.readers, event), old.released)
            else:
                readers = None
                for e in events(old.readers):
                    # Own reads are kept, to recognize a replicated copy that follows.
                    if self._concurrent(e, event, region, cell) or e.thread is thread:
                        readers = add(readers, e)
                released: tuple[Released, ...] = () if mine is None else (mine,)
                if event.kind == ATOMIC and mine is not None:
                    released = continue_release(old.released, mine)
                new[cell] = Cell((*(e for e in writes if not same(e, event)), event), readers, released)
            if event.kind != STORE and scope > WAVE:
                for r in old.released:
                    relation = distance(thread, r.place, r.rank)
                    if min(r.scope, scope) >= relation:
                        taken[id(r)] = relation, r.orders
        region.replace(new)

    def _concurrent(self, first: Event, second: Event, region: Region, cell: Cell | None) -> bool:
        """Return False if ``first`` happens before ``second``, True if both are atomic and neither undoes the other;
        otherwise report a race."""
        if first.thread is second.thread or ordered(first, second, STRICT):
            return False
        reach = min(first.scope, second.scope) if first.atomic and second.atomic else WAVE
        if reach >= second.thread.relation(first.thread) and not may_come_back(first, second):
            return True
        copies = are_copies(first, second, cell)
        if copies:
            messages, why = self.replicated, _COPIES
        elif ordered(first, second, LENIENT):
            messages, why = self.unspecified, UNSPECIFIED
        else:
            messages, why = None, missing(first, second)
        pair = frozenset((e.thread.launch.kernel, e.instruction.index) for e in (first, second)), why
        if messages is not None and pair in self._reported:
            return False
        message, details = describe(first, second, region.address_of(cell), region.bytes_of(cell), why)
        if messages is None or (messages is self.unspecified and self.raises_unspecified):
            raise DataRace(message, **details)
        self._reported.add(pair)
        messages.append(message)
        return False


def _joined(some: Iterable[Order], others: Iterable[Order]) -> tuple[Order, ...]:
    return tuple(a.join(b) for a, b in zip(some, others, strict=True))
