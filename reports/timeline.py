"""Time in a report: telemetry of each GPU over the cases of the run, and the cases and time of each area."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.evidence import Evidence, Verdict
from harness.evidence.verdict import merge
from reports.gpus import quantity

WIDTH, HEIGHT = 1000, 60
"""Size of a curve. Times are binned to whole units of its width, so the page is bounded for a run of any length."""


@dataclass(frozen=True)
class Curve:
    """Ranges of one value of a GPU. ``bars`` are x, y, width and height; ``low`` and ``high`` label the axis."""

    name: str
    low: str
    high: str
    bars: tuple[tuple[int, float, int, float], ...]


@dataclass(frozen=True)
class GpuTimeline:
    """All curves of one GPU."""

    gpu: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Timeline:
    """Telemetry on one time axis of ``seconds``. ``cases`` are x, width and verdict of what ran."""

    seconds: float
    gpus: tuple[GpuTimeline, ...]
    cases: tuple[tuple[int, int, Verdict], ...]


@dataclass(frozen=True)
class Area:
    """Cases and seconds of one area; ``share`` and ``time_share`` are percentages of the largest area."""

    name: str
    cases: int
    seconds: float
    share: float
    time_share: float


def areas_of(evidence: Evidence) -> tuple[Area, ...]:
    """Return the number of cases and their time by area, the longest first."""
    counts: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    for case in evidence.cases:
        area = case.requirement.partition("-")[0]
        counts[area] += 1
        seconds[area] += case.timing.get("seconds", 0.0)
    largest, longest = max(counts.values(), default=1), max(seconds.values(), default=0.0) or 1.0
    return tuple(
        Area(area, counts[area], seconds[area], 100 * counts[area] / largest, 100 * seconds[area] / longest)
        for area in sorted(counts, key=lambda area: -seconds[area])
    )


def timeline_of(evidence: Evidence) -> Timeline | None:
    """Return the telemetry around cases on one axis, or None if there is none."""
    records = [record for record in evidence.telemetry if record.cases]
    entries = [gpu for record in records for gpu in record.gpus if "bracket" in gpu]
    if not entries:
        return None
    start = min(entry["bracket"][0] for entry in entries)
    end = max(entry["bracket"][1] for entry in entries)
    seconds = end - start
    if not 0 < seconds < float("inf"):
        return None

    def place(moment: float) -> int:
        return max(0, min(WIDTH - 1, int((moment - start) / seconds * WIDTH)))

    by_gpu: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for entry in entries:
        by_gpu[entry["gpu"]].append(entry)
    gpus = tuple(GpuTimeline(gpu, _curves(listed, place)) for gpu, listed in by_gpu.items())
    verdicts = {case.id: case.verdict for case in evidence.cases}
    spans: dict[int, tuple[int, Verdict]] = {}
    for record in records:
        for case, (first, last) in record.cases.items():
            x = place(first)
            width, verdict = spans.get(x, (1, verdicts.get(case, Verdict.UNKNOWN)))
            spans[x] = max(width, place(last) - x), merge([verdict, verdicts.get(case, Verdict.UNKNOWN)])
    return Timeline(seconds, gpus, tuple((x, width, verdict) for x, (width, verdict) in sorted(spans.items())))


def _curves(entries: list[Mapping[str, Any]], place: Callable[[float], int]) -> tuple[Curve, ...]:
    """Return the curves that a GPU has: power, temperature, and bytes per second over its links."""
    curves = []
    for name, unit, read in (
        ("Power", "W", _gauge("power")),
        ("Temperature", "°C", _gauge("temperature_core")),
        ("Links, sent", "B/s", _rate("link_tx")),
        ("Links, received", "B/s", _rate("link_rx")),
    ):
        bins: dict[int, tuple[float, float, int]] = {}
        for entry in entries:
            if (span := read(entry)) is None:
                continue
            x = place(entry["bracket"][0])
            low, high, width = bins.get(x, (*span, 1))
            bins[x] = min(low, span[0]), max(high, span[1]), max(width, place(entry["bracket"][1]) - x)
        if bins:
            curves.append(_curve(name, unit, bins))
    return tuple(curves)


def _gauge(name: str) -> Callable[[Mapping[str, Any]], tuple[float, float] | None]:
    def read(entry: Mapping[str, Any]) -> tuple[float, float] | None:
        return tuple(entry["gauges"][name]) if name in entry["gauges"] else None

    return read


def _rate(name: str) -> Callable[[Mapping[str, Any]], tuple[float, float] | None]:
    def read(entry: Mapping[str, Any]) -> tuple[float, float] | None:
        seconds = entry["bracket"][1] - entry["bracket"][0]
        if name not in entry["deltas"] or name in entry["unavailable"] or seconds <= 0:
            return None
        return 0.0, entry["deltas"][name] / seconds

    return read


def _curve(name: str, unit: str, bins: Mapping[int, tuple[float, float, int]]) -> Curve:
    top = max(high for _, high, _ in bins.values())
    scale = HEIGHT / top if top > 0 else 0.0
    return Curve(name, quantity(0, unit), quantity(top, unit), tuple(_bars(bins, scale)))


def _bars(bins: Mapping[int, tuple[float, float, int]], scale: float) -> Iterable[tuple[int, float, int, float]]:
    for x, (low, high, width) in sorted(bins.items()):
        height = max(1.0, (max(high, 0) - max(low, 0)) * scale)
        yield x, round(max(0.0, min(HEIGHT - height, HEIGHT - max(high, 0) * scale)), 1), width, round(height, 1)
