"""Records of mode ``trace``: accesses, spans, samples and launches, in virtual time. See ``trace``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


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

    ``flows`` lead from a store or atomic to the first access of another wavefront that reads its value. Lists are
    bounded; ``dropped`` counts the entries beyond the bounds.
    """

    accesses: list[Record] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    flows: list[tuple[Record, Record]] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    launches: list[LaunchSpan] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=lambda: {"accesses": 0, "spans": 0})
    now: int = 0
