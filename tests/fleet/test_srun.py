"""``certify --nodes 2`` below a real ``srun``, which starts it on two nodes and gives each its number.

The nodes of this Slurm are on one machine, so each task makes a machine of its own: processes, shared memory and host
name are those of a namespace.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness.evidence import Verdict, read
from harness.ranks import meeting
from tests.cli.test_certify_nodes import PREPARE, ROOT, SEPARATE, free_port
from tests.fleet.cluster import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.nightly]


def test_two_nodes_of_one_job(slurm: Cluster, separate_nodes: None, tmp_path: Path) -> None:
    certify = [sys.executable, "-m", "command_line", "certify", "--ranks", "4", "--nodes", "2"]
    certify += ["--endpoint", f"127.0.0.1:{free_port()}"]
    name, output = '"machine-$SLURM_PROCID"', f'{shlex.quote(str(tmp_path))}/"machine-$SLURM_PROCID"'
    task = tmp_path / "task"
    task.write_text(f"exec {shlex.join([*SEPARATE, PREPARE])} {name} {shlex.join(certify)} --output {output}\n")
    srun = ["srun", "--nodes", "2", "--ntasks", "2", "--partition", "nightly", "--chdir", str(ROOT), "sh", str(task)]
    key = {meeting.KEY: "a key for the tests", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        srun, env={**slurm.environment, **key}, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    written = [folder.name for folder in sorted(tmp_path.glob("machine-*")) if (folder / "evidence.jsonl").is_file()]
    assert written == ["machine-0"], "the first machine alone writes evidence"
    recorded = read(tmp_path / "machine-0" / "evidence.jsonl")
    every = [group for groups in recorded.groups.values() for group in groups]
    assert recorded.runs[0].nodes == 2
    assert {group.verdict for group in every} == {Verdict.PASS}
    assert "NODES-CCL-001" in {group.requirement for group in every}
