"""Jobs of a submission: ``python -m command_line.fleet.job ROLE FOLDER [NAME]``.

``shard``: one shard, with the health of the machine before and after it. ``merge``: all shards that ended, and the jobs
that run failed groups again. ``again``: these groups, on one machine. ``attribute``: the report about them.
"""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from command_line.fleet import attribution, health, slurm
from command_line.fleet.submission import (
    HEALTH,
    MERGED,
    RESULT,
    SHARDS,
    WORK,
    Submission,
    load,
    own_command,
    rename_once,
    write_json,
)
from command_line.output import say
from command_line.publishing import PARTIAL
from harness import runs
from harness.errors import UsageError
from harness.evidence import Evidence, read, shards

STOP_SECONDS = 45.0
"""Seconds that certify has to end its ranks, after SIGTERM; Slurm kills the task some seconds later."""


def main(arguments: list[str]) -> int:
    """Run the job that ``arguments`` name, and return its exit status."""
    role, folder, *names = arguments
    submission = load(Path(folder))
    if role == "shard":
        return run_shard(submission)
    if role == "merge":
        return merge(submission)
    if role == "again":
        return attribution.run_again(submission, *names)
    if role == "attribute":
        return attribution.report(submission)
    raise UsageError(f"expected shard, merge, again or attribute, got {role!r:.60}")


def run_shard(submission: Submission) -> int:
    """Run the shard of this task, and rename its folder when it has ended.

    Returns 0 if it passed, 1 if not, ``slurm.INFRASTRUCTURE`` if this machine is not healthy, and the status of certify
    in other cases.
    """
    index, attempt = int(os.environ["SLURM_ARRAY_TASK_ID"]), int(os.environ.get("SLURM_RESTART_COUNT") or 0)
    node = os.environ.get("SLURMD_NODENAME") or platform.node()
    print(f"shard {index} of {submission.state.of}, attempt {attempt}, on {node}", flush=True)
    if (earlier := submission.result(index)) is not None:
        print(f"another attempt has run this shard, on {earlier.get('node')}", flush=True)
        return int(earlier.get("exit", 1))
    fleet, device = submission.plan.fleet, submission.plan.run.device
    if (reason := health.examine(device, fleet.health, fleet.doctor)) is not None:
        return _unhealthy(submission, index, attempt, node, "before", reason)
    work = submission.path(WORK, f"{index}.{attempt}")
    started = time.time()
    status = certify(submission, index, node, work)
    if status >= 128:
        print(f"stopped by signal {status - 128}: the shard does not count", flush=True)
        return status
    evidence = _evidence_in(work)
    reason = health.examine(device, fleet.health, False)
    if reason is None and evidence is not None:
        reason = health.of_evidence(evidence)
    if reason is not None:
        return _unhealthy(submission, index, attempt, node, "after", reason)
    if evidence is None or not evidence.ends:
        print(f"certify ended with status {status} and without the end of its evidence", flush=True)
        return status or 1
    code = 0 if status in (0, PARTIAL) else status
    result = {
        "exit": code, "node": node, "attempt": attempt, "seconds": round(time.time() - started, 1),
        "groups": len(evidence.groups), "plan": submission.state.plan,
    }  # fmt: skip
    write_json(work / RESULT, result)
    if not rename_once(work, submission.path(SHARDS, str(index))):
        print("another attempt of this shard ended before: this one does not count", flush=True)
    return code


def certify(submission: Submission, index: int, node: str, work: Path) -> int:
    """Run certify for a shard; return its exit status. SIGTERM stops it in bounded time."""
    plan = submission.plan.run
    options = ["--shard", f"{index}/{submission.state.of}", "--shard-plan", str(submission.path(shards.FILE))]
    command = own_command("certify", *plan.options(), *options, "--node", node, "--output", str(work))
    stopped: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        stopped.append(number)
        child.send_signal(signal.SIGTERM)

    previous = signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    try:
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True) as child:
            signal.signal(signal.SIGTERM, stop)
            if stopped:
                child.send_signal(signal.SIGTERM)
            since: float | None = None
            while child.poll() is None:
                time.sleep(0.1)
                since = since or (time.monotonic() if stopped else None)
                if since is not None and time.monotonic() - since > STOP_SECONDS:
                    child.kill()
    finally:
        signal.signal(signal.SIGTERM, previous)
    if stopped:
        return 128 + stopped[0]
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def merge(submission: Submission) -> int:
    """Merge the shards that ended; have failed groups run again. Returns the status of merge."""
    finished = submission.finished()
    if not finished:
        print("no shard ended: there is nothing to merge", flush=True)
        return 1
    folders = [str(submission.path(SHARDS, str(index))) for index in finished]
    command = own_command("merge", str(submission.path(MERGED)), *folders, "--plan", str(submission.path(shards.FILE)))
    done = subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
    if done.returncode == 2:
        return 2
    write_json(submission.path(MERGED, RESULT), {"exit": done.returncode, "shards": finished})
    if submission.plan.fleet.attribute:
        attribution.start(submission, read(submission.path(MERGED, runs.EVIDENCE)))
    return done.returncode


def _unhealthy(submission: Submission, index: int, attempt: int, node: str, when: str, reason: str) -> int:
    """Record that this machine is not healthy, drain it where that is allowed, and return the task's exit status."""
    command = slurm.printable(slurm.drain_command(node, reason))
    print(f"{node} is not healthy {when} the shard: {reason}", flush=True)
    refused = "the plan does not have drain = true"
    if submission.plan.fleet.drain:
        refused = slurm.drain(node, reason) or ""
    print(f"not drained ({refused}). To drain it: {command}" if refused else f"drained: {command}", flush=True)
    finding = {
        "node": node, "shard": index, "attempt": attempt, "when": when, "reason": reason, "time": time.time(),
        "drained": not refused, "command": command,
    }  # fmt: skip
    write_json(submission.path(HEALTH, f"{index}.{attempt}.json"), finding)
    if attempt + 1 >= submission.plan.fleet.attempts:
        print(f"shard {index} does not run: {attempt + 1} attempts were on machines that are not healthy", flush=True)
        return 1
    if not slurm.requeues_by_status():
        job = f"{os.environ.get('SLURM_ARRAY_JOB_ID')}_{index}"
        if why := slurm.requeue(job):
            print(f"not requeued: {why}", flush=True)
    return slurm.INFRASTRUCTURE


def _evidence_in(work: Path) -> Evidence | None:
    try:
        return read(work / runs.EVIDENCE)
    except UsageError:
        return None


def _guarded(arguments: list[str]) -> int:
    try:
        return main(arguments)
    except UsageError as error:
        say(str(error))
        return 2


if __name__ == "__main__":
    sys.exit(_guarded(sys.argv[1:]))
