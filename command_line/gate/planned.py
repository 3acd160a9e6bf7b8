"""The code of every kernel that chosen requirements launch, with the library of the base and with that of the head.

The cases are executed without their kernels (``fixtures.planned``), which states what each kernel is compiled from.
Equal sources compile to equal code; the others are compiled with both libraries, for each target. What the head
compiles stays in Triton's cache, where the run finds it.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Console

import fixtures
from command_line.gate.choose import Choice
from command_line.gate.figures import BETTER, RED, Figures, Row, compiled_rows
from command_line.preflight import Request, check_software
from command_line.suite import groups as suite_groups
from command_line.suite.process import BEHIND, Suite, environment_of, pytest_command
from command_line.suite.run import StopRequest
from conformance.isa.contract import codes_of
from conformance.isa.figures import figures_of
from fixtures.dry import END
from harness import devices
from harness.devices.launches import GpuCode, GpuLaunch
from harness.errors import UsageError
from harness.files import write_whole
from reports.text import plural

Key = tuple[str, int, str]
"""A group, the number of a case in it, and a target."""

_SHARE = 8
"""Requirements for which it pays to start another process."""
_KINDS = (RED, "changed", BETTER)


@dataclass(frozen=True)
class Code:
    """The kernels that a requirement launches for a target: how many have the ``same`` code in base and head, and how
    many have ``other`` code. ``unknown``: kernels that were not compiled in time, and cases whose kernels are not all
    known without executing them."""

    same: int = 0
    other: int = 0
    unknown: int = 0

    @property
    def words(self) -> str:
        """The counts in words."""
        total = self.same + self.other
        known = f"{self.other} of {plural(total, 'kernel')} have other code" if self.other else f"{total} same"
        return f"{known}, {self.unknown} unknown" if self.unknown else known

    @property
    def is_same(self) -> bool:
        """True if it is known that all kernels, at least one, have the same code."""
        return bool(self.same) and not self.other and not self.unknown


@dataclass(frozen=True)
class Planned:
    """The comparison. ``code``: by requirement and target; ``rows`` of figures; ``broken``: sentences about kernels
    that only the head cannot compile; ``notes`` about what was not compared."""

    code: Mapping[str, Mapping[str, Code]] = field(default_factory=dict)
    rows: Sequence[Row] = ()
    broken: Sequence[str] = ()
    notes: Sequence[str] = ()

    def ordered(self, choice: Choice) -> Choice:
        """Return the choice with the requirements first of which code differs, and those last of which all code is the
        same. None is left out: what a kernel computes also depends on the code of the host."""

        def place(name: str) -> int:
            counts = self.code.get(name, {}).values()
            if any(one.other for one in counts):
                return 0
            return 2 if counts and all(one.is_same for one in counts) else 1

        return replace(choice, reasons={name: choice.reasons[name] for name in sorted(choice.reasons, key=place)})


@dataclass(frozen=True)
class _Kernel:
    """A kernel of a case: its ``name`` and ``source``; ``code`` has Triton's hash and files if it was compiled."""

    name: str
    source: str
    code: GpuCode | None


_NONE = _Kernel("", "", None)


@dataclass(frozen=True)
class _Case:
    requirement: str
    kernels: tuple[_Kernel, ...]
    problem: str
    uncompiled: bool


@dataclass(frozen=True)
class _Side:
    """The kernels that one library launches. ``late``: the time was too short for all of it."""

    cases: Mapping[Key, _Case]
    late: bool
    problem: str = ""


def compared(
    base: Path,
    library: Path,
    request: Request,
    names: Sequence[str],
    output: Path,
    seconds: float,
    stop: StopRequest,
    limits: Mapping[str, Mapping[str, Any]],
    screen: Console,
) -> Planned:
    """Compare the kernels that the requirements ``names`` launch with the library in the folder ``base`` and with the
    one at ``library``, within ``seconds``. ``output`` gets logs, and listings of kernels that differ."""
    if not names:
        return Planned()
    output.mkdir(parents=True, exist_ok=True)
    targets, notes = targets_of(request)
    shown = " and ".join(target.rpartition(":")[2] for target in targets)
    screen.print(f"Comparing the kernels of {plural(len(names), 'requirement')} for {shown}", markup=False)
    run = _Runs(request, targets, (base, library.parent), output, time.monotonic() + seconds, stop)
    old, new = run.sides("sources", [option for name in names for option in ("--requirement", name)])
    # The groups in the order of the requirements: what the change affects most is compared first.
    place = {name: number for number, name in enumerate(names)}
    differing = sorted(
        (key for key in new.cases if key in old.cases and _differ(old, new, key)),
        key=lambda key: place.get(new.cases[key].requirement, len(place)),
    )
    groups = list(dict.fromkeys(key[0] for key in differing))
    of_groups = [option for name in groups for option in ("--group", name)]
    left, right = run.sides("code", of_groups, known=(new, old))
    if stop.signal is not None:
        return Planned()
    sides = (old, new, left, right)
    if problem := next((one.problem for one in sides if one.problem), ""):
        notes.append(f"the code of planned kernels was not compared: {problem}")
    if any(one.late for one in sides):
        notes.append(f"the code of planned kernels was compared in part: {seconds:.0f} s were too short for the rest")
    cases = {**old.cases, **left.cases}, {**new.cases, **right.cases}
    return _judged(*cases, left.cases.keys(), output, limits, notes)


def targets_of(request: Request) -> tuple[list[str], list[str]]:
    """Return the targets, as DEVICE:ARCH: that of the run, then those of the emulated device; and a sentence for each
    of these that this machine cannot compile for."""
    emulated = devices.kind("emulated")
    targets, notes = [f"{request.device}:{request.arch}"], []
    for arch in emulated.archs:
        try:
            check_software(emulated.name, arch)
        except UsageError as error:
            notes.append(f"the code of planned kernels was not compared for {arch}: {error}")
        else:
            targets.append(f"{emulated.name}:{arch}")
    return list(dict.fromkeys(targets)), notes


# -- runs of the plugin ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Runs:
    """Runs of the plugin with the libraries in ``folders``, those of base and head, at the same time: if the time is
    too short, what both have done can be compared."""

    request: Request
    targets: Sequence[str]
    folders: tuple[Path, Path]
    output: Path
    end: float
    stop: StopRequest

    def sides(self, name: str, chosen: Sequence[str], known: tuple[_Side, _Side] | None = None) -> tuple[_Side, _Side]:
        """Run the plugin with both libraries. ``known``: for each of them, kernels whose sources are not compiled;
        without it none is."""
        if self._is_over() or not chosen:
            return (_Side({}, late=bool(chosen)),) * 2
        count = min(suite_groups.number(self.request, None) // 2, chosen.count("--requirement") // _SHARE) or 1
        with contextlib.ExitStack() as stack:
            parts = [
                [
                    _Part(
                        self, f"{side}-{name}", f"{part}/{count}", folder, self._options(side, name, chosen, of), stack
                    )
                    for part in range(1, count + 1)
                ]
                for side, folder, of in zip(("base", "head"), self.folders, known or (None, None), strict=True)
            ]
            running = [part for side in parts for part in side]
            while any(part.suite.poll() is None for part in running) and not self._is_over():
                time.sleep(0.1)
            late = [any(part.suite.poll() is None for part in side) for side in parts]
        old, new = (_side_of(side, is_late) for side, is_late in zip(parts, late, strict=True))
        return old, new

    def _options(self, side: str, name: str, chosen: Sequence[str], known: _Side | None) -> list[str]:
        options = [*replace(self.request, waivers=None, quarantine=None, budget=None).options(), BEHIND]
        options += ["-p", fixtures.PLANNED, "-p", fixtures.SELECTION, "--ahead", "0", *chosen]
        options += [option for target in self.targets for option in ("--planned-target", target)]
        if known is not None:
            file = self.output / f"{side}-{name}-known.json"
            write_whole(file, json.dumps(sorted(_sources(known.cases.values()))))
            options += ["--planned-known", str(file.absolute())]
        return options

    def _is_over(self) -> bool:
        return self.stop.signal is not None or time.monotonic() > self.end


class _Part:
    def __init__(
        self, run: _Runs, name: str, part: str, folder: Path, options: Sequence[str], stack: contextlib.ExitStack
    ) -> None:
        stem = f"{name}-{part.partition('/')[0]}"
        self._file = run.output / f"{stem}.jsonl"
        evidence = run.output / f"{stem}.evidence.jsonl"
        for old in (self._file, evidence):
            old.unlink(missing_ok=True)
        own = ["--planned", str(self._file.absolute()), "--planned-part", part, "--evidence", str(evidence.absolute())]
        command = pytest_command(("",), *options, *own)
        self.suite = stack.enter_context(Suite(command, run.output / f"{stem}.log", environment_of(folder), run.output))

    def records(self) -> tuple[list[tuple[Key, _Case]], bool]:
        """Return the cases of the whole lines, and whether the last line is there."""
        text = self._file.read_text("utf-8") if self._file.is_file() else ""
        lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        ended = bool(lines) and lines[-1] == END
        return [_read(line) for line in lines if line != END], ended


def _side_of(parts: Sequence[_Part], late: bool) -> _Side:
    records = [part.records() for part in parts]
    cases = {key: case for known, _ in records for key, case in known}
    ended = all(end for _, end in records)
    tail = [line for part in parts for line in part.suite.tail if line.strip()]
    reason = tail[-1] if tail else "the suite did not start"
    return _Side(cases, late, "" if ended or late else reason)


def _read(line: Mapping[str, Any]) -> tuple[Key, _Case]:
    kernels = tuple(
        _Kernel(
            one["name"], one["source"], GpuCode(one["hash"], one["name"], one["files"]) if one.get("files") else None
        )
        for one in line["kernels"]
    )
    key = (str(line["group"]), int(line["case"]), str(line["target"]))
    return key, _Case(line["requirement"], kernels, line["problem"], line["uncompiled"])


def _sources(cases: Iterable[_Case]) -> set[str]:
    return {kernel.source for case in cases for kernel in case.kernels}


def _differ(old: _Side, new: _Side, key: Key) -> bool:
    return [one.source for one in old.cases[key].kernels] != [one.source for one in new.cases[key].kernels]


# -- comparison --------------------------------------------------------------------------------------------------------

_Pair = tuple[str, str, _Kernel | None, _Kernel | None]
"""Requirement, target, and a kernel of the base and of the head that stand at the same place of a case."""


def _judged(
    old: Mapping[Key, _Case],
    new: Mapping[Key, _Case],
    compiled: Collection[Key],
    output: Path,
    limits: Mapping[str, Mapping[str, Any]],
    notes: list[str],
) -> Planned:
    """Compare cases. ``compiled``: those whose kernels the base has compiled, as far as their sources differ."""
    both = [key for key in new if key in old]
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    pairs: dict[tuple[str, str, str, str, str], _Pair] = {}
    broken: dict[str, None] = {}
    for key in both:
        before, after, target = old[key], new[key], key[2]
        if after.uncompiled and not before.uncompiled and key in compiled:
            arch = target.rpartition(":")[2]
            broken[f"{after.requirement}: a kernel no longer compiles for {arch}: {after.problem}"] = None
        counts[after.requirement, target][2] += bool(before.problem or after.problem)
        for left, right in _pairs(before.kernels, after.kernels):
            name = (left or right or _NONE).name
            mark = (after.requirement, target, name, (left or _NONE).source, (right or _NONE).source)
            pairs.setdefault(mark, (after.requirement, target, left, right))
    tables: dict[tuple[str, str, str, str], list[Row]] = defaultdict(list)
    late = 0
    for number, pair in enumerate(pairs.values()):
        requirement, target, left, right = pair
        if left is not None and right is not None and left.source != right.source:
            if left.code is None or right.code is None:
                late += 1
                counts[requirement, target][2] += 1
                continue
            same = _figures(left.code)["sha256"] == _figures(right.code)["sha256"]
        else:
            same = left is not None and right is not None
        counts[requirement, target][0 if same else 1] += 1
        if not same:
            _keep(output, number, pair)
        for row in [] if same else _rows(pair, limits):
            tables[requirement, target, row.subject, row.figure].append(row)
    if late:
        notes.append(f"the sources of {plural(late, 'kernel')} differ, and were not compiled with both libraries")
    code: dict[str, dict[str, Code]] = defaultdict(dict)
    for (requirement, target), (same, other, unknown) in counts.items():
        code[requirement][target.rpartition(":")[2]] = Code(same, other, unknown)
    return Planned(code, [_worst(rows) for rows in tables.values()], list(broken), notes)


def _pairs(old: Sequence[_Kernel], new: Sequence[_Kernel]) -> Iterator[tuple[_Kernel | None, _Kernel | None]]:
    """Yield the kernels of the same place: the n-th of a name is compared with the n-th of that name."""
    named: dict[str, tuple[list[_Kernel], list[_Kernel]]] = defaultdict(lambda: ([], []))
    for side, kernels in enumerate((old, new)):
        for kernel in kernels:
            named[kernel.name][side].append(kernel)
    for left, right in named.values():
        for place in range(max(len(left), len(right))):
            yield (left[place] if place < len(left) else None, right[place] if place < len(right) else None)


def _rows(pair: _Pair, limits: Mapping[str, Mapping[str, Any]]) -> Iterator[Row]:
    requirement, target, left, right = pair
    arch = target.rpartition(":")[2]
    old, new = ([] if one is None or one.code is None else [_figures(one.code)] for one in (left, right))
    if left is None or right is None:
        name = (left or right or _NONE).name
        yield Row(
            f"{requirement}: {name}",
            arch,
            "kernel",
            *(("-", "launched") if left is None else ("launched", "-")),
            "changed",
        )
        return
    yield from compiled_rows({requirement: old}, {requirement: new}, arch, limits)


def _worst(rows: Sequence[Row]) -> Row:
    """Return the row that is worst, with how many kernels have one."""
    worst = min(rows, key=lambda row: (_KINDS.index(row.change), -_grown(row)))
    return worst if len(rows) == 1 else replace(worst, after=f"{worst.after} (worst of {plural(len(rows), 'kernel')})")


def _grown(row: Row) -> float:
    try:
        return abs(float(row.after.replace(",", "")) - float(row.before.replace(",", "")))
    except ValueError:  # a word, such as a digest
        return 0.0


@cache
def _of_files(hash_: str, name: str, files: tuple[tuple[str, str], ...]) -> Figures:
    code = GpuCode(hash_, name, dict(files))
    (one,) = codes_of(GpuLaunch(code, (), 0, 0))
    return figures_of(replace(one, shared=code.shared))


def _figures(code: GpuCode) -> Figures:
    return _of_files(code.hash, code.name, tuple(sorted(code.files.items())))


def _keep(output: Path, number: int, pair: _Pair) -> None:
    """Write the listings of two kernels that differ."""
    requirement, target, left, right = pair
    folder = output / target.rpartition(":")[2]
    folder.mkdir(exist_ok=True)
    for word, one in (("base", left), ("head", right)):
        if one is not None and one.code is not None:
            name = "".join(letter if letter.isalnum() else "-" for letter in one.name)
            write_whole(folder / f"{requirement}-{number}-{name}.{word}.s", one.code.listing)
