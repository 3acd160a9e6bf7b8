"""Records of mode ``trace``: accesses, spans, samples and launches, in virtual time. See ``trace``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Generic, NamedTuple, TypeVar, overload

import numpy as np

_Row = TypeVar("_Row")


class Record(NamedTuple):
    """One global access of one wavefront.

    ``step`` is the virtual time. ``launch`` and ``wavefront`` are numbers (launches from 0 in the order of their
    starts, wavefronts within their launch). ``site`` is the instruction's line in the listing, ``bytes`` counts those
    of all lanes, ``address`` is the first lane's, ``offset`` its distance from the start of ``allocation``, and
    ``peer`` is True if the allocation belongs to another rank.
    """

    step: int
    rank: int
    launch: int
    wavefront: int
    kind: str
    site: int
    bytes: int
    address: int
    offset: int
    allocation: str
    peer: bool
    instruction: str
    source: str


class Span(NamedTuple):
    """Activity of a wavefront from ``start`` to ``end``: running up to a barrier, or waiting."""

    rank: int
    wavefront: int
    name: str
    start: int
    end: int
    source: str


class Sample(NamedTuple):
    """Bytes that a rank's lanes have accessed so far, and LDS cycles lost to bank conflicts."""

    step: int
    rank: int
    local: int
    peer: int
    conflicts: int


class Log(Sequence[_Row], Generic[_Row]):
    """Rows that are added by columns, for several wavefronts at once, and made when they are read."""

    def __init__(self, make: Callable[..., _Row]) -> None:
        self._make = make
        self._rows: list[_Row] = []
        self._columns: list[tuple[int, Callable[[], Iterable[Any]]]] = []
        self._count = 0

    def add(self, count: int, *columns: Any) -> None:
        """Add ``count`` rows; a column is an array or list of as many elements, or one value for all of them."""
        self.add_later(count, lambda: columns)

    def add_later(self, count: int, columns: Callable[[], Iterable[Any]]) -> None:
        """Add ``count`` rows, whose columns ``columns`` returns when they are read."""
        if count:
            self._columns.append((count, columns))
            self._count += count

    def replace_last(self, row: _Row) -> None:
        """Replace the last row."""
        self._made()[-1] = row

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> _Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[_Row]: ...
    def __getitem__(self, index: int | slice) -> _Row | list[_Row]:
        return self._made()[index]

    def __iter__(self) -> Iterator[_Row]:
        return iter(self._made())

    def _made(self) -> list[_Row]:
        added, self._columns = self._columns, []
        for count, columns in added:
            self._rows += map(self._make, *(_elements(column, count) for column in columns()))
        return self._rows


def _elements(column: Any, count: int) -> Any:
    if isinstance(column, np.ndarray):
        return column.tolist()
    return column if isinstance(column, list) else repeat(column, count)


@dataclass
class LaunchSpan:
    """A launch; ``end`` is None until it has ended."""

    rank: int
    kernel: str
    grid: tuple[int, int, int]
    waves_per_group: int
    start: int
    end: int | None = None


@dataclass
class Timeline:
    """Everything that ``Trace`` has recorded.

    ``flows`` lead from a store or atomic to the first access of another wavefront that reads its value; they are added
    as indices of ``accesses``. Logs are bounded; ``dropped`` counts the entries beyond the bounds.
    """

    accesses: Log[Record] = field(default_factory=lambda: Log(Record))
    spans: Log[Span] = field(default_factory=lambda: Log(Span))
    flows: Log[tuple[Record, Record]] = field(init=False)
    samples: Log[Sample] = field(default_factory=lambda: Log(Sample))
    launches: list[LaunchSpan] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=lambda: {"accesses": 0, "spans": 0})
    now: int = 0

    def __post_init__(self) -> None:
        self.flows = Log(lambda writer, reader: (self.accesses[writer], self.accesses[reader]))
