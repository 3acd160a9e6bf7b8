"""State of a submission, from its folder and from Slurm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from command_line.fleet import attribution, slurm
from command_line.fleet.submission import LOGS, MERGED, RESULT, Submission, read_json
from harness.printable import plain

RUNNING = 3
"""Exit status of a submission that has not ended."""
_ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL")


@dataclass(frozen=True)
class Row:
    """One shard: its state (``passed``, ``failed``, ``lost``, or that of Slurm), machine, attempt, and its log."""

    index: int
    state: str
    node: str
    attempt: str
    detail: str
    log: Path


def rows(submission: Submission, tasks: list[slurm.Task]) -> list[Row]:
    """Return a row for each shard."""
    known = {task.index: task for task in tasks if task.index is not None}
    findings = {(each.get("shard"), each.get("attempt")): each for each in submission.findings()}
    table = []
    for index in range(1, submission.state.of + 1):
        log = submission.path(LOGS, f"shard-{index}.log")
        if (result := submission.result(index)) is not None:
            state = "passed" if result["exit"] == 0 else "failed"
            detail = f"{result['groups']} groups in {result['seconds']:.0f} s"
            table.append(Row(index, state, str(result["node"]), str(result["attempt"]), detail, log))
            continue
        of_shard = [each for (shard, _), each in findings.items() if shard == index]
        detail = f"{of_shard[-1]['node']} was not healthy: {of_shard[-1]['reason']}" if of_shard else ""
        task = known.get(index)
        if task is None or task.state in _ENDED:
            table.append(Row(index, "lost", task.node if task else "", str(len(of_shard)), detail, log))
            continue
        waits = f"{task.reason}, starts {task.start}" if task.waiting else ""
        table.append(
            Row(index, task.state.lower(), task.node, str(len(of_shard)), "; ".join(filter(None, (waits, detail))), log)
        )
    return table


def release(submission: Submission, tasks: list[slurm.Task]) -> Iterator[str]:
    """Have the tasks that were requeued start now, not on a machine that was not healthy; yield a line for
    each."""
    bad: dict[int, list[str]] = {}
    for finding in submission.findings():
        bad.setdefault(int(finding["shard"]), []).append(str(finding["node"]))
    for task in tasks:
        if task.waiting and task.reason in ("BeginTime", "JobHoldMaxRequeue") and task.index is not None:
            exclude = ",".join(sorted(set(bad.get(task.index, ())))) or None
            why = slurm.release(task, exclude)
            yield f"shard {task.index}: {'released' if why is None else f'not released: {why}'}"


def show(submission: Submission, tasks: list[slurm.Task], console: Console) -> int:
    """Print the state of a submission. Returns 0 if it ended and passed, 1 if it ended otherwise, else ``RUNNING``."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("shard", "state", "node", "attempt", ""):
        table.add_column(column)
    listed = rows(submission, tasks)
    shown = [row for row in listed if row.state not in ("passed", "pending")] if len(listed) > 64 else listed
    for row in shown:
        table.add_row(str(row.index), row.state, row.node, row.attempt, Text(plain(row.detail)))
    console.print(table)
    counts = Counter(row.state for row in listed)
    console.print(", ".join(f"{count} {state}" for state, count in sorted(counts.items())), highlight=False)
    for row in listed:
        if row.state in ("failed", "lost"):
            console.print(f"log of shard {row.index}: {plain(str(row.log))}", markup=False, soft_wrap=True)
    for finding in submission.findings():
        remedy = "drained" if finding["drained"] else f"to drain it: {finding['command']}"
        console.print(f"{finding['node']}: {plain(str(finding['reason']))}; {remedy}", markup=False, soft_wrap=True)
    for line in attribution.in_words(attribution.attributed(submission)):
        console.print(plain(line), markup=False, soft_wrap=True)
    merged = read_json(submission.path(MERGED, RESULT))
    if merged is None:
        jobs = {task.job: task for task in tasks}
        merge = jobs.get(str(submission.state.jobs.get("merge")))
        if merge is not None and merge.state not in _ENDED:
            return RUNNING
        console.print(f"not merged: see {plain(str(submission.path(LOGS, 'merge.log')))}", markup=False, soft_wrap=True)
        return 1
    words = "passed" if merged["exit"] == 0 else f"ended with status {merged['exit']}"
    console.print(f"merged: {words}, {plain(str(submission.path(MERGED)))}", markup=False, soft_wrap=True)
    return 0 if merged["exit"] == 0 else 1
