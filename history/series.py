"""One number over the nights.

A metric is named by its kind and its subject:

    seconds RMA-PUT-001[ranks=4,dtype=fp32]                     the group's time
    instructions RMA-PUT-001[ranks=4,dtype=fp32] put_kernel     also registers, spills, waits, lds
    bench.all_gather.fp16.8.1048576.iris.busbw_gbs              a value of a benchmark, with its spread
    telemetry.power GPU-0                                       a gauge or a counter of a GPU
"""

from __future__ import annotations

import fnmatch
import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from history.database import History
from history.nights import CONFIGURATION

COUNTERS = ("instructions", "registers", "spills", "waits", "lds")
LARGER_IS_BETTER = ("busbw_gbs", "algbw_gbs", "ratio_to_nccl")
LIMIT = 20_000
"""Series of a pattern, at most."""


@dataclass(frozen=True)
class Point:
    """The median of a night's values, their number, and their range."""

    night: str
    value: float
    low: float
    high: float
    samples: int
    nodes: tuple[str, ...] = ()
    commits: tuple[str, ...] = ()


@dataclass(frozen=True)
class Series:
    """A metric of one configuration over the nights, the oldest first."""

    metric: str
    configuration: str
    points: tuple[Point, ...]
    unit: str = ""

    @property
    def values(self) -> list[float]:
        """The value of each night."""
        return [point.value for point in self.points]

    @property
    def rising_is_worse(self) -> bool:
        """False for bandwidths, which should be large."""
        return not self.metric.endswith(LARGER_IS_BETTER)


def metrics(history: History, pattern: str = "*") -> list[str]:
    """Return the names of the metrics that match a pattern such as ``bench.*``, or that have it as their name."""
    return sorted({each.metric for each in series(history, pattern)})


def series(history: History, pattern: str, *, changing: bool = False) -> list[Series]:
    """Return the series whose metric is ``pattern``, or matches it. ``changing``: without counters of compiled code
    that never changed, which most are."""
    kind = pattern.partition(" ")[0]
    rows: list[Any] = []
    if fnmatch.fnmatchcase("seconds", kind):
        rows += history.rows(
            f"SELECT 'seconds ' || name AS metric, seconds AS value, NULL AS low, NULL AS high, 's' AS unit, {_RUN}"
            " FROM verdict JOIN run ON run.id = verdict.run WHERE seconds IS NOT NULL AND verdict = 'pass'"
        )
    for counter in COUNTERS:
        if fnmatch.fnmatchcase(counter, kind):
            rows += history.rows(
                f"SELECT '{counter} ' || name || ' ' || kernel AS metric, {counter} AS value, NULL AS low,"
                f" NULL AS high, '' AS unit, {_RUN} FROM kernel JOIN run ON run.id = kernel.run"
                f" WHERE {counter} IS NOT NULL {_VARIES.format(counter=counter) if changing else ''}"
            )
    rows += history.rows(
        f"SELECT metric || CASE gpu WHEN '' THEN '' ELSE ' ' || gpu END AS metric, value, low, high, unit, {_RUN}"
        " FROM measure JOIN run ON run.id = measure.run"
    )
    gathered: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for row in rows:
        if row["metric"] == pattern or _matches(row["metric"], pattern):
            gathered[row["metric"], row["configuration"]].append(row)
    return [_series(key, gathered[key]) for key in sorted(gathered)[:LIMIT]]


_VARIES = (
    " AND (name, kernel) IN"
    " (SELECT name, kernel FROM kernel GROUP BY name, kernel HAVING MIN({counter}) < MAX({counter}))"
)
_RUN = f"night, node, library_commit, started, {CONFIGURATION} AS configuration"


def _matches(metric: str, pattern: str) -> bool:
    """Return whether a metric matches a pattern, in which brackets stand for themselves: names of groups have them."""
    return fnmatch.fnmatchcase(metric, pattern.replace("[", "[[]"))


def _series(key: tuple[str, str], rows: list[Any]) -> Series:
    by_night: dict[str, list[Any]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["started"]):
        by_night[row["night"]].append(row)
    points = []
    for night, each in by_night.items():
        values = [row["value"] for row in each]
        points.append(
            Point(
                night,
                float(statistics.median(values)),
                min(row["low"] if row["low"] is not None else row["value"] for row in each),
                max(row["high"] if row["high"] is not None else row["value"] for row in each),
                len(values),
                tuple(sorted({row["node"] for row in each})),
                tuple(sorted({row["library_commit"] for row in each if row["library_commit"]})),
            )
        )
    return Series(*key, tuple(points), rows[0]["unit"])
