"""Plots of a benchmark: bus bandwidth and time over size, with their spread, as coordinates of an SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reports.benchmarks import Benchmark, Point

WIDTH, HEIGHT = 440, 270
LEFT, RIGHT, TOP, BOTTOM = 66, 26, 12, 34
"""Margins around the axes; ticks are labelled in the left and the bottom one."""
_LABELS_X, _TICKS_Y = 6, 7
_STEPS = (1, 2, 5)
_LEAST = 1e-15

Range = tuple[float, float, float]
"""Median, least and greatest value."""


@dataclass(frozen=True)
class Tick:
    """A labelled place on an axis."""

    at: float
    label: str


@dataclass(frozen=True)
class Line:
    """A backend. ``path`` and ``band`` are SVG points, of the medians and around the spread; ``marks`` are the medians'
    places with their values in words."""

    label: str
    path: str
    band: str
    marks: tuple[tuple[float, float, str], ...]


@dataclass(frozen=True)
class Plot:
    """``title`` names the value and its unit, ``summary`` describes the plot in a sentence."""

    title: str
    summary: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    lines: tuple[Line, ...]


def plots_of(benchmark: Benchmark) -> tuple[Plot, ...]:
    """Return the plots of a benchmark: of bus bandwidth, unless there is none, and of time."""
    plots = [_plot(benchmark, "Bus bandwidth", bandwidth, lambda point: point.bandwidth)]
    plots += [_plot(benchmark, "Time of a call", time, lambda point: point.time)]
    return tuple(plot for plot in plots if plot is not None)


def bandwidth(value: float) -> str:
    """Return bytes per second in words, such as ``42.1 GB/s``."""
    return _scaled(value, (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3), ("B/s", 1.0)))


def time(value: float) -> str:
    """Return seconds in words, such as ``35.1 ms``."""
    return _scaled(value, (("s", 1.0), ("ms", 1e-3), ("\N{MICRO SIGN}s", 1e-6), ("ns", 1e-9)))


def _scaled(value: float, units: Sequence[tuple[str, float]]) -> str:
    unit, scale = next((each for each in units if value >= each[1] * 0.9995), units[-1])
    return f"{value / scale:.3g} {unit}"


def _plot(
    benchmark: Benchmark, title: str, words: Callable[[float], str], read: Callable[[Point], Range]
) -> Plot | None:
    """Both axes are logarithmic. None if no point has a value."""
    points = [point for series in benchmark.series for point in series.points if read(point)[1] > _LEAST]
    if not points:
        return None
    texts = {point.size: point.text for point in points}
    sizes = sorted(texts)
    levels = _levels(min(read(point)[1] for point in points), max(read(point)[2] for point in points))
    x, y = _axis(sizes[0], sizes[-1], LEFT, WIDTH - RIGHT), _axis(levels[0], levels[-1], HEIGHT - BOTTOM, TOP)
    lines = []
    for series in benchmark.series:
        kept = [point for point in series.points if read(point)[1] > _LEAST]
        places = [(x(point.size), *map(y, read(point))) for point in kept]
        around = [(at, low) for at, _, low, _ in places] + [(at, high) for at, _, _, high in reversed(places)]
        marks = tuple(
            (at, middle, f"{series.label}, {point.text}: {words(read(point)[0])}")
            for (at, middle, _, _), point in zip(places, kept, strict=True)
        )
        lines.append(Line(series.label, _joined([(at, middle) for at, middle, _, _ in places]), _joined(around), marks))
    every = -(-len(sizes) // _LABELS_X)
    summary = (
        f"{title} of {benchmark.name} over size, {texts[sizes[0]]} to {texts[sizes[-1]]}, logarithmic:"
        f" {', '.join(line.label for line in lines)}"
    )
    return Plot(
        title=title,
        summary=summary,
        x_ticks=tuple(Tick(x(size), texts[size]) for size in sizes[::every]),
        y_ticks=tuple(Tick(y(level), words(level)) for level in levels),
        lines=tuple(lines),
    )


def _axis(low: float, high: float, first: float, last: float) -> Callable[[float], float]:
    """Return the logarithmic axis from ``first`` to ``last``; if there is one value only, its place is the middle."""
    span = math.log(high / low)

    def place(value: float) -> float:
        share = math.log(value / low) / span if span > 0 else 0.5
        return round(first + (last - first) * share, 1)

    return place


def _levels(low: float, high: float) -> list[float]:
    """Return the levels 1, 2 and 5 of each decade around the values, or only some powers of ten if these are many."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    levels = [step * 10.0**decade for decade in range(first, last + 1) for step in _STEPS]
    start = max(number for number, level in enumerate(levels) if level <= low * 1.0001)
    end = min(number for number, level in enumerate(levels) if level >= high * 0.9999)
    chosen = levels[start : max(end, start + 1) + 1]
    if len(chosen) <= _TICKS_Y:
        return chosen
    every = -(-(last - first) // _TICKS_Y)
    decades = list(range(first, last, every))
    return [10.0**decade for decade in (*decades, decades[-1] + every)]


def _joined(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in points)
