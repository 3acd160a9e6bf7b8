"""The measurement: for each size, all cells are prepared, then timed in rounds, each in an order drawn from the seed.

Interleaving spreads whatever drifts (clocks, temperatures, other users) over all cells alike. The ranks' side is
``fixtures.bench``.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable
from typing import Any, Protocol

from harness.bench.plan import CellKey, Request
from harness.bench.results import FAILED, WRONG, Cell, Results, Size
from harness.ranks import CaseFailed

RANKS_MODULE = "fixtures.bench"
PREPARE_DEADLINE, MEASURE_DEADLINE, EMULATED_DEADLINE = 180.0, 60.0, 300.0
PILOT_CALLS = 10
GRAPH_SECONDS = 1e-3
"""What a timed graph should take, so that the events around it cost little in comparison."""
HOPELESS = 1.25
"""A candidate that is so many times slower in a round than the best of its backend is not timed again."""


class Ranks(Protocol):
    """What is needed of a rank group."""

    def call(self, target: str, payload: Any = None, deadline: float = 30.0) -> list[Any]:
        """Run ``target`` on every rank; results in rank order."""


class Watcher(Protocol):
    """Is told how far it is."""

    def size(self, size: Size, steps: int) -> None:
        """A size begins; it takes at most ``steps`` timings."""

    def step(self, key: CellKey) -> None:
        """A timing of that cell begins."""


class Stopped(Exception):  # noqa: N818 - not an error
    """Someone asked to stop; what was measured stands."""


class Measurement:
    """Fills ``results`` by calls on ``ranks``. ``stop()`` is asked before each call.

    A cell whose output was wrong, or whose ranks failed, is not run again; the others go on, on fresh ranks if it must
    be.
    """

    def __init__(self, results: Results, ranks: Ranks, watcher: Watcher, stop: Callable[[], bool]) -> None:
        self._results = results
        self._request: Request = results.request
        self._ranks = ranks
        self._watcher = watcher
        self._stop = stop
        self._random = random.Random(self._request.seed)
        self._generation = 0
        self._lost = False

    def run(self, size: Size) -> None:
        """Measure one size. Raises Stopped."""
        size.captured = not (self._request.emulated or self._request.eager)
        self._watcher.size(size, len(size.cells) * self._request.repeat + 1)
        self._open(size)
        size.calls = self._pilot(size)
        self._prepare_all(size)
        hopeless: set[CellKey] = set()
        for _ in range(self._request.repeat):
            self._restore(size)
            order = [cell for cell in _live(size) if cell.key not in hopeless]
            self._random.shuffle(order)
            for cell in order:
                if self._lost:
                    self._restore(size)
                if cell.fault is None:
                    times = self._measure(size, cell)
                    if times is not None:
                        cell.rounds.append(times)
            if self._request.tune:
                hopeless |= _hopeless(order)

    def _open(self, size: Size) -> None:
        request = self._request
        payload = {"op": request.op, "dtype": request.dtype, **dataclasses.asdict(size.layout)}
        self._lost = False
        try:
            self._call("open_size", payload, PREPARE_DEADLINE)
        except CaseFailed as failure:
            for cell in _live(size):
                cell.fault, cell.detail = FAILED, str(failure)

    def _pilot(self, size: Size) -> int:
        """How many calls take long enough, by the first cell that runs: few calls of it, not captured."""
        most = self._request.most_calls()
        if self._request.emulated:
            return 1
        captured, size.captured = size.captured, False
        size.calls = min(most, PILOT_CALLS)
        seconds = math.inf
        for cell in _live(size):
            self._prepare(size, cell)
            if cell.fault is None:
                seconds = max(self._measure(size, cell) or [math.inf])
            if 0 < seconds < math.inf:
                break
        size.captured = captured
        return max(1, min(most, math.ceil(GRAPH_SECONDS / seconds)))

    def _prepare_all(self, size: Size) -> None:
        """Where a backend cannot be captured, all of them run eagerly: what is compared is timed in the same way."""
        for cell in _live(size):
            refusal = self._prepare(size, cell)
            if refusal is not None:
                size.captured, size.note = False, f"not captured, since {cell.key} cannot be: {refusal}"
                self._prepare_all(size)
                return

    def _prepare(self, size: Size, cell: Cell) -> str | None:
        """Compile, warm up and capture a cell. A text: it cannot be captured."""
        self._restore(size, but=cell)
        if cell.fault is not None:
            return None
        answers = self._ask_to_prepare(size, cell)
        refusals = [f"rank {rank}: {answer}" for rank, answer in enumerate(answers) if answer]
        return refusals[0] if refusals else None

    def _restore(self, size: Size, but: Cell | None = None) -> None:
        """After a failure the ranks may be fresh ones: bring them to where the failed ones were."""
        while self._lost:
            self._open(size)
            for cell in _live(size):
                if cell is not but and not self._ask_to_prepare(size, cell):
                    break  # it failed as well, and the ranks are lost again

    def _ask_to_prepare(self, size: Size, cell: Cell) -> list[Any]:
        payload = {"cell": dataclasses.astuple(cell.key), "calls": size.calls, "captured": size.captured}
        return self._attempt(cell, "prepare", payload, PREPARE_DEADLINE)

    def _measure(self, size: Size, cell: Cell) -> list[float] | None:
        """Seconds per call of each rank; None if it was wrong or failed, which is then noted."""
        self._watcher.step(cell.key)
        self._generation += 1
        payload = {"cell": dataclasses.astuple(cell.key), "generation": self._generation}
        answers = self._attempt(cell, "measure", payload, MEASURE_DEADLINE)
        if not answers:
            return None
        wrong = [f"rank {rank}: {difference}" for rank, (_, difference) in enumerate(answers) if difference]
        if wrong:
            cell.fault, cell.detail = WRONG, "; ".join(wrong)
            return None
        return [seconds / size.calls for seconds, _ in answers]

    def _attempt(self, cell: Cell, function: str, payload: Any, deadline: float) -> list[Any]:
        """The ranks' answers; none, and the cell has failed, if the ranks did."""
        try:
            return self._call(function, payload, deadline)
        except CaseFailed as failure:
            cell.fault, cell.detail = FAILED, str(failure)
            self._lost = True
            return []

    def _call(self, function: str, payload: Any, deadline: float) -> list[Any]:
        if self._stop():
            raise Stopped
        deadline = EMULATED_DEADLINE if self._request.emulated else deadline
        return self._ranks.call(f"{RANKS_MODULE}:{function}", payload, deadline)


def _live(size: Size) -> list[Cell]:
    return [cell for cell in size.cells if cell.fault is None]


def _hopeless(order: list[Cell]) -> set[CellKey]:
    """Those of a round's cells that are far from the best of their backend."""
    times = {cell.key: cell.times[-1] for cell in order if cell.times}
    best: dict[str, float] = {}
    for key, seconds in times.items():
        best[key.backend] = min(seconds, best.get(key.backend, math.inf))
    return {key for key, seconds in times.items() if seconds > HOPELESS * best[key.backend]}
