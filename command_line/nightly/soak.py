"""The soak of a night: hours of mixed traffic on one warm rank group, and checks for leaks and drift.

``fixtures.soak`` executes the rounds and appends a line for each to ``rounds.jsonl``; this file judges them.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console

import fixtures
from command_line.nightly.leg import GRACE, Stopped
from command_line.nightly.plan import Soak
from command_line.nightly.union import numbered
from command_line.preflight import check_software
from command_line.suite.run import run_suite
from harness.errors import UsageError
from harness.evidence import Verdict
from harness.files import write_whole
from harness.runs import EVIDENCE

ROUNDS, REQUEST = "rounds.jsonl", "request.json"
WARM = 0.25
"""Share of the rounds, the first ones, in which caches fill: growth counts after them."""
LEAST_ROUNDS = 8
"""Rounds of one generation of ranks below which no growth is judged."""
SLOWER = 3.0
"""Factor by which the median time of an area's rounds may grow from the first to the last third."""
_LEAST_SECONDS = 1.0
KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class SoakResult:
    """Result of a soak. ``problems`` are sentences about failures, leaks and drift; ``growth`` maps a kind of use to
    the greatest growth of a process after the first rounds, ``areas`` an area to the median seconds of its rounds;
    ``evidence`` is that of the last attempt, which describes the run."""

    rounds: int
    cases: int
    seconds: float
    ended: bool
    problems: tuple[str, ...]
    growth: Mapping[str, float]
    areas: Mapping[str, float] = field(default_factory=dict)
    evidence: Path | None = None

    @property
    def verdict(self) -> Verdict:
        """``fail`` with a problem, ``not_run`` if it did not reach its end."""
        if self.problems:
            return Verdict.FAIL
        return Verdict.PASS if self.ended and self.rounds else Verdict.NOT_RUN

    @property
    def words(self) -> str:
        """The result in a few words."""
        grown = ", ".join(f"{kind} +{value:.3g}" for kind, value in sorted(self.growth.items()))
        return f"{self.rounds} rounds, {self.cases} cases" + (f"; growth: {grown}" if grown else "")

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {
            "verdict": self.verdict.value, "rounds": self.rounds, "cases": self.cases, "problems": [*self.problems],
            "growth": dict(self.growth), "seconds": round(self.seconds, 1),
        }  # fmt: skip


class _Overrun(Exception):  # noqa: N818 - it never leaves this file
    """The last round did not end within the grace."""


def run_soak(soak: Soak, folder: Path, seed: int, screen: Console, *, plant: str = "") -> SoakResult:
    """Run what is left of the soak in ``folder``, and judge all of its rounds. ``plant``: a leak, for tests.

    Raises Stopped if it was stopped from outside.
    """
    used = sum(_seconds(path) for path in numbered(folder))
    problems: list[str] = []
    if soak.budget - used > 1.0 and not any(_ended(path) for path in numbered(folder)):
        problems += _attempt(soak, folder, seed, screen, soak.budget - used, plant)
    rounds = [list(_lines(path / ROUNDS)) for path in numbered(folder)]
    for attempt in rounds:
        problems += judge(attempt, soak)
    ended = [line for attempt in rounds for line in attempt if "round" in line]
    growth: dict[str, float] = {}
    for attempt in rounds:
        for (kind, _), value in growths(attempt).items():
            growth[kind] = max(value, growth.get(kind, value))
    seconds = sum(_seconds(path) for path in numbered(folder))
    whole = any(_ended(path) for path in numbered(folder)) or seconds >= soak.budget - 1.0
    times: dict[str, list[float]] = defaultdict(list)
    for line in ended:
        for area, spent in line["seconds"].items():
            times[area].append(spent)
    areas = {area: statistics.median(values) for area, values in times.items()}
    files = [path / EVIDENCE for path in numbered(folder) if (path / EVIDENCE).is_file()]
    cases = sum(line["cases"] for line in ended)
    last = files[-1] if files else None
    return SoakResult(len(ended), cases, seconds, whole, tuple(problems), growth, areas, last)


def judge(lines: Sequence[Mapping[str, Any]], soak: Soak) -> list[str]:
    """Return a sentence for each failure, leak and drift in the rounds of one attempt."""
    rounds = [line for line in lines if "round" in line]
    problems = [
        f"round {line['round']} (seed {line['seed']}): {failure['group']}: {failure['message'] or failure['verdict']};"
        f" iris-harness replay cases/{failure['case']}.json"
        for line in rounds
        for failure in line["failures"]
    ]
    if len({line["generation"] for line in rounds}) > 1 and not problems:
        problems.append("the ranks were started again, although no case failed")
    limits = {
        "memory": soak.memory_mib * MIB,
        "shared": soak.memory_mib * MIB,
        "heap": soak.heap_kib * KIB,
        "files": soak.files,
        "threads": soak.threads,
    }
    for (kind, process), growth in sorted(growths(lines).items()):
        if growth > limits[kind]:
            amount, bound = _amount(kind, growth), _amount(kind, limits[kind]).partition(" of ")[0]
            problems.append(f"{process} grew by {amount} over {len(rounds)} rounds; allowed are {bound}")
    return problems + _drift(rounds)


def _amount(kind: str, number: float) -> str:
    if kind in ("files", "threads"):
        return f"{number:.0f} {kind}"
    return f"{number / KIB:.0f} KiB of {kind}" if kind == "heap" else f"{number / MIB:.0f} MiB of {kind}"


def growths(lines: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], float]:
    """Return the growth of each kind of use and process from the warm rounds to the last ones: of the medians of three
    rounds, so that one round with much in use does not count as a leak."""
    uses: dict[tuple[str, str], list[float]] = defaultdict(list)
    for line in lines:
        for process, values in line.get("uses", {}).items():
            for kind, value in values.items():
                uses[kind, process].append(value)
    growth = {}
    for key, values in uses.items():
        if len(values) >= LEAST_ROUNDS:
            warm = values[int(len(values) * WARM) :]
            growth[key] = statistics.median(warm[-3:]) - statistics.median(warm[:3])
    return growth


def _drift(rounds: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each area whose cases take much longer at the end than after the first rounds."""
    times: dict[str, list[float]] = defaultdict(list)
    for line in rounds:
        for area, seconds in line["seconds"].items():
            times[area].append(seconds)
    problems = []
    for area, values in times.items():
        warm = values[int(len(values) * WARM) :]
        third = len(warm) // 3
        if third < LEAST_ROUNDS // 2:
            continue
        first, last = statistics.median(warm[:third]), statistics.median(warm[-third:])
        if last > SLOWER * first and last - first >= _LEAST_SECONDS:
            problems.append(
                f"{area} became slower: {first:.1f} s for a round at the beginning, {last:.1f} s at the end"
            )
    return problems


def _attempt(soak: Soak, folder: Path, seed: int, screen: Console, budget: float, plant: str) -> list[str]:
    request = soak.request
    try:
        check_software(request.device, request.arch, request.ranks, request.ranks_per_gpu)
    except UsageError as error:  # the night has other results
        return [str(error)]
    number = max((int(path.name) for path in numbered(folder)), default=0) + 1
    place = (folder / str(number)).absolute()
    place.mkdir(parents=True)
    details = {
        "seed": seed + number,
        "budget": budget,
        "groups": soak.groups,
        "rounds": str(place / ROUNDS),
        "plant": plant,
    }
    write_whole(place / REQUEST, json.dumps(details))
    screen.print(f"\nsoak: {' '.join(request.options())}, {budget:.0f} s", markup=False, soft_wrap=True)
    limit = time.monotonic() + budget + GRACE

    def look() -> None:
        if time.monotonic() > limit:
            raise _Overrun

    options = ["-p", fixtures.SOAK, "--soak", str(place / REQUEST), "--ahead", "0"]
    try:
        outcome = run_suite(replace(request, seed=seed, budget=None), place, screen, *options, look=look)
    except _Overrun:
        return [f"the last round did not end within {GRACE:g} s after the budget"]
    if outcome.stopped is not None:
        raise Stopped(outcome.stopped)
    if not _ended(place):
        tail = next(
            (line for line in reversed(outcome.tail) if "rror" in line), outcome.ending or "no reason was printed"
        )
        return [f"the run ended with status {outcome.status} before its time: {tail:.300}"]
    return []


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the complete lines of a file of rounds."""
    if not path.is_file():
        return
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            try:
                plain = json.loads(line)
            except ValueError as error:
                raise UsageError(f"{path} is damaged ({error}): begin a new night") from None
            yield plain


def _ended(folder: Path) -> bool:
    return any("end" in line for line in _lines(folder / ROUNDS))


def _seconds(folder: Path) -> float:
    """Return the time from the request of an attempt to its last round."""
    if not (folder / ROUNDS).is_file():
        return 0.0
    return max(0.0, (folder / ROUNDS).stat().st_mtime - (folder / REQUEST).stat().st_mtime)
