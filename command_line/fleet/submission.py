"""The folder of a submission, which all machines of a fleet share, and its jobs.

plan.toml  shards.jsonl  state.json      the plan, its division, and the ids of the jobs; a copy of the waivers
task.sh  merge.sh  again.sh  attribute.sh    what the jobs run
logs/                                    their output, one file for each task
work/3.0/                                shard 3, attempt 0, while it runs; kept if it does not count
shards/3/                                shard 3: renamed from work/ by the first attempt that ended
health/                                  what was wrong with a machine, one file for each finding
merged/                                  evidence.jsonl and the reports of the whole run
attribution/                             failed groups, again on another machine and on the first
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from command_line import preflight
from command_line.fleet import slurm
from command_line.fleet.plan import Plan, read_plan
from harness.errors import UsageError
from harness.evidence import shards, waivers
from harness.files import write_whole

PLAN, STATE = "plan.toml", "state.json"
TASK, MERGE, AGAIN, ATTRIBUTE = "task.sh", "merge.sh", "again.sh", "attribute.sh"
LOGS, WORK, SHARDS, HEALTH, MERGED, ATTRIBUTION = "logs", "work", "shards", "health", "merged", "attribution"
RESULT = "result.json"
SIGNAL_SECONDS = 60
"""Seconds between SIGTERM and the end of a task whose time is up or that is preempted."""


@dataclass(frozen=True)
class State:
    """State of a submission: the number of shards, the digest of the plan, and the ids of its jobs by role."""

    of: int
    plan: str
    nodes: int
    jobs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Submission:
    """A folder of a submission that exists."""

    folder: Path
    plan: Plan
    state: State

    def path(self, *parts: str) -> Path:
        """Return a path below the folder."""
        return self.folder.joinpath(*parts)

    def result(self, index: int) -> dict[str, Any] | None:
        """Return what the task of a shard recorded when it ended; None before."""
        return read_json(self.path(SHARDS, str(index), RESULT))

    def finished(self) -> list[int]:
        """Return the numbers of the shards that ended with evidence."""
        return [index for index in range(1, self.state.of + 1) if self.path(SHARDS, str(index)).is_dir()]

    def findings(self) -> list[dict[str, Any]]:
        """Return what was wrong with machines, the oldest first."""
        read = (read_json(path) for path in sorted(self.path(HEALTH).glob("*.json")))
        return sorted((each for each in read if each), key=lambda each: float(each.get("time", 0)))

    def with_jobs(self, **jobs: str) -> Submission:
        """Return the submission with further jobs, after writing its state."""
        state = State(self.state.of, self.state.plan, self.state.nodes, {**self.state.jobs, **jobs})
        write_whole(self.path(STATE), json.dumps(asdict(state), indent=1) + "\n")
        return Submission(self.folder, self.plan, state)


def create(plan_file: Path, nodes: int, folder: Path) -> Submission:
    """Write the folder of a submission: plan and division. UsageError if it exists, or the plan is wrong."""
    plan = read_plan(plan_file)
    listed = preflight.read_waivers(Path(plan.run.waivers)) if plan.run.waivers else None
    count = plan.fleet.shards or nodes
    division, text = plan.division(count)
    folder = folder.absolute()
    if not str(folder).isprintable() or "%" in str(folder):
        raise UsageError(f"--output: expected a path without control characters and '%', got {str(folder)!r:.80}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
    except FileExistsError:
        raise UsageError(f"{folder} exists already, and submissions do not share a folder: name another one") from None
    except OSError as error:
        raise UsageError(f"cannot write {folder} ({error.strerror}): name another --output folder") from error
    for name in (LOGS, WORK, SHARDS, HEALTH):
        (folder / name).mkdir()
    (folder / PLAN).write_bytes(plan_file.read_bytes())
    write_whole(folder / shards.FILE, text)
    if listed is not None:
        (folder / waivers.FILE).write_bytes(listed)
    return Submission(folder, _with_copies(plan, folder), State(count, division.digest, nodes))


def _with_copies(plan: Plan, folder: Path) -> Plan:
    """Return the plan with the folder's copy of the waivers: paths in a plan are relative to where it was submitted."""
    return replace(plan, run=replace(plan.run, waivers=str(folder / waivers.FILE))) if plan.run.waivers else plan


def start(submission: Submission) -> Submission:
    """Submit the array of shards, and the job that merges them after all have ended, however they did."""
    count, folder = submission.state.of, submission.folder
    slurm_plan = submission.plan.slurm
    common = ["--requeue", "--open-mode=append", f"--signal=B:TERM@{SIGNAL_SECONDS}"]
    array = slurm.submit(
        str(folder / TASK), *slurm_plan.options(), *common, f"--array=1-{count}%{submission.state.nodes}",
        "--nodes=1", "--job-name=iris-shard", f"--output={folder / LOGS / 'shard-%a.log'}",
    )  # fmt: skip
    submission = submission.with_jobs(array=array)
    try:
        merge = slurm.submit(
            str(folder / MERGE), *slurm_plan.options(merge=True), *common, f"--dependency=afterany:{array}",
            "--nodes=1", "--job-name=iris-merge", f"--output={folder / LOGS / 'merge.log'}",
        )  # fmt: skip
    except UsageError:
        slurm.cancel(array)
        raise
    return submission.with_jobs(merge=merge)


def load(folder: Path) -> Submission:
    """Return the submission in a folder. UsageError if it is not one."""
    folder = folder.absolute()
    plain = read_json(folder / STATE)
    if plain is None or set(plain) != {"of", "plan", "nodes", "jobs"} or not isinstance(plain["jobs"], dict):
        raise UsageError(f"{folder} is not the folder of a submission: name one that iris-harness submit wrote")
    return Submission(folder, _with_copies(read_plan(folder / PLAN), folder), State(**plain))


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file that a job wrote; None if there is none."""
    try:
        plain = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return plain if isinstance(plain, dict) else None


def write_json(path: Path, plain: Mapping[str, Any]) -> None:
    """Write a JSON object in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(plain, indent=1) + "\n")


def rename_once(source: Path, target: Path) -> bool:
    """Rename a folder to one that must not exist; return False if another attempt was first."""
    try:
        os.rename(source, target)
    except OSError:
        if not target.is_dir():
            raise
        return False
    return True


def own_command(*words: str) -> Sequence[str]:
    """Return the command line of iris-harness with these words."""
    return [sys.executable, "-m", "command_line", *words]
