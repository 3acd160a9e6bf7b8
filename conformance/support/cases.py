"""The case type of tests with few parameters."""

from __future__ import annotations

from dataclasses import dataclass

from fixtures import judged
from harness.cases.registry import case_type


@case_type
@dataclass(frozen=True)
class HostCase:
    """One behaviour of the host side: ``what`` is its name, ``arguments`` are plain values.

    ``late`` is the rank that is delayed by ``late_ms`` (-1: none).
    """

    what: str
    arguments: tuple[str | int | float | bool | tuple[int, ...] | None, ...] = ()
    late: int = -1
    late_ms: int = 0


def alike() -> tuple[bool, ...]:
    """Return a last argument, True, for cases in which no rank passes other arguments than the others; () if one may.

    The published API does not state what other ranks do when one of them is wrong.
    """
    return () if judged.extended() else (True,)
