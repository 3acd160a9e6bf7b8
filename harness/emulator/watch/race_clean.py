"""Native code judges the records of all ranks: whether they are surely free of races.

Most records are, and native code finds that out in a fraction of the time of ``HappensBefore``. Like ``race_shadow``,
it may find a conflict where there is none, and never the opposite. Records with a conflict are left to
``HappensBefore``, which also knows what is only unspecified, and has the words for both.
"""

from __future__ import annotations

import functools
import heapq
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from harness.emulator.native import race_judge, race_order
from harness.emulator.native import race_state as st
from harness.emulator.operations.access import LOAD
from harness.emulator.watch.choices import Seeded
from harness.emulator.watch.race_log import KINDS, Native
from harness.emulator.watch.race_order import WAVE
from harness.emulator.watch.race_places import LINE_BITS, Map, Places, parts_in

_OF_WAVEFRONTS = {
    "end": race_judge.END,
    "write_back": race_judge.WRITE_BACK,
    "invalidate": race_judge.INVALIDATE,
    "wait": race_judge.WAIT,
}
_CLOCKS = race_order.ORDER_BYTES >> 3
_MOST_WORDS = 1 << 20
"""Words of events that native code executes at once."""

_MOST_WAVES, _MOST_BYTES = 1 << 20, 1 << 10
"""Wavefronts of a launch, and bytes of an access by one lane."""

Step = tuple[int, int, str, Any]
"""A turn, the rank, and what happens in it: words of events for native code, or a call with its arguments."""


def are_clean(records: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if native code finds nothing in the records, as of ``Recording.to_plain``, that may be a race."""
    try:
        _Judge(records).judge()
    except _MayBeRaceError:
        return False
    return True


class _MayBeRaceError(Exception):
    """Native code cannot decide whether there is a race."""


@functools.cache
def _native() -> Native:
    """Return the state of native code, which the records that this process judges use one after the other."""
    race_judge.prepare()
    return Native(Seeded(0), lambda: None)


class _Judge:
    """Executes the events of all ranks in the order of their turns; see ``HappensBefore`` for the calls."""

    def __init__(self, records: Sequence[Mapping[str, Any]]) -> None:
        self._native = _native()
        self._native.begin(records=False)
        places = Places()
        self._ranks = [_Rank(record, places, self._native, number) for number, record in enumerate(records)]
        lines = [rank.lines() for rank in self._ranks]
        self._lines = np.unique(np.concatenate([np.zeros(0, np.uint64), *lines]))
        self._words = array("q")
        # Orders, five clocks each: what each rank's next launch knows, and what was given under a token.
        self._streams: dict[int, np.ndarray] = {}
        self._given: dict[str, list[np.ndarray]] = {}
        self._expected: dict[int, dict[str, int]] = {}
        # Of each rank's host, the number of its thread, and its launch.
        self._hosts: dict[int, tuple[int, np.ndarray]] = {}

    def judge(self) -> None:
        """Raise ``_MayBeRaceError`` at an access that may be a race."""
        for _, rank, call, arguments in heapq.merge(*(rank.steps for rank in self._ranks), key=lambda step: step[:2]):
            if call == "words":
                self._words.extend(arguments)
                if len(self._words) > _MOST_WORDS:
                    self._execute()
            else:
                self._execute()
                getattr(self, f"_{call}")(rank, *arguments)
        self._execute()

    def _execute(self) -> None:
        words, self._words = self._words, array("q")
        address, count = words.buffer_info()
        clean = race_judge.executed(self._native.state, address, address + 8 * count)
        self._native.raise_failure()
        if not clean or self._native.full:
            raise _MayBeRaceError

    def _start(self, rank: int, launch: np.ndarray) -> None:
        self._learn(rank)
        launch[st.BEFORE >> 3 :] = np.tile(self._streams[rank], 2)

    def _finish(self, rank: int, launch: np.ndarray) -> None:
        race_order.finish(launch.ctypes.data)
        self._streams[rank] = launch[st.AFTER >> 3 :].copy()

    def _give(self, rank: int, token: str) -> None:
        self._learn(rank)
        self._given.setdefault(token, []).append(self._streams[rank].copy())

    def _expect(self, rank: int, token: str, givers: int) -> None:
        self._expected.setdefault(rank, {})[token] = givers

    def _touch(self, rank: int, kind: str, site: int, size: int, addresses: np.ndarray) -> None:
        self._learn(rank)
        parts = parts_in(addresses, size, self._lines)
        if not parts:
            return
        if rank not in self._hosts:
            number = self._native.add_threads(1)
            launch = _launch(self._native, -1 - rank, rank, 1, number, 1)
            self._hosts[rank] = number, launch
            self._words.extend((race_judge.CREATE, launch.ctypes.data, 0, 1))
            self._execute()
        number, _ = self._hosts[rank]
        known = self._streams[rank].ctypes.data
        race_judge.begun(self._native.state, number, known)
        self._words.extend((race_judge.SCALAR, number, KINDS[kind], WAVE, size, site, len(parts), 0))
        self._words.extend(chain.from_iterable(parts))
        self._execute()
        race_judge.having(self._native.state, known, number)

    def _learn(self, rank: int) -> None:
        known = self._streams.setdefault(rank, np.zeros(_CLOCKS, np.int64))
        expected = self._expected.get(rank, {})
        for token, givers in list(expected.items()):
            given = self._given.get(token, [])
            for order in given:
                race_judge.learned(self._native.state, known.ctypes.data, order.ctypes.data)
            if len(given) >= givers:
                del expected[token]


class _Rank:
    """One rank's record, as ``steps``. ``number``: that of the record."""

    def __init__(self, record: Mapping[str, Any], places: Places, native: Native, number: int) -> None:
        self._rank: int = record["rank"]
        self._native = native
        self._number = number
        self._map = Map([], self._rank, places)
        self._sites = [text for _, _, text, _ in record["sites"]]
        self._launches: list[_Launch] = []
        # The parts of all accesses: address, and bytes in succession.
        self._runs: list[tuple[int, int]] = []
        self._parts: list[np.ndarray] = []
        self.steps: list[Step] = list(self._steps(record["events"]))

    def lines(self) -> np.ndarray:
        """Return the lines that the kernels access."""
        parts = np.concatenate([np.array(self._runs, np.int64).reshape(-1, 2), *self._parts]).astype(np.uint64)
        first = parts[:, 0] >> LINE_BITS
        last = parts.sum(axis=1) - np.uint64(1) >> LINE_BITS
        lines = [first]
        while (more := first < last).any():
            first, last = first[more] + np.uint64(1), last[more]
            lines.append(first)
        accessed: np.ndarray = np.unique(np.concatenate(lines))
        return accessed

    def _steps(self, events: Sequence[Sequence[Any]]) -> Iterator[Step]:
        words, of_turn = array("q"), 0
        for turn, call, *arguments in events:
            if words and (turn != of_turn or call in ("start", "finish", "give", "expect", "touch")):
                yield of_turn, self._rank, "words", words
                words = array("q")
            of_turn = turn
            if call == "map":
                self._map = self._map.replaced_by(arguments[0])
            elif call in ("give", "expect"):
                yield turn, self._rank, call, arguments
            elif call == "touch":
                kind, _, _, line, size, addresses = arguments
                where = self._map.translate(np.frombuffer(addresses, np.uint64))
                yield turn, self._rank, call, (kind, self._site(line), size, where)
            elif call == "start":
                self._launches.append(self._started(*arguments))
                yield turn, self._rank, call, (self._launches[-1].fields,)
            elif call == "finish":
                launch = self._launch(arguments[0])
                launch.live[:] = bytes(len(launch.live))
                yield turn, self._rank, call, (launch.fields,)
            else:
                self._add(words, call, *arguments)
        if words:
            yield of_turn, self._rank, "words", words

    def _started(self, kernel: str, grid: Sequence[int], per_group: int) -> _Launch:
        waves = int(np.prod(grid, dtype=object)) * per_group
        if not 0 < per_group <= waves <= _MOST_WAVES:
            raise _MayBeRaceError
        first = self._native.add_threads(waves)
        key = self._number << 24 | len(self._launches)
        fields = _launch(self._native, key, self._rank, per_group, first, waves)
        return _Launch(fields, first, per_group, bytearray(waves))

    def _launch(self, key: int) -> _Launch:
        if not 0 <= key < len(self._launches):
            raise _MayBeRaceError
        return self._launches[key]

    def _add(self, words: array[int], call: str, key: int, *arguments: Any) -> None:
        """Add an event of a launch to those for native code."""
        launch = self._launch(key)
        if call == "create":
            for wave in arguments[0]:
                launch.create(wave)
                words.extend((race_judge.CREATE, launch.fields.ctypes.data, wave, 1))
        elif call == "barrier":
            words.extend((race_judge.BARRIER, launch.thread(arguments[0] * launch.per_group), 0, 0))
        elif call == "access":
            wave, effects = arguments
            thread = launch.thread(wave)
            if not effects:
                words.extend((race_judge.ACCESS, thread, 0, 0, 0, 0, 0, 0))
            for effect in effects:
                self._add_access(words, race_judge.ACCESS, thread, effect, effect is not effects[-1])
        elif call == "scalar":
            wave, effect = arguments
            self._add_access(words, race_judge.SCALAR, launch.thread(wave), effect, False)
        else:
            wave, number = (*arguments, 0)[:2]
            words.extend((_OF_WAVEFRONTS[call], launch.thread(wave), number, 0))

    def _add_access(self, words: array[int], event: int, thread: int, effect: Sequence[Any], follows: bool) -> None:
        kind, scope, site, size, addresses, mask = effect
        if not (0 < size <= _MOST_BYTES and 0 < mask < 1 << 64):
            raise _MayBeRaceError
        start = self._map.run(addresses, mask.bit_count() * size) if isinstance(addresses, int) else None
        if start is not None:
            self._runs.append((start, mask.bit_count() * size))
            misaligned, count = start % size, 1
        else:
            if isinstance(addresses, int):
                where = np.arange(mask.bit_count(), dtype=np.uint64) * np.uint64(size) + np.uint64(addresses)
            else:
                where = np.frombuffer(addresses, np.uint64)
            parts = _parts(self._map.translate(where), size)
            if scope > WAVE and kind != LOAD and len(np.unique(where)) < len(where):
                raise _MayBeRaceError  # each lane's is a write of its own
            self._parts.append(parts)
            misaligned, count = scope > WAVE and (parts[:, 0] % size).any(), len(parts)
        if scope > WAVE and misaligned:
            raise _MayBeRaceError  # not atomic
        words.extend((event, thread, KINDS[kind], scope, size, self._site(site), count, follows))
        if start is not None:
            words.extend(self._runs[-1])
        else:
            words.frombytes(parts.tobytes())

    def _site(self, number: int) -> int:
        return self._number << 32 | number


class _Launch(NamedTuple):
    """A launch: its fields for native code, the number of its first thread, the wavefronts of a work-group, and which
    wavefronts have been created. Native code trusts the numbers of threads, so records are checked here."""

    fields: np.ndarray
    first: int
    per_group: int
    live: bytearray

    def create(self, wave: int) -> None:
        if not 0 <= wave < len(self.live) or self.live[wave]:
            raise _MayBeRaceError
        self.live[wave] = 1

    def thread(self, wave: int) -> int:
        """Return the number of the thread of a wavefront."""
        if not 0 <= wave < len(self.live) or not self.live[wave]:
            raise _MayBeRaceError
        return self.first + wave


def _parts(addresses: np.ndarray, size: int) -> np.ndarray:
    """Return accesses of ``size`` bytes each as parts, int64[n, 2]: address, and bytes in succession."""
    begins = np.flatnonzero(addresses[1:] - addresses[:-1] != size) + 1
    bounds = np.concatenate([[0], begins, [len(addresses)]])
    return np.stack([addresses[bounds[:-1]].astype(np.int64), np.diff(bounds) * size], axis=1)


def _launch(native: Native, key: int, rank: int, per_group: int, first: int, waves: int) -> np.ndarray:
    """Return the fields of a launch; see ``native.race_state``."""
    launch = np.zeros(st.LAUNCH_FIELDS, np.int64)
    for field, value in (
        (st.RS, native.state), (st.KEY, key), (st.RANK, rank), (st.PER_GROUP, per_group), (st.FIRST_THREAD, first),
        (st.WAVES, waves),
    ):  # fmt: skip
        launch[field >> 3] = value
    return launch
