"""The static site of a history: one page, without network and script.

It shows the last nights, new and mended failures, groups that were not always good, flaky ones, trends and nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import UsageError
from harness.evidence import Verdict
from history.charts import HEIGHT, WIDTH, Chart, Part, chart_of, parts_of
from history.database import History
from history.nights import BAD, Changes, Entry, FirstBad, Night, changes, entries, first_bad, flaky, nights, nodes
from history.series import series
from history.trends import Trend, trend
from reports.html import SYMBOLS, page_of
from reports.view import LABELS

NIGHTS = 30
_ROWS, _CHARTS = 200, 60
_ORDER = [
    verdict.value
    for verdict in (*BAD, Verdict.NOT_RUN, Verdict.QUARANTINED, Verdict.WAIVED, Verdict.UNSUPPORTED, Verdict.PASS)
]


@dataclass(frozen=True)
class NightRow:
    """A night with the parts of its bar."""

    night: Night
    parts: list[Part]
    total: int


@dataclass(frozen=True)
class GroupRow:
    """A group that was not always good: its verdict in each night, oldest first, None where it was not planned."""

    group: str
    configuration: str
    cells: tuple[Entry | None, ...]


@dataclass(frozen=True)
class TrendRow:
    """A series that changed or drifts, with its chart and what changed in words."""

    trend: Trend
    chart: Chart
    words: tuple[str, ...]


@dataclass(frozen=True)
class Failure:
    """A failing group of the newest night, and since when it fails."""

    entry: Entry
    since: FirstBad | None


def render(history: History, title: str = "Nights", limit: int = NIGHTS) -> str:
    """Return the page of the last ``limit`` nights. Raises UsageError if the history has none."""
    listed = nights(history, limit)
    if not listed:
        raise UsageError(f"{history.path} has no run: add evidence with iris-harness history add")
    newest = next((night for night in listed if night.counts), listed[0])
    changed = changes(history, newest.name)
    trends, examined = _trends(history)
    return page_of(
        "dashboard.html.j2",
        title=title,
        nights=[NightRow(night, parts_of(night.counts, _ORDER), sum(night.counts.values())) for night in listed],
        newest=newest,
        changes=changed,
        failed=_failures(history, changed.failed),
        still=_failures(history, changed.still),
        groups=_groups(history, [night.name for night in reversed(listed) if night.counts]),
        columns=[night.name for night in reversed(listed) if night.counts],
        flaky=flaky(history, limit),
        trends=trends,
        examined=examined,
        nodes=nodes(history, limit),
        verdicts={verdict.value: verdict for verdict in Verdict},
        labels=LABELS,
        symbols=SYMBOLS,
        kinds=(),
        width=WIDTH,
        height=HEIGHT,
        max_rows=_ROWS,
        bad=_is_bad(changed),
        idle=bool(changed.not_run) or not changed.passed,
    )


def _is_bad(changed: Changes) -> bool:
    return bool(changed.failed or changed.still)


def _failures(history: History, listed: Sequence[Entry]) -> list[Failure]:
    rows = []
    for entry in listed[:_ROWS]:
        since = {each.bad.configuration: each for each in first_bad(history, entry.group)}
        rows.append(Failure(entry, since.get(entry.configuration)))
    return rows


def _groups(history: History, names: Sequence[str]) -> list[GroupRow]:
    """Return the groups that were bad in one of these nights, those that are bad now first."""
    by_group: dict[tuple[str, str], dict[str, Entry]] = defaultdict(dict)
    for entry in entries(history, names):
        by_group[entry.group, entry.configuration][entry.night] = entry
    rows = [
        GroupRow(group, configuration, tuple(cells.get(name) for name in names))
        for (group, configuration), cells in by_group.items()
        if any(entry.bad for entry in cells.values())
    ]
    return sorted(rows, key=_urgency)


def _urgency(row: GroupRow) -> tuple[int, int, str]:
    """Return the key of a row: nights since it was last bad, then the number of bad nights, the most first."""
    ran = [cell for cell in reversed(row.cells) if cell is not None and cell.verdict is not Verdict.NOT_RUN]
    since = next((place for place, cell in enumerate(ran) if cell.bad), len(ran))
    return since, -sum(cell.bad for cell in ran), row.group


def _trends(history: History) -> tuple[list[TrendRow], int]:
    """Return the series that changed, those that became worse first, and the number of series that were examined."""
    chosen = [each for each in series(history, "*", changing=True) if len(set(each.values)) > 1]
    rows = []
    for each in chosen:
        result = trend(each, tests=len(chosen))
        if result is not None and (result.changes or result.drift):
            rows.append(TrendRow(result, chart_of(result), _words(result)))
    rows.sort(key=lambda row: (not row.trend.worse, -abs(_effect(row.trend)), row.trend.series.metric))
    return rows[:_CHARTS], len(chosen)


def _effect(trend: Trend) -> float:
    return trend.changes[-1].effect if trend.changes else trend.drift


def _words(trend: Trend) -> tuple[str, ...]:
    words = [
        f"{change.effect:+.1%} in {change.night} (p {change.p:.1g})"
        + (
            f", {_short(change.commits_before)} to {_short(change.commits)}"
            if change.commits != change.commits_before
            else ""
        )
        for change in trend.changes
    ]
    if trend.drift:
        words.append(f"drifts by {trend.drift:+.1%} over {len(trend.series.points)} nights (p {trend.drift_p:.1g})")
    return tuple(words)


def _short(commits: Sequence[str]) -> str:
    return ", ".join(commit[:12] for commit in commits) or "unknown"
