"""Executed accesses of a launch by width and place.

An access is remote if its address was in another rank's memory, whatever its code looks like. An access of a rank to
its own memory is local, also through the heap bases: no byte crosses to another rank. The same instruction is judged
where it reaches one, and its code is judged in any case.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from harness.isa.sources import Where

_Form = tuple[Where, bool, str, int, bool]
"""Where, peer, kind, width, polled: see ``ExecutedAccess``."""
_Counts = tuple[int, int, int]
"""Executions, lanes, bytes."""


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


class Launch(Protocol):
    """The part of ``harness.emulator``'s LaunchRecord that is read here."""

    @property
    def accesses(self) -> Sequence[LaunchAccess]: ...


@dataclass(frozen=True)
class ExecutedAccess:
    """Wavefront executions, active lanes and bytes of one form of access.

    ``where`` is "remote" and ``peer`` true if the address was in another rank's memory. ``polled``: in a loop that
    waits for others, which runs as often as they make it wait.
    """

    kind: str
    width: int
    where: Where
    peer: bool
    executions: int
    lanes: int
    bytes: int
    polled: bool = False


@dataclass(frozen=True)
class Executed:
    """The accesses that one or several launches of a kernel executed."""

    accesses: tuple[ExecutedAccess, ...]

    def widths(self, where: Where, kind: str) -> dict[int, int]:
        """Return width in bytes -> wavefront executions."""
        table: dict[int, int] = defaultdict(int)
        for access in self.accesses:
            if (access.where, access.kind) == (where, kind):
                table[access.width] += access.executions
        return dict(sorted(table.items()))

    def __add__(self, other: Executed) -> Executed:
        return _summed((*self.accesses, *other.accesses))

    def to_json(self) -> list[dict[str, Any]]:
        """Return plain data for an evidence record, one entry per form."""
        return [
            {
                "kind": a.kind, "width": a.width, "where": a.where, "peer": a.peer,
                "executions": a.executions, "lanes": a.lanes, "bytes": a.bytes,
                **({"polled": True} if a.polled else {}),
            }
            for a in self.accesses
        ]  # fmt: skip

    @classmethod
    def from_json(cls, plain: Iterable[dict[str, Any]]) -> Executed:
        return cls(tuple(ExecutedAccess(**entry) for entry in plain))


def executed(launches: Iterable[Launch]) -> Executed:
    """Return the sum over ``launches``, which should be launches of one kernel. Scalar loads are not included."""
    sums: dict[_Form, _Counts] = {}
    for launch in launches:
        for access in launch.accesses:
            peer = access.where == "peer"
            where: Where = "remote" if peer else "local"
            form = (where, peer, access.kind, access.width, getattr(access, "polled", False))
            _add(sums, form, (access.executions, access.lanes, access.bytes))
    return _sorted(sums)


def _summed(accesses: Iterable[ExecutedAccess]) -> Executed:
    sums: dict[_Form, _Counts] = {}
    for access in accesses:
        form = (access.where, access.peer, access.kind, access.width, access.polled)
        _add(sums, form, (access.executions, access.lanes, access.bytes))
    return _sorted(sums)


def _add(sums: dict[_Form, _Counts], form: _Form, counts: _Counts) -> None:
    executions, lanes, size = sums.get(form, (0, 0, 0))
    sums[form] = (executions + counts[0], lanes + counts[1], size + counts[2])


def _sorted(sums: dict[_Form, _Counts]) -> Executed:
    return Executed(
        tuple(
            ExecutedAccess(kind, width, where, peer, *sums[where, peer, kind, width, polled], polled)
            for where, peer, kind, width, polled in sorted(sums, key=str)
        )
    )
