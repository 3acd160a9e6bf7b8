"""Judges the records of all ranks together; see ``race_record``."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from harness.emulator.listing.instructions import Instruction
from harness.emulator.watch.race_clean import are_clean
from harness.emulator.watch.race_order import HOST, WAVE, Launched
from harness.emulator.watch.race_places import LINE_BITS, Map, Places, lanes_of, parts_in
from harness.emulator.watch.race_record import Plain
from harness.emulator.watch.race_report import Effect
from harness.emulator.watch.race_state import HappensBefore
from harness.isa.sources import Frame

_ACCESSES = ("access", "scalar")


def judge(records: Sequence[Plain], raises_unspecified: bool = False) -> HappensBefore:
    """Return the state after the records of all ranks, or an empty one if they are clean. Raises DataRace."""
    return HappensBefore(raises_unspecified) if are_clean(records) else executed(records, raises_unspecified)


def executed(records: Sequence[Plain], raises_unspecified: bool = False) -> HappensBefore:
    """Execute the records of all ranks on one state and return it. Raises DataRace."""
    state = HappensBefore(raises_unspecified)
    places = Places()
    ranks = [_Rank(record, places) for record in records]
    lines = np.unique(np.concatenate([np.zeros(0, np.uint64), *(rank.lines() for rank in ranks)]))
    # All events of one turn are of one rank, and stay in its order.
    steps = heapq.merge(*(rank.steps(state, lines) for rank in ranks), key=lambda step: step[:2])
    for _, _, execute in steps:
        execute()
    return state


class _Rank:
    """One rank's record with the judge's addresses."""

    def __init__(self, record: Plain, places: Places) -> None:
        self.rank: int = record["rank"]
        self._sites = [
            Instruction(index, line, text, text.split(maxsplit=1)[0], (), {}, tuple(Frame(*f) for f in frames))
            for index, line, text, frames in record["sites"]
        ]
        self._map = Map([], self.rank, places)
        self._keys: list[int] = []
        self._events: list[tuple[Any, ...]] = []
        for turn, call, *arguments in record["events"]:
            if call == "map":
                self._map = Map(arguments[0], self.rank, places)
            else:
                self._events.append((turn, call, *self._translated(call, *arguments)))

    def _translated(self, call: str, *arguments: Any) -> tuple[Any, ...]:
        if call == "start":
            kernel, grid, waves_per_group = arguments
            return (Launched(self.rank, kernel, tuple(grid), waves_per_group, self._map.place),)
        if call == "touch":
            kind, text, file, line, size, addresses = arguments
            site = Instruction(0, 0, text, text, (), {}, (Frame(file, line, 0),))
            launch = Launched(self.rank, HOST, (1, 1, 1), 1, self._map.place)
            return launch, kind, site, size, self._map.translate(np.frombuffer(addresses, np.uint64))
        if call in ("access", "scalar"):
            key, wave, plain = arguments
            effects = [self._effect(one) for one in (plain if call == "access" else [plain])]
            return key, wave, effects if call == "access" else effects[0]
        return arguments

    def _effect(self, plain: Sequence[Any]) -> Effect:
        kind, scope, site, size, addresses, mask = plain
        lanes = lanes_of(mask)
        if isinstance(addresses, int):
            where = self._map.translate_run(addresses, len(lanes), size)
        else:
            where = self._map.translate(np.frombuffer(addresses, np.uint64))
        return Effect(kind, scope, self._sites[site], size, where, lanes)

    def lines(self) -> np.ndarray:
        """Return the lines that the kernels access."""
        accessed = [event[4] if event[1] == "access" else [event[4]] for event in self._events if event[1] in _ACCESSES]
        ends = [
            effect.addresses + np.uint64(past) for some in accessed for effect in some for past in (0, effect.size - 1)
        ]
        return np.unique(np.concatenate([np.zeros(0, np.uint64), *ends]) >> LINE_BITS)

    def steps(self, state: HappensBefore, lines: np.ndarray) -> Iterator[tuple[int, int, Callable[[], None]]]:
        """Yield what to execute on ``state`` with its turn and the rank. ``lines``: those that any kernel accesses."""
        for turn, call, *arguments in self._events:
            yield turn, self.rank, functools.partial(self._execute, state, lines, call, arguments)

    def _execute(self, state: HappensBefore, lines: np.ndarray, call: str, arguments: Sequence[Any]) -> None:
        if call == "start":
            self._keys.append(state.start(*arguments))
        elif call in ("give", "expect"):
            getattr(state, call)(self.rank, *arguments)
        elif call == "touch":
            launch, kind, site, size, addresses = arguments
            parts = parts_in(addresses, size, lines)
            if parts:
                lane = np.zeros(1, np.int64)
                effects = [Effect(kind, WAVE, site, n, np.array([at], np.uint64), lane) for at, n in parts]
                state.touch(launch, effects)
        else:
            key, *rest = arguments
            getattr(state, call)(self._keys[key], *rest)
