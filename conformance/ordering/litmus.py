"""Litmus tests as data: the operations of each thread. ``model.allowed`` computes which outcomes may occur.

A thread is a work-group, or a wavefront of one. A location is ``x``, ``y`` or ``z``; it holds 0 at first. Operations:

    write x  a tile of data, by a store, a put or a relaxed exchange    set y   a flag, by an exchange (release)
    read x   a tile of data, by a load                                  see y   a flag, by an addition of 0 (acquire)
    next x   read a tile, and write it plus 1                           wait y  ``see`` until the flag is not 0
                                                                        gone y  ``see`` until the flag is 0
                                                                        lock y  compare-and-swap 0 to 1 (acquire)
                                                                        free y  set the flag to 0 (release)

An outcome is the tuple of all observed values in the order of the threads, then the final values of the locations.
Most shapes are those of Alglave, Maranget and Tautschnig, "Herding Cats" (TOPLAS 36(2), 2014). "groups" are two pairs
of threads, each with a flag of its own; "reuse" is a flag whose value returns, and "lock" a critical section.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

WRITES = ("store", "put", "atomic")
CODES = {
    "none": 0, "store": 1, "put": 2, "atomic": 3, "read": 4, "set": 5, "see": 6, "wait": 7, "gone": 8, "lock": 9,
    "next": 10,
}  # fmt: skip
"""Operation codes of ``kernels.litmus_kernel``; "write" becomes one of ``WRITES``, and "free" is "set" with 0."""

LOCATIONS = "xyz"
OBSERVES = ("read", "see", "wait", "gone", "lock", "next")
WRITES_DATA, READS_DATA = ("write", "next"), ("read", "next")
MOST_STEPS = 8
"""Operations of a thread: each is a byte of a 64-bit word."""

Operation = tuple[str, str, int]
"""Name, location, and the value written (0 for operations that read). ``NOTHING`` is a step without an access."""


@dataclass(frozen=True)
class Litmus:
    """A litmus test: the operations of each thread."""

    name: str
    threads: tuple[tuple[Operation, ...], ...]

    @property
    def writes(self) -> bool:
        """True if some operation writes data, so that ``write`` matters."""
        return any(name == "write" for thread in self.threads for name, _, _ in thread)

    @property
    def flags_only(self) -> bool:
        """True if no operation accesses a tile, so that neither ``write`` nor a payload matters."""
        return len(self.flags) == len(LOCATIONS)

    @property
    def flags(self) -> list[int]:
        """The numbers of the locations that no operation accesses as a tile."""
        tiles = {
            location for thread in self.threads for name, location, _ in thread if name in WRITES_DATA + READS_DATA
        }
        return [number for number, location in enumerate(LOCATIONS) if location not in tiles]

    @property
    def flags_used(self) -> set[str]:
        """The locations that the threads access as flags."""
        data = WRITES_DATA + READS_DATA
        return {place for thread in self.threads for name, place, _ in thread if name not in data}

    @property
    def steps(self) -> int:
        """Operations of the longest thread."""
        return max(map(len, self.threads))


NOTHING: Operation = ("none", "x", 0)


def _thread(text: str) -> tuple[Operation, ...]:
    """Return the operations of a text. Example: "write x 1, set y 1"."""
    parts = [part.split() for part in text.split(",")]
    return tuple((part[0], part[1], int(part[2]) if len(part) > 2 else 0) for part in parts)


def _litmus(name: str, *threads: str) -> Litmus:
    return Litmus(name, tuple(map(_thread, threads)))


TESTS = {
    test.name: test
    for test in (
        _litmus("MP", "write x 1, set y 1", "wait y, read x"),
        _litmus("S", "write x 2, set y 1", "wait y, write x 1"),
        _litmus("groups", "write x 1, set y 1", "wait y, read x", "set z 1, set z 2", "wait z, see z"),
        _litmus("LB", "see x, set y 1", "see y, set x 1"),
        _litmus("WRC", "set x 1", "wait x, set y 1", "wait y, see x"),
        _litmus("ISA2", "write x 1, set y 1", "wait y, set z 1", "wait z, read x"),
        _litmus("CoRR", "set x 1", "see x, see x"),
        _litmus("CoWW", "set x 1, set x 2"),
        _litmus("CoRW", "see x, set x 1", "set x 2"),
        _litmus("CoWR", "set x 1, see x", "set x 2"),
        _litmus(
            "reuse",
            "write x 1, set y 1, gone y, write x 2, set y 1", "wait y, read x, free y, wait y, read x",
        ),
        _litmus("lock", *["lock y, next x, free y"] * 3),
        _litmus("SB", "set x 1, see y", "set y 1, see x"),
        _litmus("R", "set x 1, set y 1", "set y 2, see x"),
        _litmus("2+2W", "set x 1, set y 2", "set y 1, set x 2"),
        _litmus("IRIW", "set x 1", "set y 1", "see x, see y", "see y, see x"),
    )
}  # fmt: skip
"""All tests by name."""

SHORT = tuple(name for name, test in TESTS.items() if test.steps <= 2)
"""Tests whose threads may be wavefronts of one work-group: see ``once``."""


@functools.cache
def once(test: Litmus) -> Litmus:
    """Return the test with ``see`` in place of ``wait``: wavefronts of one work-group run one loop, so that none of
    them can wait for another one."""
    return Litmus(
        test.name,
        tuple(
            tuple(("see" if name == "wait" else name, place, value) for name, place, value in thread)
            for thread in test.threads
        ),
    )


@functools.cache
def delayed(test: Litmus, delay: int) -> Litmus:
    """Return the test in which thread t begins ``t * delay`` steps late, but at most two: the wavefronts of a
    work-group execute their steps together, so that a flag could not be seen by a step before the one that sets it."""
    return Litmus(
        test.name, tuple((NOTHING,) * min(number * delay, 2) + thread for number, thread in enumerate(test.threads))
    )


def run_by(name: str, scope: str) -> Litmus:
    """Return the test ``name`` as it runs where its flags have ``scope``: "cta", "gpu" or "sys". LookupError for an
    unknown test."""
    return once(TESTS[name]) if scope == "cta" else TESTS[name]


def program_of(test: Litmus, write: str) -> list[int]:
    """Return a word for each thread. Byte k is its operation k: code + 16 * location + 64 * value."""
    return [
        sum(
            (
                CODES[write if name == "write" else "set" if name == "free" else name]
                + 16 * LOCATIONS.index(location)
                + 64 * value
            )
            << 8 * step
            for step, (name, location, value) in enumerate(thread)
        )
        for thread in test.threads
    ]


def observing(test: Litmus) -> list[tuple[int, int, bool]]:
    """Return the thread and step of each value observed, in the order of an outcome, and whether it is a tile."""
    return [
        (number, step, name in READS_DATA)
        for number, thread in enumerate(test.threads)
        for step, (name, _, _) in enumerate(thread)
        if name in OBSERVES
    ]
