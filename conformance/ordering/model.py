"""The outcomes that the memory model allows for a litmus test, computed from its operations.

The model is that of C11 as repaired by Lahav, Vafeiadis, Kang, Hur and Dreyer, "Repairing Sequential Consistency in
C/C++11" (PLDI 2017), without sequentially consistent accesses, which Triton does not have. LLVM's and PTX's models
agree with it where one scope contains all threads. An *execution* fixes, for each location, the order of its writes,
and for each read the write that it reads from. It is allowed if happens-before (program order, and a release that an
acquire reads from) has no cycle, does not contradict the order of writes of any location, and no read-modify-write has
another write between the one that it reads from and itself.

Elements of a tile are taken as relaxed atomic accesses, each by itself: they are four aligned bytes. An addition of 0
without release order may be compiled as a load (LLVM does so), and counts as one. Nothing that a thread did in a poll
that failed is taken into account. All three only allow more.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conformance.ordering.litmus import LOCATIONS, OBSERVES, Litmus, run_by

Outcome = tuple[tuple[int, ...], tuple[int, ...]]
"""The observed values in the order of the threads, and the final values of the locations."""

INITIAL = -1
"""The event that wrote a location's first value, 0."""

_ACQUIRES, _RELEASES = ("acquire", "acq_rel"), ("release", "acq_rel")
_SEES = ("see", "wait", "gone")


@dataclass(frozen=True)
class _Event:
    """An access. ``writes`` is the value written, "same" for the value read, "next" for that of the read before it
    plus 1, and None for a read. ``wants``: the values that may be read; None for any."""

    thread: int
    place: str
    reads: bool
    writes: int | str | None
    wants: str | None = None
    acquires: bool = False
    releases: bool = False


def _events(test: Litmus, release: str, acquire: str) -> tuple[list[_Event], list[int]]:
    """Return the events in program order, thread after thread, and the numbers of those that are observed."""
    events: list[_Event] = []
    observed = []
    for thread, operations in enumerate(test.threads):
        for name, place, value in operations:
            if name in OBSERVES:
                observed.append(len(events))
            if name in ("set", "free"):
                ordered = {"acquires": release in _ACQUIRES, "releases": release in _RELEASES}
                events.append(_Event(thread, place, True, value, **ordered))
            elif name in (*_SEES, "lock"):
                wants = {"wait": "not 0", "gone": "0", "lock": "0"}.get(name)
                releases = acquire in _RELEASES
                writes: int | str | None = 1 if name == "lock" else "same" if releases else None
                events.append(_Event(thread, place, True, writes, wants, acquire in _ACQUIRES, releases))
            elif name == "write":
                events.append(_Event(thread, place, False, value))
            else:
                events.append(_Event(thread, place, True, None))
                if name == "next":
                    events.append(_Event(thread, place, False, "next"))
    return events, observed


@dataclass(frozen=True)
class _Choice:
    """One location in an execution: its writes in their order, and the event that each read reads from."""

    order: tuple[int, ...]
    sources: dict[int, int]


def _choices(events: Sequence[_Event], numbers: Sequence[int]) -> Iterator[_Choice]:
    """Yield the executions of one location, whose events are ``numbers``."""
    writes = [number for number in numbers if events[number].writes is not None]
    loads = [number for number in numbers if events[number].writes is None]
    for order in _orders(events, writes, ()):
        before = dict(zip(order, (INITIAL, *order), strict=False))
        fixed = {number: before[number] for number in writes if events[number].reads}
        for picked in itertools.product((INITIAL, *order), repeat=len(loads)):
            yield _Choice(order, fixed | dict(zip(loads, picked, strict=True)))


def _orders(events: Sequence[_Event], left: Sequence[int], done: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the orders of the writes that keep the program order of each thread, and in which locks are free."""
    if not left:
        yield done
    threads = set()
    for number in left:
        event = events[number]
        first = event.thread not in threads
        threads.add(event.thread)
        if first and _suits(event, _constant(events, done)):
            yield from _orders(events, [other for other in left if other != number], (*done, number))


def _constant(events: Sequence[_Event], order: Sequence[int]) -> int | None:
    """Return the value after the writes ``order``; None if it depends on a read."""
    value: int | None = 0
    for number in order:
        written = events[number].writes
        value = written if isinstance(written, int) else value if written == "same" else None
    return value


def _suits(event: _Event, value: int | None) -> bool:
    return event.wants is None or value is None or (value == 0) == (event.wants == "0")


def _values(events: Sequence[_Event], sources: dict[int, int]) -> list[tuple[int, int]] | None:
    """Return for each event the values that it reads and leaves; None if a value depends on itself, or is one that
    its event does not wait for."""
    read: dict[int, int] = {}
    left = {INITIAL: 0}
    for _ in events:
        for number, event in enumerate(events):
            if event.reads and sources[number] in left:
                read[number] = left[sources[number]]
            if isinstance(event.writes, int):
                left[number] = event.writes
            elif event.writes == "same" and number in read:
                left[number] = read[number]
            elif event.writes == "next" and number - 1 in read:
                left[number] = read[number - 1] + 1
    for number, event in enumerate(events):
        if (event.reads and number not in read) or (event.writes is not None and number not in left):
            return None
        if event.reads and not _suits(event, read[number]):
            return None
    return [(read.get(number, 0), left.get(number, 0)) for number in range(len(events))]


def _happens_before(events: Sequence[_Event], choices: Sequence[_Choice]) -> list[set[int]]:
    """Return for each event those that happen after it."""
    after = [
        {other for other in range(number + 1, len(events)) if events[other].thread == event.thread}
        for number, event in enumerate(events)
    ]
    for choice in choices:
        places = {number: place for place, number in enumerate(choice.order)}
        for reader, source in choice.sources.items():
            if source == INITIAL or not events[reader].acquires:
                continue
            for writer in choice.order[: places[source] + 1]:  # all are read-modify-writes: one release sequence
                if events[writer].releases:
                    after[writer].add(reader)
    for middle in range(len(events)):
        for start in range(len(events)):
            if middle in after[start]:
                after[start] |= after[middle]
    return after


def _consistent(events: Sequence[_Event], choices: Sequence[_Choice]) -> bool:
    after = _happens_before(events, choices)
    if any(number in later for number, later in enumerate(after)):
        return False
    for choice in choices:
        places = {INITIAL: -1} | {number: place for place, number in enumerate(choice.order)}
        numbers = {*choice.order, *choice.sources}
        for first in numbers:
            for second in after[first] & numbers:
                known, later = (places[n if n in places else choice.sources[n]] for n in (first, second))
                if later < known or (later == known and second in places):
                    return False  # it reads or writes before what has happened; or writes what has been read before
    return True


@functools.cache
def allowed(test: Litmus, release: str = "release", acquire: str = "acquire") -> frozenset[Outcome]:
    """Return all outcomes of a test in which every wait ends. ``release`` and ``acquire`` are the orders of a flag's
    writes and reads, at a scope that contains all threads."""
    events, observed = _events(test, release, acquire)
    numbers = [[n for n, event in enumerate(events) if event.place == place] for place in LOCATIONS]
    outcomes = set()
    for choices in itertools.product(*(tuple(_choices(events, each)) for each in numbers)):
        sources = {number: source for choice in choices for number, source in choice.sources.items()}
        values = _values(events, sources)
        if values is not None and _consistent(events, choices):
            finals = tuple(values[choice.order[-1]][1] if choice.order else 0 for choice in choices)
            outcomes.add((tuple(values[number][0] for number in observed), finals))
    return frozenset(outcomes)


def allowed_in(name: str, release: str, acquire: str, scope: str) -> frozenset[Outcome]:
    """Return the outcomes that the test ``name`` may have in a case with these orders and this scope of its flags; see
    ``cases.LitmusCase``. LookupError for an unknown test."""
    return allowed(run_by(name, scope), release, acquire)
