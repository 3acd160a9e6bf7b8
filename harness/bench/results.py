"""What came of a benchmark: raw times, and the statistics that everything shown is made of.

A cell's time in one round is that of its slowest rank; its median, 10th and 90th percentile are over the rounds.
Bandwidths are in GB/s (1e9 bytes per second) and follow from the median.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.bench.ops import Layout
from harness.bench.plan import THEIRS, TORCH, TORCH_LIMITED, CellKey, Request

SCHEMA = 1
NOT_RUN, OK, WRONG, FAILED = "not run", "ok", "wrong", "failed"

SEMANTICS = (
    "A time is that of one call, completion included: it ends when the last rank's output is complete on that rank and "
    "its input may be reused. The slowest rank counts. torch.distributed's op is complete on a rank by itself, and so "
    "is the library's where it returns a handle, whose wait() belongs to the call; where it returns none, "
    "device_barrier does."
)
EMULATED = "Times of an emulated device: not a bandwidth of any GPU."


@dataclass
class Cell:
    """One backend and CU count at one size. ``rounds``: seconds per call of each rank, one list per round."""

    key: CellKey
    rounds: list[list[float]] = field(default_factory=list)
    fault: str | None = None
    detail: str = ""

    @property
    def status(self) -> str:
        """``ok`` (every timed output was right), ``wrong``, ``failed`` or ``not run``."""
        return self.fault or (OK if self.rounds else NOT_RUN)

    @property
    def times(self) -> list[float]:
        """Seconds per call, round by round. Empty unless the cell is ok: a wrong answer has no time."""
        return [max(ranks) for ranks in self.rounds] if self.status == OK else []

    def time(self, share: float = 0.5) -> float:
        """The median, or another percentile, in seconds. The cell must be ok."""
        return percentile(self.times, share)


@dataclass
class Size:
    """All cells of one size. ``calls`` per timing; ``captured``: in a device graph; ``note``: what was out of order."""

    asked: int
    layout: Layout
    cells: list[Cell]
    calls: int = 0
    captured: bool = False
    note: str = ""

    def cell(self, key: CellKey) -> Cell:
        """The cell of that key."""
        [found] = [cell for cell in self.cells if cell.key == key]
        return found

    def best(self, backend: str) -> Cell | None:
        """The backend's fastest cell by its median; None if none is ok."""
        good = [cell for cell in self.cells if cell.key.backend == backend and cell.status == OK]
        return min(good, key=Cell.time, default=None)

    def ratio(self, cell: Cell) -> float | None:
        """Bandwidth over that of torch.distributed's faster form, in the same rounds; None where either is missing."""
        theirs = [found.time() for found in map(self.best, THEIRS) if found is not None]
        return min(theirs) / cell.time() if theirs and cell.status == OK else None


@dataclass
class Results:
    """A whole benchmark. ``stopped``: what ended it early. ``rig``: what the ranks said of themselves."""

    request: Request
    sizes: list[Size]
    environment: Mapping[str, Any]
    started: str
    rig: Mapping[str, Any] = field(default_factory=dict)
    finished: str | None = None
    stopped: str | None = None

    @classmethod
    def planned(cls, request: Request, environment: Mapping[str, Any], started: str) -> Results:
        """Every cell of the request, none of them run."""
        sizes = [
            Size(asked, layout, [Cell(key) for key in request.cells(layout.size)])
            for asked, layout in zip(request.sizes, request.layouts(), strict=True)
        ]
        return cls(request, sizes, environment, started)

    @property
    def good(self) -> bool:
        """Whether every planned cell ran, and every timed output was right."""
        return all(cell.status == OK for size in self.sizes for cell in size.cells)

    def algorithm_bandwidth(self, size: Size, seconds: float) -> float:
        """GB/s of size per rank."""
        return size.layout.size / seconds / 1e9

    def bus_bandwidth(self, size: Size, seconds: float) -> float:
        """GB/s that a rank's links must have carried; comparable between rank counts and with the hardware's."""
        return self.algorithm_bandwidth(size, seconds) * self.request.kind().bus_factor(self.request.ranks)

    def label(self, backend: str) -> str:
        """The backend as reports name it: what ``nccl`` stands for depends on the device."""
        theirs = str(self.rig.get("theirs", TORCH))
        if backend == TORCH_LIMITED:
            return f"{theirs}, CTAs limited"
        return theirs + backend.removeprefix(TORCH) if backend in THEIRS else backend

    def bad(self) -> Iterator[tuple[Size, Cell]]:
        """The cells that were wrong or failed."""
        for size in self.sizes:
            for cell in size.cells:
                if cell.status in (WRONG, FAILED):
                    yield size, cell


def percentile(values: Sequence[float], share: float) -> float:
    """Linear between the two nearest of ``values``, which must not be empty; ``share`` from 0 to 1."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low + (high - low) * (place - math.floor(place))
