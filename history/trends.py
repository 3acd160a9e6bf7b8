"""Change points and drift of a series, in the presence of noise.

PELT (``ruptures``) proposes change points on the ranks of the values: a single spike is then one rank away from the
values around it, whatever its size. A proposed point counts if the values before and after it differ by a Mann-Whitney
test and by an effect: a share of the value before, and a multiple of the noise. What does not count is merged with its
neighbour, and the rest is tested again. A series that a straight line fits better than levels drifts (Kendall's tau).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from history.series import Series

SEGMENT = 5
"""Nights that a level must last before it counts as one."""
EFFECT, OF_TIME = 0.05, 0.25
"""Least change, as a share of the median before; that of the time of a group, which has new cases in each night."""
NOISE = 1.5
"""Least change, as a multiple of the noise: the median absolute deviation within a segment, as a standard deviation."""
P = 0.001
"""Greatest p of a change among all series that are looked at; it is divided by their number."""
PENALTY = 2.0
"""Penalty of PELT for a change point, times the logarithm of the number of values, whose variance is 1."""
LEAST_SCORE = 2.5
"""Standard score of the best place for a single change, below which none is proposed."""
EXACT = 120
"""Nights up to which the Mann-Whitney p of values without ties is computed exactly."""
_MAD = 1.4826
_TINY = 1e-12


@dataclass(frozen=True)
class ChangePoint:
    """The value was ``before`` up to the night before ``night``, and is ``after`` from it on. ``commits`` are those of
    ``night``, and ``commits_before`` those of the night before."""

    night: str
    before: float
    after: float
    p: float
    nights: int
    commits_before: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()

    @property
    def effect(self) -> float:
        """The change as a share of the value before."""
        return (self.after - self.before) / (abs(self.before) or 1.0)


@dataclass(frozen=True)
class Trend:
    """Change points of a series, and its drift, the change over all its nights as a share; 0.0 if it does not drift."""

    series: Series
    changes: tuple[ChangePoint, ...]
    drift: float = 0.0
    drift_p: float = 1.0

    @property
    def worse(self) -> bool:
        """True if the last change, or the drift, is for the worse."""
        latest = self.changes[-1].effect if self.changes else self.drift
        return latest > 0 if self.series.rising_is_worse else latest < 0


def trend(
    series: Series, *, segment: int = SEGMENT, effect: float | None = None, p: float = P, tests: int = 1
) -> Trend | None:
    """Return the trend of a series; None if it has fewer nights than two segments.

    ``effect``: None for that of the metric. ``tests``: number of series that are looked at, by which ``p`` is divided.
    """
    effect = effect if effect is not None else OF_TIME if series.metric.startswith("seconds ") else EFFECT
    values = series.values
    if len(values) < 2 * segment:
        return None
    limit = p / max(1, tests)
    points = []
    for start, at, end, chance in change_points(values, segment=segment, effect=effect, p=limit):
        before, after = values[start:at], values[at:end]
        points.append(
            ChangePoint(
                series.points[at].night, statistics.median(before), statistics.median(after), chance, len(after),
                series.points[at - 1].commits, series.points[at].commits,
            )
        )  # fmt: skip
    drift, chance = _drift(values, effect, limit)
    if points and drift and _fits_line(values, points):
        points = []
    return Trend(series, tuple(points), *((0.0, 1.0) if points else (drift, chance)))


def change_points(
    values: Sequence[float], *, segment: int = SEGMENT, effect: float = EFFECT, p: float = P
) -> list[tuple[int, int, int, float]]:
    """Return the change points: the start of the segment before, the first place after the change, the end of the
    segment after, and the p of the change."""
    if len(values) < 2 * segment or max(values) - min(values) <= _TINY * max(1.0, abs(max(values))):
        return []
    bounds = [0, *_proposed(values, segment), len(values)]
    while len(bounds) > 2:
        chances = [_chance(values[a:b], values[b:c], effect) for a, b, c in _triples(bounds)]
        worst = max(range(len(chances)), key=chances.__getitem__)
        if chances[worst] <= p:
            return [(a, b, c, chance) for (a, b, c), chance in zip(_triples(bounds), chances, strict=True)]
        del bounds[worst + 1]
    return []


def _proposed(values: Sequence[float], segment: int) -> list[int]:
    """Return the places that PELT proposes on the standardized ranks of the values."""
    import numpy as np
    import ruptures
    from scipy.stats import rankdata

    ranks: Any = rankdata(values)
    signal = (ranks - ranks.mean()) / ranks.std()
    places = np.arange(segment, len(values) - segment + 1)
    scores = np.cumsum(signal)[places - 1] / np.sqrt(places * (len(values) - places) / len(values))
    if np.abs(scores).max() < LEAST_SCORE:  # most series: PELT takes a hundred times as long
        return []
    search = ruptures.Pelt(model="l2", min_size=segment, jump=1).fit(signal)
    return [int(place) for place in search.predict(pen=PENALTY * float(np.log(len(values))))[:-1]]


def _chance(before: Sequence[float], after: Sequence[float], effect: float) -> float:
    """Return the p of a difference of two segments; 1.0 if its effect is too small to count."""
    from scipy.stats import mannwhitneyu

    low, high = statistics.median(before), statistics.median(after)
    noise = _MAD * statistics.median([*(abs(value - low) for value in before), *(abs(value - high) for value in after)])
    if abs(high - low) < effect * abs(low) or abs(high - low) <= NOISE * noise:
        return 1.0
    whole = [*before, *after]
    exact = len(whole) <= EXACT and len(set(whole)) == len(whole)
    return float(mannwhitneyu(before, after, method="exact" if exact else "asymptotic").pvalue)


def _drift(values: Sequence[float], effect: float, p: float) -> tuple[float, float]:
    """Return the change over the whole series along Theil and Sen's line, and Kendall's p; 0.0 without a drift."""
    from scipy.stats import kendalltau, theilslopes

    places = list(range(len(values)))
    if max(values) == min(values):
        return 0.0, 1.0
    chance = float(kendalltau(places, values).pvalue)
    slope = float(theilslopes(values, places)[0])
    change = slope * (len(values) - 1) / (abs(statistics.median(values)) or 1.0)
    return (change, chance) if chance <= p and abs(change) >= effect else (0.0, 1.0)


def _fits_line(values: Sequence[float], points: Sequence[ChangePoint]) -> bool:
    """Return whether Theil and Sen's line is nearer to the values than the levels between the change points."""
    from scipy.stats import theilslopes

    slope, start = (float(each) for each in theilslopes(values, list(range(len(values))))[:2])
    to_line = sum(abs(value - start - slope * place) for place, value in enumerate(values))
    levels = [points[0].before] * (len(values) - sum(point.nights for point in points))
    for point in points:
        levels += [point.after] * point.nights
    return to_line < sum(abs(value - level) for value, level in zip(values, levels, strict=True))


def _triples(bounds: Sequence[int]) -> list[tuple[int, int, int]]:
    return [(a, b, c) for (a, b), (_, c) in pairwise(pairwise(bounds))]
