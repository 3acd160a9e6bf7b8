"""Results of a benchmark: raw times, and the statistics on which the table, the plots and the files are based.

A cell's time in one round is that of its slowest rank; its median, 10th and 90th percentile are over the rounds.
Bandwidths are in GB/s (1e9 bytes per second) and follow from the median.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from command_line.bench.ops import Layout
from command_line.bench.plan import THEIRS, TORCH, TORCH_LIMITED, CellKey, Request

SCHEMA = 1
NOT_RUN, OK, WRONG, FAILED = "not run", "ok", "wrong", "failed"

SEMANTICS = (
    "A time is that of one call, completion included: it ends when the last rank's output is complete on that rank and "
    "its input may be reused. The slowest rank counts. torch.distributed's op completes on a rank by itself. If the "
    "library's op returns a handle, its wait() is part of the call; otherwise a device_barrier is."
)
EMULATED = "Times of an emulated device: not a bandwidth of any GPU."


@dataclass
class Cell:
    """One cell at one size. ``rounds`` has one list per round, with the seconds per call of each rank."""

    key: CellKey
    rounds: list[list[float]] = field(default_factory=list)
    fault: str | None = None
    detail: str = ""

    @property
    def status(self) -> str:
        """The state of the cell: ``ok`` (every timed output was right), ``wrong``, ``failed`` or ``not run``."""
        return self.fault or (OK if self.rounds else NOT_RUN)

    @property
    def times(self) -> list[float]:
        """Seconds per call, one value per round. Empty unless the cell is ok: a wrong output has no time."""
        return [max(ranks) for ranks in self.rounds] if self.status == OK else []

    def time(self, share: float = 0.5) -> float:
        """Return the median, or another percentile, in seconds. The cell must be ok."""
        return percentile(self.times, share)


@dataclass
class Size:
    """All cells of one size.

    ``requested`` is the size in bytes as given, before rounding. ``calls`` is the number of calls per timing;
    ``captured`` is True if they ran in a device graph. ``note`` describes anything unusual.
    """

    requested: int
    layout: Layout
    cells: list[Cell]
    calls: int = 0
    captured: bool = False
    note: str = ""

    def cell(self, key: CellKey) -> Cell:
        """Return the cell with that key."""
        [only] = [cell for cell in self.cells if cell.key == key]
        return only

    def best(self, backend: str) -> Cell | None:
        """Return the backend's cell with the smallest median time, or None if no cell is ok."""
        good = [cell for cell in self.cells if cell.key.backend == backend and cell.status == OK]
        return min(good, key=Cell.time, default=None)

    def ratio(self, cell: Cell) -> float | None:
        """Return the cell's bandwidth divided by that of torch.distributed's faster form in the same rounds.

        Returns None if either has no time.
        """
        theirs = [best.time() for best in map(self.best, THEIRS) if best is not None]
        return min(theirs) / cell.time() if theirs and cell.status == OK else None


@dataclass
class Results:
    """Results of one request. ``stopped`` is the reason for an early end, ``rig`` the ranks' self-description."""

    request: Request
    sizes: list[Size]
    environment: Mapping[str, Any]
    started: str
    rig: Mapping[str, Any] = field(default_factory=dict)
    finished: str | None = None
    stopped: str | None = None

    @classmethod
    def planned(cls, request: Request, environment: Mapping[str, Any], started: str) -> Results:
        """Return results with every cell of the request, none of them run."""
        sizes = [
            Size(requested, layout, [Cell(key) for key in request.cells(layout.size)])
            for requested, layout in zip(request.sizes, request.layouts(), strict=True)
        ]
        return cls(request, sizes, environment, started)

    @property
    def good(self) -> bool:
        """True if every planned cell ran and every timed output was right."""
        return all(cell.status == OK for size in self.sizes for cell in size.cells)

    def algorithm_bandwidth(self, size: Size, seconds: float) -> float:
        """Return the algorithm bandwidth in GB/s: size per rank divided by time."""
        return size.layout.size / seconds / 1e9

    def bus_bandwidth(self, size: Size, seconds: float) -> float:
        """Return the bus bandwidth in GB/s: the traffic that a rank's links must have carried.

        It can be compared between numbers of ranks, and with the hardware's bandwidth.
        """
        return self.algorithm_bandwidth(size, seconds) * self.request.kind().bus_factor(self.request.ranks)

    def label(self, backend: str) -> str:
        """Return the backend's name for reports: the library behind ``nccl`` depends on the device."""
        theirs = str(self.rig.get("theirs", TORCH))
        if backend == TORCH_LIMITED:
            return f"{theirs}, CTAs limited"
        return theirs + backend.removeprefix(TORCH) if backend in THEIRS else backend

    def bad(self) -> Iterator[tuple[Size, Cell]]:
        """Yield the cells that were wrong or failed."""
        for size in self.sizes:
            for cell in size.cells:
                if cell.status in (WRONG, FAILED):
                    yield size, cell


def percentile(values: Sequence[float], share: float) -> float:
    """Return the percentile ``share`` (0 to 1) of ``values``, with linear interpolation; there must be a value."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low + (high - low) * (place - math.floor(place))
