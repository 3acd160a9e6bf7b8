"""Fleets on a real Slurm of four nodes on this machine: what a night can bring, and no case lost or counted twice.

Without Slurm's programs the tests are skipped with the reason; CI installs them, and there a missing one is a failure
(``IRIS_HARNESS_SLURM=required``).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from command_line.fleet import progress, submission
from harness.evidence import Verdict, read
from tests.fleet import cluster, fake_suite
from tests.fleet.cluster import wait
from tests.fleet.fake_suite import GROUPS, MANDATORY

pytestmark = pytest.mark.slow

PLAN = """
[run]
level = "ci"
ranks = 2
judge = "together"
groups = 1
[fleet]
shards = 4
doctor = false
drain = true
health = ["{health}"]
"""

HEALTH = """#!/bin/sh
if [ -e "$CONTROL/sick-$SLURMD_NODENAME" ]; then echo "ecc: 3 pages retired"; exit 1; fi
"""


class Fleet:
    """A running cluster, the fake suite, and the command line in their environment."""

    def __init__(self, slurm: cluster.Cluster, folder: Path) -> None:
        self.slurm, self.folder, self.control = slurm, folder, folder / "control"
        self.environment = fake_suite.environment(
            fake_suite.make_suite(folder / "suite"), self.control, slurm.environment
        )
        self.control.mkdir()
        (folder / "health").write_text(HEALTH)
        (folder / "health").chmod(0o755)
        (folder / "plan.toml").write_text(PLAN.format(health=folder / "health"))
        self.out = folder / "out"

    def command(self, *words: str, status: int | None = 0) -> str:
        """Run iris-harness; check its exit status, and return what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "command_line", *words],
            env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert status is None or done.returncode == status, done.stdout + done.stderr + self.logs()
        return done.stdout + done.stderr

    def submit(self, *more: str) -> str:
        """Submit the plan on four nodes, and return the id of the array."""
        answer = self.command("submit", "plan.toml", "--nodes", "4", "--output", str(self.out), *more)
        match = re.search(r"jobs (\d+) and", answer)
        assert match is not None, answer
        return match[1]

    def set(self, *names: str) -> None:
        """Create files that change what groups and machines do."""
        for name in names:
            (self.control / name).touch()

    def unset(self, *names: str) -> None:
        """Remove them."""
        for name in names:
            (self.control / name).unlink()

    def tasks(self, job: str) -> dict[int | None, tuple[str, str]]:
        """Return state and node of each task that Slurm knows."""
        listed = self.slurm.run("squeue", "-h", "-r", "-t", "all", "-j", job, "-o", "%i|%T|%N").stdout.split()
        rows = [line.split("|") for line in listed]
        return {int(name.partition("_")[2] or 0): (state, node) for name, state, node in rows}

    def node_of(self, job: str) -> dict[str, int]:
        """Return the running shard of each node."""
        return {node: index or 0 for index, (state, node) in self.tasks(job).items() if state == "RUNNING"}

    def all_run(self, job: str) -> dict[str, int]:
        """Wait until four shards run, one on each node, and each has begun a group."""
        began = [self.control / f"waits-{node}" for node in cluster.NODES]
        wait(lambda: all(path.exists() for path in began), "four shards with a group", self.logs)
        wait(lambda: len(self.node_of(job)) == 4, "four running shards", lambda: f"{self.tasks(job)} {self.logs()}")
        return self.node_of(job)

    def finish(self, seconds: float = 300.0) -> None:
        """Wait until all jobs of the submission have ended, and have requeued shards start at once."""

        def ended() -> bool:
            run = submission.load(self.out)
            tasks = [self.tasks(job) for job in run.state.jobs.values()]
            if not all(tasks):
                return False  # a busy controller did not answer
            states = {state for each in tasks for state, _ in each.values()}
            if not states & {"PENDING", "RUNNING", "COMPLETING", "REQUEUED", "CONFIGURING"}:
                return True
            if any(state == "PENDING" for state, _ in self.tasks(run.state.jobs["array"]).values()):
                self.command("status", str(self.out), "--release", status=None)
            return False

        wait(ended, "the end of the jobs", self.logs, seconds)

    def logs(self) -> str:
        """Return the ends of all logs."""
        return cluster.lines_of(sorted(self.out.glob("logs/*"))) + cluster.lines_of(
            [self.slurm.folder / "slurmctld.log"]
        )

    def check_merged(self) -> dict[str, Verdict]:
        """Check that the merged evidence has every group once, and no case twice; return the verdicts."""
        evidence = read(self.out / "merged" / "evidence.jsonl")
        assert evidence.problems == []
        assert set(evidence.plan) == set(evidence.groups) == GROUPS, f"groups lost {self.logs()}"
        assert all(len(records) == 1 for records in evidence.groups.values())
        assert Counter(case.group for case in evidence.cases) == Counter(GROUPS), "cases lost or run twice"
        assert evidence.whole and set(evidence.nodes) == GROUPS
        return {name: record.verdict for name, [record] in evidence.groups.items()}


@pytest.fixture
def fleet(slurm, tmp_path):
    return Fleet(slurm, tmp_path)


@pytest.mark.nightly
def test_a_failure_of_one_node_a_sick_node_and_a_restart_of_the_controller(fleet):
    fleet.set(*(f"hold-{node}" for node in cluster.NODES))
    job = fleet.submit()
    shards = fleet.all_run(job)
    by_shard = {index: node for node, index in shards.items()}
    sick, bad = by_shard[1], by_shard[2]
    own = [group for group in _groups_of(fleet, 2) if group not in MANDATORY]
    name = own[0].rpartition("=")[2].rstrip("]")
    fleet.set(f"fail-{name}-{bad}", f"sick-{sick}")
    assert "running" in fleet.command("status", str(fleet.out), status=progress.RUNNING)

    fleet.slurm.stop_controller()
    fleet.slurm.start_controller()
    fleet.unset(*(f"hold-{node}" for node in cluster.NODES))
    wait((fleet.out / "health" / "1.0.json").exists, "the finding about the sick node", fleet.logs)
    wait(lambda: fleet.slurm.states().get(sick) in ("drain", "drng"), "the drained node", fleet.slurm.node_states)
    finding = json.loads((fleet.out / "health" / "1.0.json").read_text())
    assert (finding["node"], finding["drained"], finding["when"]) == (sick, True, "after")
    assert "ecc: 3 pages retired" in finding["reason"]
    fleet.finish()

    verdicts = fleet.check_merged()
    assert {group for group, verdict in verdicts.items() if verdict is not Verdict.PASS} == {own[0]}
    evidence = read(fleet.out / "merged" / "evidence.jsonl")
    assert evidence.nodes[own[0]] == bad
    run = submission.load(fleet.out)
    assert run.result(1)["attempt"] == 1 and run.result(1)["node"] != sick, "requeued to another node"
    answer = fleet.command("status", str(fleet.out), status=1)
    assert "1 failed, 3 passed" in answer
    assert f"{fleet.out}/logs/shard-2.log" in answer
    assert f"{sick}: {fleet.folder}/health: ecc: 3 pages retired; drained" in answer
    assert f"{own[0]}: fail on {bad}, pass on" in answer
    assert "the machine: it passes on another one" in answer


@pytest.mark.nightly
def test_a_preempted_shard_a_lost_node_and_one_that_goes_on_by_itself(fleet):
    fleet.set(*(f"hold-{node}" for node in cluster.NODES))
    job = fleet.submit()
    by_shard = {index: node for node, index in fleet.all_run(job).items()}
    preempted, lost, orphaned = by_shard[1], by_shard[3], by_shard[4]
    gate = fleet.slurm.run(
        "sbatch", "--parsable", "-p", "gate", "-w", preempted, "-o", str(fleet.folder / "gate.log"),
        "--wrap", "echo gate", check=True,
    ).stdout.strip()  # fmt: skip
    fleet.slurm.lose_node(lost, orphans=False)
    fleet.slurm.lose_node(orphaned, orphans=True)
    wait(lambda: fleet.tasks(gate)[0][0] == "COMPLETED", "the end of the gate job", fleet.logs)
    wait(lambda: fleet.slurm.states()[lost] == "down*", "the node that is down", fleet.slurm.node_states)
    wait(lambda: fleet.slurm.states()[orphaned] == "down*", "the node that is down", fleet.slurm.node_states)
    fleet.unset(*(f"hold-{node}" for node in cluster.NODES))
    fleet.finish()
    verdicts = fleet.check_merged()
    assert set(verdicts.values()) == {Verdict.PASS}
    run = submission.load(fleet.out)
    assert run.result(1)["attempt"] == 1 and run.result(3)["attempt"] == 1
    assert run.result(3)["node"] != lost
    assert run.result(4)["attempt"] in (0, 1), "the first attempt that ends counts, also one of a lost node"
    assert "merged: " in fleet.command("status", str(fleet.out), status=None)


def test_a_cancelled_run_and_a_plan_that_is_wrong(fleet):
    fleet.set(*(f"hold-{node}" for node in cluster.NODES))
    job = fleet.submit()
    fleet.all_run(job)
    assert "0 of 4 shards had ended" in fleet.command("cancel", str(fleet.out))
    wait(lambda: {state for state, _ in fleet.tasks(job).values()} == {"CANCELLED"}, "the end of the array", fleet.logs)
    answer = fleet.command("status", str(fleet.out), status=1)
    assert "4 lost" in answer
    answer = fleet.command("submit", "plan.toml", "--nodes", "4", "--output", str(fleet.out), status=2)
    assert "exists already" in answer


def _groups_of(fleet, index):
    from harness.evidence.shards import DivisionFile

    return DivisionFile(fleet.out / "shards.jsonl").groups(index)
