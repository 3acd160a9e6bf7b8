"""What a launch executed, by width and place: the emulator's counters joined with the listing's markers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from harness.isa.listing import source_files
from harness.isa.sources import SourceFiles, Where, parse_frames


class LaunchAccess(Protocol):
    """The part of ``harness.emulator``'s Access that is read here; ``where`` is "local" or "peer", by address."""

    @property
    def kind(self) -> str: ...
    @property
    def width(self) -> int: ...
    @property
    def where(self) -> str: ...
    @property
    def executions(self) -> int: ...
    @property
    def lanes(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def source(self) -> str: ...


class Launch(Protocol):
    """The part of ``harness.emulator``'s LaunchRecord that is read here."""

    @property
    def listing(self) -> str: ...

    @property
    def accesses(self) -> Sequence[LaunchAccess]: ...


@dataclass(frozen=True)
class ExecutedAccess:
    """Wavefront executions, active lanes and bytes of one form. ``where`` follows the marker, ``peer`` the address."""

    kind: str
    width: int
    where: Where
    peer: bool
    executions: int
    lanes: int
    bytes: int


@dataclass(frozen=True)
class Executed:
    """The accesses that one or several launches of a kernel executed."""

    accesses: tuple[ExecutedAccess, ...]

    def widths(self, where: Where, kind: str) -> dict[int, int]:
        """Width in bytes -> wavefront executions."""
        table: dict[int, int] = defaultdict(int)
        for access in self.accesses:
            if (access.where, access.kind) == (where, kind):
                table[access.width] += access.executions
        return dict(sorted(table.items()))

    def unmarked_peer(self) -> tuple[ExecutedAccess, ...]:
        """Accesses that reached another rank's memory from a line that is not marked ``# remote``.

        Such a line hides from every width check, so a suite should treat it as "could not be checked".
        """
        return tuple(access for access in self.accesses if access.peer and access.where != "remote" and access.lanes)

    def __add__(self, other: Executed) -> Executed:
        return _summed((*self.accesses, *other.accesses))

    def to_json(self) -> list[dict[str, Any]]:
        """Plain data for an evidence record, one entry per form."""
        return [
            {
                "kind": a.kind, "width": a.width, "where": a.where, "peer": a.peer,
                "executions": a.executions, "lanes": a.lanes, "bytes": a.bytes,
            }
            for a in self.accesses
        ]  # fmt: skip

    @classmethod
    def from_json(cls, plain: Iterable[dict[str, Any]]) -> Executed:
        return cls(tuple(ExecutedAccess(**entry) for entry in plain))


def executed(launches: Iterable[Launch]) -> Executed:
    """The sum over ``launches``, which should be launches of one kernel. Scalar loads are not in it."""
    found = []
    for launch in launches:
        if not launch.accesses:  # as on a GPU, which counts nothing: no need to read its listing at each launch
            continue
        files = source_files(launch.listing)
        for access in launch.accesses:
            found.append(_joined(access, files))
    return _summed(found)


def _joined(access: LaunchAccess, files: SourceFiles) -> ExecutedAccess:
    return ExecutedAccess(
        kind=access.kind,
        width=access.width,
        where=files.where(parse_frames(access.source)),
        peer=access.where == "peer",
        executions=access.executions,
        lanes=access.lanes,
        bytes=access.bytes,
    )


def _summed(accesses: Iterable[ExecutedAccess]) -> Executed:
    table: dict[tuple[object, ...], ExecutedAccess] = {}
    for access in accesses:
        key = (access.where, access.peer, access.kind, access.width)
        if seen := table.get(key):
            access = replace(
                access,
                executions=access.executions + seen.executions,
                lanes=access.lanes + seen.lanes,
                bytes=access.bytes + seen.bytes,
            )
        table[key] = access
    return Executed(tuple(table[key] for key in sorted(table, key=str)))
