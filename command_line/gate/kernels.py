"""Base and head compiled without a GPU: what changed in the code of the library's calls, and which contracts broke."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from command_line.gate.compiling import Compiled, compiled
from command_line.gate.figures import Compared, Row, compiled_rows
from command_line.gate.reach import Map
from command_line.suite.run import StopRequest
from conformance.isa.catalogue import CALLS
from harness import devices

_LINE = re.compile(r"(\.py):\d+(?::\d+)?")


def calls_of(known: Map | None, differing: Collection[str]) -> list[str]:
    """Return the calls of the catalogue that a change of these units can affect; all if that is not known."""
    if known is None or not known.calls:
        return list(CALLS)
    changed = frozenset(differing)
    return [
        call
        for call in CALLS
        if (one := known.calls.get(call)) is None or one.problem or not changed.isdisjoint(one.units)
    ]


def targets() -> list[str]:
    """Return the targets that kernels are compiled for: those of the emulated device."""
    return list(devices.kind("emulated").archs)


def compared(
    base: Path,
    library: Path,
    implementation: str,
    calls: Sequence[str],
    output: Path,
    seconds: float,
    stop: StopRequest,
    limits: Mapping[str, Mapping[str, Any]],
    screen: Console,
) -> Compared:
    """Compile the calls with the library in ``base`` and the one at ``library``, half of ``seconds`` for each."""
    if not calls:
        return Compared((), (), ("no kernel of a call with a contract can have changed",))
    archs = targets()
    screen.print(
        f"Compiling {len(calls)} of {len(CALLS)} calls for {' and '.join(archs)}, of base and head", markup=False
    )
    sides = [
        compiled(folder, implementation, archs, calls, output / name, seconds / 2, stop)
        for name, folder in (("base", base), ("head", library.parent))
        if stop.signal is None
    ]
    if len(sides) < 2:
        return Compared()
    old, new = sides
    if old.late or new.late:
        return Compared(
            (), (), (f"figures of kernels were not compared: {seconds:.0f} s were too short to compile them",)
        )
    rows: list[Row] = []
    compared = 0
    for arch in archs:
        both = [call for call in new.figures.get(arch, {}) if call in old.figures.get(arch, {})]
        compared += len(both)
        rows += compiled_rows(
            {call: old.figures[arch][call] for call in both},
            {call: new.figures[arch][call] for call in both},
            arch,
            limits,
        )
    broken, notes = list(_broken(old, new)), list(_notes(old, new))
    if not rows and compared:
        notes.append(f"the kernels of {compared} pairs of a call and a target are the same")
    return Compared(rows, broken, notes, tuple(_unclear(old, new)))


def _unclear(old: Compiled, new: Compiled) -> Iterator[str]:
    for arch, errors in new.errors.items():
        if both := [call for call in errors if call in old.errors.get(arch, {})]:
            first = f"such as {both[0]}: {errors[both[0]]}"
            yield f"{len(both)} calls compile for {arch} neither with the base nor with the head, {first}"


def _broken(old: Compiled, new: Compiled) -> Iterator[str]:
    """Yield what only the head breaks: contracts, and calls that no longer compile."""
    for arch, calls in new.broken.items():
        for call, sentences in calls.items():
            if call in old.errors.get(arch, {}):
                continue  # the base's contracts are not known
            known = {_LINE.sub(r"\1", each) for each in old.broken.get(arch, {}).get(call, ())}
            yield from (f"{call}: {each}" for each in sentences if _LINE.sub(r"\1", each) not in known)
    for arch, errors in new.errors.items():
        for call, error in errors.items():
            if call not in old.errors.get(arch, {}):
                yield f"{call} no longer compiles for {arch}: {error}"


def _notes(old: Compiled, new: Compiled) -> Iterator[str]:
    for arch, errors in old.errors.items():
        first = next(iter(errors))
        yield f"{len(errors)} calls do not compile for {arch} with the base, such as {first}: {errors[first]}"
