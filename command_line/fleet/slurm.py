"""Slurm by its command line: sbatch, squeue, scontrol, scancel. Every call is bounded in time."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import UsageError

TIMEOUT = 60.0
INFRASTRUCTURE = 75
"""Exit status of a task whose machine is not healthy: Slurm's ``RequeueExit`` has it, or the task requeues itself."""

_FIELDS = "%i|%T|%N|%r|%S"


@dataclass(frozen=True)
class Task:
    """A job, or a task of an array, as squeue shows it: ``JOB`` or ``JOB_TASK``, state, node, reason, start."""

    job: str
    state: str
    node: str
    reason: str
    start: str

    @property
    def index(self) -> int | None:
        """Its number in the array; None if it is not a task of one."""
        _, _, number = self.job.partition("_")
        return int(number) if number.isdigit() else None

    @property
    def waiting(self) -> bool:
        """True if it has not started, or was requeued."""
        return self.state == "PENDING"


def check_installed() -> None:
    """Raise UsageError if this machine has no Slurm."""
    if missing := [name for name in ("sbatch", "squeue", "scontrol", "scancel") if shutil.which(name) is None]:
        raise UsageError(
            f"{missing[0]} is not installed: submit runs on a machine with Slurm's commands; without Slurm use certify"
            " --shard I/N on each machine, and merge"
        )


def submit(script: str, *options: str, arguments: Sequence[str] = ()) -> str:
    """Submit a job that runs ``script`` with ``arguments``, and return its id."""
    answer = _call("sbatch", "--parsable", *options, script, *arguments).strip()
    job = answer.partition(";")[0]
    if not job.isdigit():
        raise UsageError(f"sbatch returned {answer!r:.80} instead of the id of a job")
    return job


def tasks(*jobs: str) -> list[Task]:
    """Return the jobs and tasks that Slurm still knows; none for jobs that ended long ago."""
    known = []
    for job in jobs:
        done = _run("squeue", "-h", "-r", "-t", "all", "-j", job, "-o", _FIELDS)
        if done.returncode != 0 and "Invalid job id" not in done.stderr:
            raise UsageError(f"squeue failed: {_reason(done)}")
        for line in done.stdout.splitlines():
            parts = line.split("|")
            if len(parts) == 5:
                known.append(Task(*parts))
    return known


def cancel(*jobs: str) -> None:
    """Cancel jobs; those that have ended are ignored. UsageError after all of them, if one could not be cancelled."""
    failures = []
    for job in jobs:
        done = _run("scancel", job)
        if done.returncode != 0 and "Invalid job id" not in done.stderr:
            failures.append(f"job {job}: {_reason(done)}")
    if failures:
        raise UsageError(f"scancel failed: {'; '.join(failures)}")


def release(task: Task, exclude: str | None) -> str | None:
    """Have a requeued task start without its wait, on another node than ``exclude``. Return None, or why not."""
    changes = ["StartTime=now", *([f"ExcNodeList={exclude}"] if exclude else [])]
    done = _run("scontrol", "update", f"JobId={task.job}", *changes)
    return None if done.returncode == 0 else _reason(done)


def drain_command(node: str, reason: str) -> list[str]:
    """Return the command that drains a node."""
    return ["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason=iris: {_plain(reason)}"]


def drain(node: str, reason: str) -> str | None:
    """Drain a node. Return None, or why it is not allowed."""
    done = _run(*drain_command(node, reason))
    return None if done.returncode == 0 else _reason(done)


def requeues_by_status() -> bool:
    """Return whether Slurm requeues a job that ends with the status ``INFRASTRUCTURE``."""
    done = _run("scontrol", "show", "config")
    match = re.search(r"^RequeueExit\s*=\s*(\S+)", done.stdout, re.MULTILINE)
    return match is not None and str(INFRASTRUCTURE) in match[1].split(",")


def requeue(job: str) -> str | None:
    """Requeue a running job. Return None, or why it is not possible."""
    done = _run("scontrol", "requeue", job)
    return None if done.returncode == 0 else _reason(done)


def printable(command: Sequence[str]) -> str:
    """Return a command as a shell takes it."""
    return shlex.join(command)


def _call(*command: str) -> str:
    done = _run(*command)
    if done.returncode != 0:
        raise UsageError(f"{command[0]} failed: {_reason(done)}")
    return done.stdout


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False, errors="replace")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"no answer within {TIMEOUT:.0f} s")
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, "", f"{error.strerror}")


def _reason(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return _plain(lines[-1]) if lines else f"exit status {done.returncode}"


def _plain(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:200]
