"""Recorded numbers that cannot be: times that lie outside of the run, and counts that do not add up.

A number alone proves nothing, since a signer can choose a possible one. But a record that no run can have written was
edited, or the machine that wrote it was broken, and then nothing else in it can be relied on.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from harness.evidence import Case, Evidence, Run, Telemetry, Verdict

_RANKS = re.compile(r"[\[,]ranks=(\d{1,6})[,\]]")
_RESOLUTION = 2.0
"""Seconds by which a duration may exceed that of the run, whose start and end are whole seconds."""
_ROUNDING = 0.01
"""Seconds by which two measurements of nested periods may differ: each is rounded."""
_CLOCKS = 60.0
"""Seconds by which the clocks of a run's machines may differ, or be set during the run."""
_STATUSES = range(6)
"""Exit statuses of pytest."""


def problems(evidence: Evidence) -> Iterator[str]:
    """Yield a sentence for each recorded number that no run can have."""
    period = _period(evidence)
    for run in evidence.runs:
        yield from _of_run(run)
    for end in evidence.ends:
        if end.exit_status not in _STATUSES:
            yield f"the run ended with status {end.exit_status}, which pytest does not have"
    for case in evidence.cases:
        yield from _of_case(case, evidence, period)
    yield from _of_groups(evidence, period)
    for record in evidence.telemetry:
        yield from _of_telemetry(record, period)


def _period(evidence: Evidence) -> tuple[float, float] | None:
    """Return the start and the end of the run, in seconds since the epoch; None if they are not known."""
    if len(evidence.runs) != 1 or len(evidence.ends) != 1:
        return None
    try:
        return _seconds(evidence.runs[0].started), _seconds(evidence.ends[0].finished)
    except ValueError:
        return None  # ``observations.dates`` reports it


def _seconds(text: str) -> float:
    value = datetime.fromisoformat(text.replace("Z", "+00:00"))  # Python 3.10 does not read the Z
    return (value if value.tzinfo else value.replace(tzinfo=timezone.utc)).timestamp()


def _of_run(run: Run) -> Iterator[str]:
    for name, of in (("ranks_per_gpu", run.ranks_per_gpu), ("nodes", run.nodes)):
        if of > max(run.ranks):
            yield f"the run is recorded with {name} {of}, and with at most {max(run.ranks)} ranks"
    if len(set(run.ranks)) != len(run.ranks):
        yield f"the run is recorded with the same world size twice: {', '.join(map(str, run.ranks))}"


def _of_case(case: Case, evidence: Evidence, period: tuple[float, float] | None) -> Iterator[str]:
    name = f"case {case.id}"
    if any(case.seed != run.seed for run in evidence.runs):
        yield f"{name} is recorded with seed {case.seed}, and the run with {evidence.runs[0].seed}"
    seconds, compiled = (case.timing.get(key, 0.0) for key in ("seconds", "compile_seconds"))
    yield from _of_duration(f"{name} took", seconds, period)
    if compiled > seconds + _ROUNDING:
        yield f"{name} took {seconds:g} s, and its ranks compiled for {compiled:g} s of them"
    window = case.telemetry
    if window.get("seconds", 0.0) > seconds + _ROUNDING:
        yield f"{name} took {seconds:g} s, and was measured for {window['seconds']:g} s of them"
    ranks = _ranks(case.group)
    if ranks is not None:
        yield from _of_ranks(name, case, ranks)
    yield from _of_counts(name, case)
    detail = (case.differs.detail if case.differs is not None else None) or {}
    if detail and not 0 < detail["wrong"] <= max(1, detail["of"]) and not detail["bytes"]:
        yield f"{name} has {detail['wrong']} wrong elements of {detail['of']}"
    passed = all(record.verdict is Verdict.PASS for record in evidence.groups.get(case.group, ()))
    if case.phase == "shrink" and passed:
        yield f"{name} is recorded as a reduction, and its group has no failure to reduce"


def _of_ranks(name: str, case: Case, ranks: int) -> Iterator[str]:
    """Yield what is wrong with the ranks that a case names: its group has ``ranks``."""
    measured = case.telemetry.get("ranks", ranks)
    if measured != ranks:
        yield f"{name} was measured on {measured} ranks, and its group has {ranks}"
    named = [case.differs.rank] if case.differs is not None and case.differs.rank is not None else []
    named += [int(rank) for rank in case.stacks or () if rank.isdecimal() and len(rank) < 10]
    if beyond := [rank for rank in named if not 0 <= rank < ranks]:
        yield f"{name} names rank {beyond[0]}, and its group has {ranks}"


def _of_counts(name: str, case: Case) -> Iterator[str]:
    """Yield the counters of a case's telemetry that are not the sums of its launches: both count the same launches."""
    window = case.telemetry
    if "launches" in window:
        launched = sum(launch["launches"] for launch in case.launches.values())
        if window["launches"] != launched:
            yield f"{name} was measured with {window['launches']} launches, and lists {launched}"
    if "bytes" in window:
        moved = sum(access["bytes"] for launch in case.launches.values() for access in launch["accesses"])
        if (total := sum(window["bytes"].values())) != moved:
            yield f"{name} was measured with {total:,} bytes moved, and its accesses moved {moved:,}"
    lanes, instructions = window.get("lanes", {}), window.get("instructions", {})
    for kind, number in lanes.items():
        if number > _LANES * instructions.get(kind, 0):
            yield f"{name} was measured with {number:,} lanes in {instructions.get(kind, 0):,} {kind} instructions"
    for kind, number in window.get("polled", {}).items():
        if number > instructions.get(kind, 0):
            yield f"{name} was measured with {number:,} of {instructions.get(kind, 0):,} {kind} instructions in waits"


_LANES = 64
"""Lanes of a wavefront."""


def _of_groups(evidence: Evidence, period: tuple[float, float] | None) -> Iterator[str]:
    seconds: dict[str, float] = defaultdict(float)
    for case in evidence.cases:
        seconds[case.group] += case.timing.get("seconds", 0.0)
    for name, records in evidence.groups.items():
        for record in records:
            if record.repeats is not None and record.repeats["failed"] > record.repeats["runs"]:
                yield f"{name} has a case that failed {record.repeats['failed']} of {record.repeats['runs']} times"
            if record.seconds is not None:
                yield from _of_duration(f"{name} took", record.seconds, period)
                if seconds[name] > record.seconds + _ROUNDING:
                    yield f"{name} took {record.seconds:g} s, and its cases took {seconds[name]:g} s"


def _of_duration(subject: str, seconds: float, period: tuple[float, float] | None) -> Iterator[str]:
    if period is not None and seconds > period[1] - period[0] + _RESOLUTION:
        yield f"{subject} {seconds:g} s, and the whole run {period[1] - period[0]:g} s"


def _of_telemetry(record: Telemetry, period: tuple[float, float] | None) -> Iterator[str]:
    """Yield what is wrong with the times and counts of GPU telemetry."""
    for identity, window in record.cases.items():
        yield from _of_times(f"the telemetry of case {identity}", window, period)
    for gpu in record.gpus:
        if "bracket" not in gpu:
            continue
        name = f"the telemetry of GPU {gpu['gpu']:.60}"
        yield from _of_times(name, gpu["bracket"], period)
        for identity, (start, end) in record.cases.items():
            if gpu["bracket"][0] > end + _ROUNDING or gpu["bracket"][1] < start - _ROUNDING:
                yield f"{name} is for case {identity}, and was not measured around it"
        yield from _of_samples(name, gpu)


def _of_times(subject: str, window: Sequence[float], period: tuple[float, float] | None) -> Iterator[str]:
    start, end = window
    if start > end:
        yield f"{subject} starts {start - end:g} s after its end"
    elif period is not None and (start < period[0] - _CLOCKS or end > period[1] + _CLOCKS):
        side = "before the start" if start < period[0] - _CLOCKS else "after the end"
        yield f"{subject} was measured {side} of the run"


def _of_samples(name: str, gpu: Mapping[str, Any]) -> Iterator[str]:
    for field, (least, greatest) in gpu["gauges"].items():
        if least > greatest:
            yield f"{name} has a {field:.60} from {least:g} to {greatest:g}"
    for field, number in gpu["active"].items():
        if number > gpu["samples"]:
            yield f"{name} has {field:.60} in {number} of {gpu['samples']} samples"


def _ranks(group: str) -> int | None:
    match = _RANKS.search(group)
    return int(match[1]) if match else None
