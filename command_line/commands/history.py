"""``iris-harness history``: add runs to a history, and query it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

import click

import history
from command_line.options import PATH
from command_line.output import printable
from harness.errors import UsageError
from harness.files import write_whole
from history.nights import Entry

DEFAULT = Path("history.sqlite")
_FILE = click.option(
    "--file", "database", type=PATH, default=DEFAULT, show_default=True, help="The history, an SQLite file."
)
_LISTED = 50


@click.group("history", short_help="Runs of many nights: first bad night, flaky groups, trends.")
def command() -> None:
    """Keep the results of many runs in one SQLite file, and query them."""


@command.command("add", short_help="Add evidence or benchmarks.")
@click.argument("files", type=PATH, nargs=-1, required=True)
@_FILE
@click.option("--node", default="-", help="Name of the machine that the runs were made on.")
@click.option("--leg", default="-", help="Name of the runs' leg.")
@click.option("--night", help="Name of the night.  [default: the day on which a run began, in UTC]")
def add(files: Sequence[Path], database: Path, node: str, leg: str, night: str | None) -> int:
    """Add FILES, each an evidence.jsonl or a bench.json. A run that the history has already changes nothing.

    Exit status 0, or 2 if a file is damaged or is neither: then nothing of this call was added.
    """
    origin = history.Origin(node, leg, night)
    with history.History(database, create=True) as opened:
        added = [history.add(opened, file, origin) for file in files]
    click.echo(f"{sum(added)} of {len(files)} runs added to {printable(str(database))}, the others are in it already")
    return 0


@command.command("merge", short_help="Add other histories, such as those of shards.")
@click.argument("files", type=PATH, nargs=-1, required=True)
@_FILE
def merge(files: Sequence[Path], database: Path) -> int:
    """Add the runs of the histories FILES to the one that --file names.

    Exit status 0, or 2 if two of them have different files of one run.
    """
    with history.History(database, create=True) as opened:
        for file in files:
            count = history.merge(opened, file)
            click.echo(f"{count} runs of {printable(str(file))} added")
    return 0


@command.command("export", short_help="Write a history as JSON or CSV.")
@_FILE
@click.option("--format", "form", type=click.Choice(["json", "csv"]), default="json", show_default=True)
@click.option("--output", type=PATH, help="File to write.  [default: stdout]")
def export(database: Path, form: str, output: Path | None) -> int:
    """Write all tables as JSON, or a line for each verdict as CSV."""
    with history.History(database) as opened:
        text = history.export_json(opened) if form == "json" else history.export_csv(opened)
    if output is None:
        click.echo(text.removesuffix("\n"))
    else:
        write_whole(output, text if text.endswith("\n") else text + "\n")
    return 0


@command.command("changes", short_help="New and mended failures of a night.")
@click.argument("night", required=False)
@_FILE
def changes(night: str | None, database: Path) -> int:
    """List what NIGHT, by default the newest, changed: each group is compared with the last night in which it ran.

    Exit status 1 if a group newly failed, else 0.
    """
    with history.History(database) as opened:
        changed = history.changes(opened, night)
    click.echo(f"Night {printable(changed.night)}: {changed.headline}")
    for title, entries in (
        ("new failure", changed.failed),
        ("mended", changed.mended),
        ("failed before", changed.still),
    ):
        for entry in entries[:_LISTED]:
            _say(f"{title}: {entry.group} ({entry.configuration}) on {_on(entry)} {entry.message}")
    return 1 if changed.failed else 0


@command.command("first-bad", short_help="The night and the commit since which a group fails.")
@click.argument("group")
@_FILE
def first_bad(group: str, database: Path) -> int:
    """State since which night GROUP fails, by which commit, and on which nodes.

    Exit status 0 if it passed in its latest night, 1 if it fails, 2 if the history does not have it.
    """
    with history.History(database) as opened:
        bad = history.first_bad(opened, group)
    if not bad:
        click.echo(f"{printable(group)} passed in its latest night")
        return 0
    for each in bad:
        _say(f"{group} ({each.bad.configuration})")
        _say(f"  first bad night  {each.bad.night}, on {_on(each.bad)}: {each.bad.verdict} {each.bad.message}")
        if each.good is None:
            _say("  last good night  none: it failed in its first night")
        else:
            _say(f"  last good night  {each.good.night}, on {', '.join(each.good.nodes)}")
            _say(f"  library          {_span(each.good.commits, each.bad.commits)}")
            _say(f"  Triton           {_span(each.good.tritons, each.bad.tritons)}")
            _say(f"  harness          {_span(each.good.harness, each.bad.harness)}")
            good = f"{each.streak} good nights before it"
            _say(f"  certainty        {good}; the chance that an older fault stayed unseen is {each.chance:.1%}")
        _say(f"  since then       bad in {each.bad_nights} of all {each.nights} nights with a verdict")
        if each.good is not None and each.good.commits and each.bad.commits and each.latest.case:
            revisions = f"--good {_commit(each.good.commits[-1])} --bad {_commit(each.bad.commits[-1])}"
            if each.good.commits != each.bad.commits:
                _say(f"  bisect           iris-harness bisect CASE.json {revisions}, for case {each.latest.case}")
    return 1


@command.command("flaky", short_help="Groups that pass and fail with one commit.")
@_FILE
@click.option("--nights", "limit", type=click.IntRange(1, 10_000), default=30, show_default=True)
def flaky(database: Path, limit: int) -> int:
    """List the groups that passed and failed with the same library in the last nights, with the measured rate."""
    with history.History(database) as opened:
        listed = history.flaky(opened, limit)
    for each in listed:
        bounds = f"95 % interval {each.low:.0%} to {each.high:.0%}"
        rate = f"{each.failed} of {each.runs} runs failed ({each.rate:.0%}, {bounds})"
        _say(f"{each.group} ({each.configuration}): {rate}, last in {each.last}")
    if not listed:
        click.echo("no group passed and failed with the same library")
    return 0


@command.command("nodes", short_help="Runs and failures of each machine.")
@_FILE
def nodes(database: Path) -> int:
    """List the machines: runs, bad verdicts, those that no other machine had in the same night, marks of GPUs."""
    with history.History(database) as opened:
        for name, each in history.nodes(opened).items():
            _say(
                f"{name}: {each['runs']} runs, {each['bad']} of {each['ran']} groups bad, {each['alone']} only here,"
                f" {each['marks']} marks of {each['gpus']} GPUs"
            )
    return 0


@command.command("metrics", short_help="Names of the metrics.")
@click.argument("pattern", default="*")
@_FILE
def metrics(pattern: str, database: Path) -> int:
    """List the metrics that match PATTERN, such as 'bench.*' or 'seconds RMA-PUT*'."""
    with history.History(database) as opened:
        for name in history.metrics(opened, pattern):
            _say(name)
    return 0


@command.command("trend", short_help="Change points of metrics over the nights.")
@click.argument("metric")
@_FILE
@click.option("--segment", type=click.IntRange(3, 1000), default=5, show_default=True, help="Least nights of a level.")
@click.option(
    "--effect", type=click.FloatRange(0, 10), help="Least change, a share.  [default: 0.05; of a group's time 0.25]"
)
@click.option("--p", "chance", type=click.FloatRange(1e-9, 0.5), default=0.001, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the points as well, as JSON.")
def trend(metric: str, database: Path, segment: int, effect: float | None, chance: float, as_json: bool) -> int:
    """State when METRIC, a name or a pattern of ``history metrics``, changed its level or drifts.

    A change needs an effect and a Mann-Whitney p; --p holds for all series of the pattern. Exit status 1 if the
    last change of a series, or its drift, is for the worse; 2 if no series has the name.
    """
    with history.History(database) as opened:
        chosen = history.series(opened, metric)
    if not chosen:
        raise UsageError(f"{database} has no metric {metric!r:.200}: iris-harness history metrics lists them")
    trends = [history.trend(each, segment=segment, effect=effect, p=chance, tests=len(chosen)) for each in chosen]
    if as_json:
        click.echo(json.dumps([_plain(series, each) for series, each in zip(chosen, trends, strict=True)], indent=1))
    status = 0
    for series, each in zip(chosen, trends, strict=True):
        if each is not None and each.worse and (each.changes or each.drift):
            status = 1
        if not as_json:
            _show(series, each, alone=len(chosen) == 1, least=2 * segment)
    return status


@command.command("nights", short_help="The nights.")
@_FILE
def nights(database: Path) -> int:
    """List the nights, the newest first, with the number of groups by verdict."""
    with history.History(database) as opened:
        for night in history.nights(opened):
            counts = ", ".join(f"{count} {name}" for name, count in sorted(night.counts.items())) or "no verdicts"
            commits = ", ".join(_commit(each) for each in night.commits) or "unknown commit"
            _say(f"{night.name}: {counts}; {night.runs} runs on {', '.join(night.nodes)}; {commits}")
    return 0


def _show(series: history.Series, trend: history.Trend | None, *, alone: bool, least: int) -> None:
    head = f"{series.metric} ({series.configuration})"
    if trend is None:
        if alone:
            _say(f"{head}: {len(series.points)} nights, and a trend needs {least}")
        return
    for change in trend.changes:
        commits = _span(change.commits_before, change.commits)
        _say(
            f"{head}: {change.before:.6g} to {change.after:.6g} {series.unit} ({change.effect:+.1%}) since"
            f" {change.night}, p {change.p:.2g}, {change.nights} nights; {commits}"
        )
    if trend.drift:
        _say(f"{head}: drifts by {trend.drift:+.1%} over {len(series.points)} nights, p {trend.drift_p:.2g}")
    if alone and not trend.changes and not trend.drift:
        _say(f"{head}: no change in {len(series.points)} nights; median {statistics.median(series.values):.6g}")


def _plain(series: history.Series, trend: history.Trend | None) -> dict[str, object]:
    return {
        "metric": series.metric,
        "configuration": series.configuration,
        "unit": series.unit,
        "points": [vars(point) for point in series.points],
        "changes": [{**vars(change), "effect": change.effect} for change in trend.changes] if trend else [],
        "drift": trend.drift if trend else 0.0,
    }


def _on(entry: Entry) -> str:
    bad = entry.bad_nodes or entry.nodes
    good = [node for node in entry.nodes if node not in bad]
    return ", ".join(bad) + (f" (not on {', '.join(good)})" if good else "")


def _span(before: Sequence[str], after: Sequence[str]) -> str:
    first, last = (", ".join(_commit(each) for each in names) or "unknown" for names in (before, after))
    return f"{first}, unchanged" if first == last else f"{first} to {last}"


def _commit(commit: str) -> str:
    name, plus, changes = commit.partition("+")
    short = name[:12] if len(name) == 40 else name
    return f"{short}{plus}{changes}"


def _say(text: str) -> None:
    click.echo(printable(text.rstrip()))
