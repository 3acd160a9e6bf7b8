"""The outcomes of a litmus test on a machine that performs the operations of all threads one after another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from conformance.ordering.litmus import LOCATIONS, Litmus, Operation
from conformance.ordering.model import Outcome

T = TypeVar("T")


def in_turn(test: Litmus) -> frozenset[Outcome]:
    """Return the outcomes of all interleavings in which every wait ends: those that are sequentially consistent.

    Example: in "set x 1, see y" next to "set y 1, see x" at least one thread sees the other's flag.
    """
    nothing: tuple[int, ...] = ()
    return frozenset(_from(test, (0,) * len(test.threads), dict.fromkeys(LOCATIONS, 0), (nothing,) * len(test.threads)))


def _from(
    test: Litmus, done: tuple[int, ...], memory: Mapping[str, int], seen: tuple[tuple[int, ...], ...]
) -> Iterator[Outcome]:
    """Yield the outcomes from a state on: the operations done by each thread, the memory, and the values seen."""
    if all(count == len(thread) for count, thread in zip(done, test.threads, strict=True)):
        yield sum(seen, ()), tuple(memory[place] for place in LOCATIONS)
        return
    for number, (count, thread) in enumerate(zip(done, test.threads, strict=True)):
        if count < len(thread) and (step := _performed(thread[count], memory)) is not None:
            observed, after = step
            yield from _from(test, _with(done, number, count + 1), after, _with(seen, number, seen[number] + observed))


def _performed(operation: Operation, memory: Mapping[str, int]) -> tuple[tuple[int, ...], dict[str, int]] | None:
    """Return the values that an operation sees and the memory after it; None if it still waits."""
    name, place, value = operation
    held = memory[place]
    if (name == "wait" and held == 0) or (name in ("gone", "lock") and held != 0):
        return None
    written = {"lock": 1, "next": held + 1, "write": value, "set": value, "free": 0}.get(name, held)
    observed = () if name in ("write", "set", "free") else (held,)
    return observed, {**memory, place: written}


def _with(values: tuple[T, ...], number: int, value: T) -> tuple[T, ...]:
    return (*values[:number], value, *values[number + 1 :])
