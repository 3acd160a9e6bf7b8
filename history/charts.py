"""Coordinates of the charts of a dashboard: plain numbers, which the template draws as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from history.trends import Trend

WIDTH, HEIGHT = 640, 110
_EDGE = 6


@dataclass(frozen=True)
class Chart:
    """A series as a line: ``line`` is for a polyline, ``bars`` are the ranges of the points (x, top, bottom), ``dots``
    the points (x, y, words), ``levels`` the medians between changes (x, x, y), ``steps`` the changes (x, night)."""

    line: str
    bars: tuple[tuple[float, float, float], ...]
    dots: tuple[tuple[float, float, str], ...]
    levels: tuple[tuple[float, float, float], ...]
    steps: tuple[tuple[float, str], ...]
    low: str
    high: str
    first: str
    last: str


@dataclass(frozen=True)
class Part:
    """Part of a night's bar: its verdict, its place and its width, of a bar of 100."""

    verdict: str
    count: int
    start: float
    width: float


def chart_of(trend: Trend) -> Chart:
    """Return the chart of a series with its change points."""
    points, unit = trend.series.points, trend.series.unit
    low, high = min(point.low for point in points), max(point.high for point in points)
    span = (high - low) or abs(high) or 1.0

    def x(place: float) -> float:
        return round(_EDGE + (WIDTH - 2 * _EDGE) * place / max(1, len(points) - 1), 1)

    def y(value: float) -> float:
        return round(HEIGHT - _EDGE - (HEIGHT - 2 * _EDGE) * (value - low) / span, 1)

    places = {point.night: place for place, point in enumerate(points)}
    steps = [places[change.night] for change in trend.changes]
    bounds = [0, *steps, len(points)]
    medians = [change.before for change in trend.changes[:1]] + [change.after for change in trend.changes]
    levels = [(x(start), x(end - 1), y(value)) for start, end, value in zip(bounds, bounds[1:], medians, strict=False)]
    return Chart(
        " ".join(f"{x(place)},{y(point.value)}" for place, point in enumerate(points)),
        tuple((x(place), y(point.high), y(point.low)) for place, point in enumerate(points) if point.high > point.low),
        tuple(
            (x(place), y(point.value), f"{point.night}: {quantity(point.value, unit)}")
            for place, point in enumerate(points)
        ),
        tuple(levels),
        tuple((round((x(place - 1) + x(place)) / 2, 1), points[place].night) for place in steps),
        quantity(low, unit),
        quantity(high, unit),
        points[0].night,
        points[-1].night,
    )


def parts_of(counts: Mapping[str, int], order: Sequence[str]) -> list[Part]:
    """Return the parts of a night's bar. A verdict that occurred has at least one hundredth: one failure among
    thousands is visible."""
    present = [(name, counts[name]) for name in order if counts.get(name)]
    total = sum(count for _, count in present) or 1
    widths = [max(1.0, 100 * count / total) for _, count in present]
    scale = 100 / (sum(widths) or 1.0)
    parts, start = [], 0.0
    for (name, count), width in zip(present, widths, strict=True):
        parts.append(Part(name, count, round(start, 2), round(width * scale, 2)))
        start += width * scale
    return parts


def quantity(value: float, unit: str = "") -> str:
    """Return a value with three to four digits and its unit."""
    if not math.isfinite(value):
        return str(value)
    text = f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
    return f"{text} {unit}".rstrip()
