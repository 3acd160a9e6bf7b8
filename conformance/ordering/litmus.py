"""Litmus tests as data: two operations for each thread, and the outcomes that the memory model forbids.

A thread is a work-group. A location is ``x``, ``y`` or ``z``; it holds 0 at first. Operations:

    write x  a tile of data, by a store, a put or a relaxed exchange    set y   a flag, by an exchange (release)
    read x   a tile of data, by a load                                  see y   a flag, by an addition of 0 (acquire)
                                                                        wait y  ``see`` until the flag is not 0

An outcome is the tuple of all observed values in the order of the threads, then the final values of the locations.
Sources of ``forbidden``: Alglave, Maranget and Tautschnig, "Herding Cats" (TOPLAS 36(2), 2014), for the shapes; LLVM's
and PTX's models, which agree with C11 here, for the verdicts. Without a sequentially consistent order, which Triton
does not have, SB, R, 2+2W and IRIW have no forbidden outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

WRITES = ("store", "put", "atomic")
CODES = {"none": 0, "store": 1, "put": 2, "atomic": 3, "read": 4, "set": 5, "see": 6, "wait": 7}
"""Operation codes of ``kernels.litmus_kernel``; "write" becomes one of ``WRITES``."""

LOCATIONS = "xyz"
OBSERVES = ("read", "see", "wait")

Operation = tuple[str, str, int]
"""Name, location, and the value written (0 for operations that read)."""


@dataclass(frozen=True)
class Litmus:
    """A litmus test. ``forbidden(observed, final)`` is True for outcomes that may not occur, with release and acquire
    at a scope that contains all threads; if ``relaxed``, already with relaxed order."""

    name: str
    threads: tuple[tuple[Operation, ...], ...]
    forbidden: Callable[[tuple[int, ...], tuple[int, ...]], bool]
    relaxed: bool = False

    @property
    def forbids(self) -> bool:
        """True if some outcome is forbidden."""
        return self.forbidden is not _never

    @property
    def flags_only(self) -> bool:
        """True if no operation accesses a tile, so that neither ``write`` nor a payload matters."""
        return all(name in ("set", "see", "wait") for thread in self.threads for name, _, _ in thread)


def _never(observed: tuple[int, ...], final: tuple[int, ...]) -> bool:
    return False


def _corw(observed: tuple[int, ...], final: tuple[int, ...]) -> bool:
    return observed == (1,) or (observed == (2,) and final[0] == 2)


def _cowr(observed: tuple[int, ...], final: tuple[int, ...]) -> bool:
    return observed == (0,) or (observed == (2,) and final[0] == 1)


def _thread(text: str) -> tuple[Operation, ...]:
    """Return the operations of a text. Example: "write x 1, set y 1"."""
    parts = [part.split() for part in text.split(",")]
    return tuple((part[0], part[1], int(part[2]) if len(part) > 2 else 0) for part in parts)


def _litmus(
    name: str,
    *threads: str,
    forbidden: Callable[[tuple[int, ...], tuple[int, ...]], bool] = _never,
    relaxed: bool = False,
) -> Litmus:
    return Litmus(name, tuple(map(_thread, threads)), forbidden, relaxed)


TESTS = {
    test.name: test
    for test in (
        _litmus("MP", "write x 1, set y 1", "wait y, read x", forbidden=lambda o, f: o == (1, 0)),
        _litmus("S", "write x 2, set y 1", "wait y, write x 1", forbidden=lambda o, f: o == (1,) and f[0] == 2),
        _litmus("LB", "see x, set y 1", "see y, set x 1", forbidden=lambda o, f: o == (1, 1)),
        _litmus(
            "WRC", "set x 1", "wait x, set y 1", "wait y, see x", forbidden=lambda o, f: o == (1, 1, 0)
        ),
        _litmus(
            "ISA2", "write x 1, set y 1", "wait y, set z 1", "wait z, read x", forbidden=lambda o, f: o == (1, 1, 0)
        ),
        _litmus("CoRR", "set x 1", "see x, see x", forbidden=lambda o, f: o == (1, 0), relaxed=True),
        _litmus("CoWW", "set x 1, set x 2", forbidden=lambda o, f: f[0] != 2, relaxed=True),
        _litmus("CoRW", "see x, set x 1", "set x 2", forbidden=_corw, relaxed=True),
        _litmus("CoWR", "set x 1, see x", "set x 2", forbidden=_cowr, relaxed=True),
        _litmus("SB", "set x 1, see y", "set y 1, see x"),
        _litmus("R", "set x 1, set y 1", "set y 2, see x"),
        _litmus("2+2W", "set x 1, set y 2", "set y 1, set x 2"),
        _litmus("IRIW", "set x 1", "set y 1", "see x, see y", "see y, see x"),
    )
}  # fmt: skip
"""All tests by name."""


def program_of(test: Litmus, write: str) -> list[int]:
    """Return the two words of each thread for the kernel: code + 8 * location + 32 * value."""
    words = []
    for thread in test.threads:
        for name, location, value in (*thread, *[("none", "x", 0)] * (2 - len(thread))):
            code = CODES[write if name == "write" else name]
            words.append(code + 8 * LOCATIONS.index(location) + 32 * value)
    return words


def observing(test: Litmus) -> list[tuple[int, int]]:
    """Return the (thread, step) of each value observed, in the order of an outcome."""
    return [
        (number, step)
        for number, thread in enumerate(test.threads)
        for step, (name, _, _) in enumerate(thread)
        if name in OBSERVES
    ]


def histogram(test: Litmus, seen: list[list[list[int]]], final: list[list[list[int]]]) -> dict[str, int]:
    """Return the number of elements with each outcome; an instance in which a wait or a start timed out is "timeout".

    ``seen``: [instance][observation][element], -1 for a timeout; ``final``: [instance][location][element].
    """
    counts: dict[str, int] = {}
    for values, last in zip(seen, final, strict=True):
        observed = list(zip(*values, strict=True)) if values else [()] * len(last[0])
        for outcome in zip(observed, zip(*last, strict=True), strict=True):
            key = "timeout" if -1 in outcome[0] else str((tuple(outcome[0]), tuple(outcome[1])))
            counts[key] = counts.get(key, 0) + 1
    return counts


def first_forbidden(
    test: Litmus, seen: list[list[list[int]]], final: list[list[list[int]]]
) -> tuple[int, int, str] | None:
    """Return instance, element and text of the first forbidden outcome, or None. Arguments: see ``histogram``."""
    for instance, (values, last) in enumerate(zip(seen, final, strict=True)):
        for element in range(len(last[0])):
            observed, ends = tuple(row[element] for row in values), tuple(row[element] for row in last)
            if -1 not in observed and test.forbidden(observed, ends):
                return instance, element, f"observed {observed}, final {ends}"
    return None
