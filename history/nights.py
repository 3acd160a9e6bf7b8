"""Verdicts over the nights: changes of a night, the first bad night of a group, flaky groups, nodes.

A group is judged for each *configuration*: device, architecture, mode, level and implementation. In a night its verdict
is the worst of all its runs, where a run that was cut short counts only if no other run of the night has a verdict.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.errors import UsageError
from harness.evidence import Verdict, merge
from history.database import History

BAD = (Verdict.FAIL, Verdict.FLAKY, Verdict.UNKNOWN)
FLAKY_NIGHTS = 30
"""Nights, the newest ones, over which a rate is computed."""

LOOKBACK = 60
"""Nights before a night in which the last verdict of a group is looked for."""

CONFIGURATION = "device || ' ' || arch || ' ' || mode || ' ' || level || ' ' || implementation"


@dataclass(frozen=True)
class Night:
    """A night: its runs, the number of groups by verdict, the nodes, and the commits of the libraries."""

    name: str
    started: str
    runs: int
    counts: Mapping[str, int]
    nodes: tuple[str, ...]
    commits: tuple[str, ...]
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """A group's verdict in one night."""

    group: str
    configuration: str
    night: str
    verdict: Verdict
    nodes: tuple[str, ...]
    commits: tuple[str, ...]
    case: str | None = None
    message: str = ""
    legs: tuple[str, ...] = ()
    tritons: tuple[str, ...] = ()
    harness: tuple[str, ...] = ()
    bad_nodes: tuple[str, ...] = ()

    @property
    def bad(self) -> bool:
        """True if the group failed, was flaky, or could not be checked."""
        return self.verdict in BAD


@dataclass(frozen=True)
class Changes:
    """Changes of a night: each group is compared with the last night before in which it had a verdict.

    ``not_run`` are the groups that were planned and have no verdict in this night.
    """

    night: str
    failed: tuple[Entry, ...]
    still: tuple[Entry, ...]
    mended: tuple[Entry, ...]
    not_run: tuple[Entry, ...]
    passed: int

    @property
    def headline(self) -> str:
        """The counts in one line."""
        return (
            f"{len(self.failed)} new failures, {len(self.still)} that failed before, {len(self.mended)} mended,"
            f" {self.passed} passed, {len(self.not_run)} not run"
        )


@dataclass(frozen=True)
class FirstBad:
    """The night in which a group began to fail; ``good`` is the last night before in which it passed, if any.

    ``streak`` is the number of nights with a pass since the failure before, and ``chance`` the probability that a fault
    of the observed rate would have stayed unseen in all of them: above some percent, the fault may be older.
    """

    bad: Entry
    good: Entry | None
    latest: Entry
    bad_nights: int
    nights: int
    streak: int
    chance: float


@dataclass(frozen=True)
class Flaky:
    """A group that passes and fails with the same library: ``failed`` of ``runs``, and the rate's 95 % interval."""

    group: str
    configuration: str
    failed: int
    runs: int
    low: float
    high: float
    last: str

    @property
    def rate(self) -> float:
        """The share of runs that failed."""
        return self.failed / self.runs


def names(history: History, limit: int | None = None) -> list[str]:
    """Return the names of the nights, the newest first."""
    rows = history.rows("SELECT night, MIN(started) AS began FROM run GROUP BY night ORDER BY began DESC, night DESC")
    return [row["night"] for row in rows[:limit]]


def nights(history: History, limit: int | None = None) -> list[Night]:
    """Return the nights, the newest first."""
    listed = names(history, limit)
    return [
        _night(history, name, history.rows("SELECT * FROM run WHERE night = ? ORDER BY started", name))
        for name in listed
    ]


def _night(history: History, name: str, runs: list[Any]) -> Night:
    counts: dict[str, int] = defaultdict(int)
    for entry in entries(history, [name]):
        counts[entry.verdict.value] += 1
    marks = history.rows("SELECT DISTINCT text FROM mark JOIN run ON run.id = mark.run WHERE night = ?", name)
    return Night(
        name,
        runs[0]["started"],
        len(runs),
        dict(counts),
        _distinct(row["node"] for row in runs),
        _distinct(row["library_commit"] for row in runs),
        tuple(sorted(row["text"] for row in marks)),
    )


def entries(history: History, chosen: Iterable[str] = (), group: str | None = None) -> list[Entry]:
    """Return the verdict of each group and configuration in each of these nights, oldest first; default: all nights."""
    listed = list(chosen)
    conditions, values = ["1"], []
    if listed:
        conditions.append(f"night IN ({', '.join('?' * len(listed))})")
        values += listed
    if group is not None:
        conditions.append("name = ?")
        values.append(group)
    rows = history.rows(
        f"SELECT verdict.*, {CONFIGURATION} AS configuration, night, node, leg, library_commit, triton, harness,"
        " MIN(started) OVER (PARTITION BY night) AS began"
        f" FROM verdict JOIN run ON run.id = verdict.run WHERE {' AND '.join(conditions)}"
        " ORDER BY began, night, started",
        *values,
    )
    gathered: dict[tuple[str, str, str], list[Any]] = defaultdict(list)
    for row in rows:
        gathered[row["night"], row["configuration"], row["name"]].append(row)
    return [_entry(key, each) for key, each in gathered.items()]


def _entry(key: tuple[str, str, str], rows: list[Any]) -> Entry:
    night, configuration, group = key
    ran = [row for row in rows if row["verdict"] != Verdict.NOT_RUN.value] or rows
    verdict = merge(Verdict(row["verdict"]) for row in ran)
    worst = [row for row in ran if row["verdict"] == verdict.value]
    return Entry(
        group,
        configuration,
        night,
        verdict,
        _distinct(row["node"] for row in ran),
        _distinct(row["library_commit"] for row in ran),
        next((row["failing_case"] for row in worst if row["failing_case"]), None),
        next((row["message"] for row in worst if row["message"]), ""),
        _distinct(row["leg"] for row in ran),
        _distinct(row["triton"] for row in ran),
        _distinct(row["harness"] for row in ran),
        _distinct(row["node"] for row in ran if Verdict(row["verdict"]) in BAD),
    )


def changes(history: History, night: str | None = None) -> Changes:
    """Return what changed in a night, by default in the newest. Raises UsageError for an unknown one."""
    known = names(history)[::-1]
    if not known:
        raise UsageError(f"{history.path} has no run: add evidence with iris-harness history add")
    night = night or known[-1]
    if night not in known:
        raise UsageError(f"{history.path} has no night {night!r:.100}; the newest is {known[-1]}")
    place = known.index(night)
    before: dict[tuple[str, str], Entry] = {}
    for entry in entries(history, known[max(0, place - LOOKBACK) : place]) if place else []:
        if entry.verdict is not Verdict.NOT_RUN:
            before[entry.group, entry.configuration] = entry
    lists: dict[str, list[Entry]] = {"failed": [], "still": [], "mended": [], "not_run": []}
    passed = 0
    for entry in entries(history, [night]):
        earlier = before.get((entry.group, entry.configuration))
        if entry.verdict is Verdict.NOT_RUN:
            lists["not_run"].append(entry)
        elif entry.bad:
            lists["still" if earlier is not None and earlier.bad else "failed"].append(entry)
        else:
            passed += entry.verdict is Verdict.PASS
            if earlier is not None and earlier.bad and entry.verdict is Verdict.PASS:
                lists["mended"].append(entry)
    return Changes(night, passed=passed, **{name: tuple(each) for name, each in lists.items()})


def first_bad(history: History, group: str) -> list[FirstBad]:
    """Return, for each configuration in which the group failed in its latest night, when it began to fail.

    Raises UsageError if the history does not have the group.
    """
    of: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries(history, group=group):
        if entry.verdict is not Verdict.NOT_RUN:
            of[entry.configuration].append(entry)
    if not of:
        raise UsageError(
            f"{history.path} has no verdict of a group {group!r:.200}: iris-harness history flaky lists some"
        )
    return [_first_bad(each) for each in of.values() if each[-1].bad]


def _first_bad(ran: list[Entry]) -> FirstBad:
    place = len(ran) - 1
    while place and ran[place - 1].bad:
        place -= 1
    earlier = ran[:place]
    streak = 0
    while streak < len(earlier) and not earlier[-1 - streak].bad:
        streak += 1
    since = ran[place:]
    # Laplace's estimate: one bad night does not show that every night would be bad.
    rate = (sum(each.bad for each in since) + 1) / (len(since) + 2)
    return FirstBad(
        ran[place], earlier[-1] if earlier else None, ran[-1], sum(each.bad for each in ran), len(ran), streak,
        (1 - rate) ** streak,
    )  # fmt: skip


def flaky(history: History, limit: int = FLAKY_NIGHTS) -> list[Flaky]:
    """Return the groups that passed and failed with the same commit, the most frequent failures first.

    Counted are the runs of the last ``limit`` nights with a commit for which there was a pass and a failure, and the
    repeats of failing cases, of which at least one passed.
    """
    listed = names(history, limit)
    if not listed:
        return []
    rows = history.rows(
        f"SELECT verdict.*, {CONFIGURATION} AS configuration, night, library_commit, triton FROM verdict"
        f" JOIN run ON run.id = verdict.run WHERE night IN ({', '.join('?' * len(listed))}) ORDER BY started",
        *listed,
    )
    runs: dict[tuple[str, str], dict[tuple[str, str], list[Any]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row["verdict"] in (Verdict.PASS.value, Verdict.FAIL.value, Verdict.FLAKY.value):
            runs[row["name"], row["configuration"]][str(row["library_commit"]), str(row["triton"])].append(row)
    rates = []
    for (group, configuration), commits in runs.items():
        failed = total = 0
        last = ""
        for same in commits.values():
            bad = [row for row in same if row["verdict"] != Verdict.PASS.value]
            if not bad or (len(bad) == len(same) and all(row["verdict"] == Verdict.FAIL.value for row in bad)):
                continue
            failed += len(bad)
            total += len(same)
            for row in bad:
                if row["repeats"] and row["failed"] < row["repeats"]:
                    failed, total = failed + row["failed"] - 1, total + row["repeats"] - 1
            last = max(last, bad[-1]["night"])
        if failed:
            low, high = interval(failed, total)
            rates.append(Flaky(group, configuration, failed, total, low, high, last))
    return sorted(rates, key=lambda each: (-each.rate, each.group))


def nodes(history: History, limit: int = FLAKY_NIGHTS) -> dict[str, dict[str, Any]]:
    """Return for each node its runs, verdicts, failures that only it had, and marks, over the last nights.

    A failure is *only* the node's if another node ran the group in the same night and configuration and it passed.
    """
    listed = names(history, limit)
    if not listed:
        return {}
    marks = ", ".join("?" * len(listed))
    summary: dict[str, dict[str, Any]] = {}
    for row in history.rows(
        f"SELECT node, COUNT(*) AS runs, MAX(night) AS last, GROUP_CONCAT(gpus, ' ') AS gpus FROM run"
        f" WHERE night IN ({marks}) GROUP BY node ORDER BY node",
        *listed,
    ):
        gpus = len(set(str(row["gpus"]).split()))
        summary[row["node"]] = {
            "runs": row["runs"], "last": row["last"], "gpus": gpus, "bad": 0, "ran": 0, "alone": 0, "marks": 0,
        }  # fmt: skip
    verdicts: dict[tuple[str, str, str], dict[str, list[Verdict]]] = defaultdict(lambda: defaultdict(list))
    for row in history.rows(
        f"SELECT name, verdict, node, night, {CONFIGURATION} AS configuration FROM verdict JOIN run ON"
        f" run.id = verdict.run WHERE night IN ({marks}) AND verdict != 'not_run'",
        *listed,
    ):
        verdicts[row["night"], row["configuration"], row["name"]][row["node"]].append(Verdict(row["verdict"]))
    for by_node in verdicts.values():
        bad = {node for node, each in by_node.items() if merge(each) in BAD}
        for node in by_node:
            summary[node]["ran"] += 1
            summary[node]["bad"] += node in bad
            summary[node]["alone"] += bad == {node} and len(by_node) > 1
    for row in history.rows(
        f"SELECT node, COUNT(*) AS marks FROM mark JOIN run ON run.id = mark.run WHERE night IN ({marks})"
        " GROUP BY node",
        *listed,
    ):
        summary[row["node"]]["marks"] = row["marks"]
    return summary


def last_ran(history: History, leg: str) -> dict[str, float]:
    """Return the groups of a leg that had a verdict, each with the place of the last such night, from 0."""
    places = {night: float(place) for place, night in enumerate(names(history)[::-1])}
    rows = history.rows(
        "SELECT name, night FROM verdict JOIN run ON run.id = verdict.run WHERE leg = ? AND verdict != 'not_run'", leg
    )
    ran: dict[str, float] = {}
    for row in rows:
        ran[row["name"]] = max(places[row["night"]], ran.get(row["name"], 0.0))
    return ran


def interval(failed: int, runs: int, z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a rate."""
    rate, share = failed / runs, z * z / runs
    middle = (rate + share / 2) / (1 + share)
    half = z / (1 + share) * math.sqrt(rate * (1 - rate) / runs + share / (4 * runs))
    return max(0.0, middle - half), min(1.0, middle + half)


def _distinct(values: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(sorted({value for value in values if value}))
