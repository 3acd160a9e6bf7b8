"""The measurement: for each size, all cells are prepared, then timed in rounds, each in an order drawn from the seed.

Interleaving spreads drifts (of clocks, of temperatures, from other users) evenly over all cells. The ranks run
``command_line.bench.worker``.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable
from typing import Any, Protocol

from command_line.bench.plan import CellKey, Request
from command_line.bench.results import FAILED, WRONG, Cell, Results, Size
from harness.ranks import CaseFailed

RANKS_MODULE = f"{__package__}.worker"
"""Only ranks import this module: it needs torch and a device."""
PREPARE_DEADLINE, MEASURE_DEADLINE, EMULATED_DEADLINE = 180.0, 60.0, 300.0
PILOT_CALLS = 10
GRAPH_SECONDS = 1e-3
"""Duration aimed at for one timing, long enough that the events around it cost little in comparison."""
HOPELESS = 1.25
"""A candidate slower than this factor times the best time of its backend in a round is not timed again."""


class Ranks(Protocol):
    """The part of a rank group that a measurement uses."""

    def call(self, target: str, payload: Any = None, deadline: float = 30.0) -> list[Any]:
        """Run ``target`` on every rank; return the results in rank order."""


class Watcher(Protocol):
    """Receiver of progress notifications."""

    def size(self, size: Size, steps: int) -> None:
        """Note that a size begins, which takes at most ``steps`` timings."""

    def step(self, key: CellKey) -> None:
        """Note that a timing of that cell begins."""


class Stopped(Exception):  # noqa: N818 - not an error
    """Raised after a request to stop; the results so far stay valid."""


class Measurement:
    """Measurement that fills ``results`` by calls on ``ranks``. It queries ``stop()`` before each call.

    A cell whose output was wrong, or whose ranks failed, is not run again; the other cells continue, if necessary on
    new rank processes.
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
        """Return the number of calls per timing that takes about ``GRAPH_SECONDS``.

        It is estimated from a few calls, not captured, of the first cell that runs.
        """
        limit = self._request.most_calls()
        if self._request.emulated:
            return 1
        captured, size.captured = size.captured, False
        size.calls = min(limit, PILOT_CALLS)
        seconds = math.inf
        for cell in _live(size):
            self._prepare(size, cell)
            if cell.fault is None:
                seconds = max(self._measure(size, cell) or [math.inf])
            if 0 < seconds < math.inf:
                break
        size.captured = captured
        return max(1, min(limit, math.ceil(GRAPH_SECONDS / seconds)))

    def _prepare_all(self, size: Size) -> None:
        """Prepare all cells. If one cannot be captured in a graph, all run eagerly, so that times stay comparable."""
        for cell in _live(size):
            refusal = self._prepare(size, cell)
            if refusal is not None:
                size.captured, size.note = False, f"not captured, since {cell.key} cannot be: {refusal}"
                self._prepare_all(size)
                return

    def _prepare(self, size: Size, cell: Cell) -> str | None:
        """Compile, warm up and capture a cell. Return the reason if it cannot be captured, else None."""
        self._restore(size, but=cell)
        if cell.fault is not None:
            return None
        answers = self._request_preparation(size, cell)
        refusals = [f"rank {rank}: {answer}" for rank, answer in enumerate(answers) if answer]
        return refusals[0] if refusals else None

    def _restore(self, size: Size, but: Cell | None = None) -> None:
        """Prepare the cells again after a failure, since the ranks may be new processes."""
        while self._lost:
            self._open(size)
            for cell in _live(size):
                if cell is not but and not self._request_preparation(size, cell):
                    break  # this cell failed as well, and the ranks are lost again

    def _request_preparation(self, size: Size, cell: Cell) -> list[Any]:
        payload = {"cell": dataclasses.astuple(cell.key), "calls": size.calls, "captured": size.captured}
        return self._attempt(cell, "prepare", payload, PREPARE_DEADLINE)

    def _measure(self, size: Size, cell: Cell) -> list[float] | None:
        """Return the seconds per call of each rank, or None if the cell was wrong or failed, which it then records."""
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
        """Return the ranks' answers. If the ranks fail, mark the cell as failed and return no answer."""
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
    """Return the cells of a round that are more than ``HOPELESS`` times slower than the best of their backend."""
    times = {cell.key: cell.times[-1] for cell in order if cell.times}
    best: dict[str, float] = {}
    for key, seconds in times.items():
        best[key.backend] = min(seconds, best.get(key.backend, math.inf))
    return {key for key, seconds in times.items() if seconds > HOPELESS * best[key.backend]}
