"""``certify --nodes`` on two machines, which are namespaces of this one, each with a host name of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from harness import evidence
from harness.evidence import Verdict
from harness.ranks import meeting

ROOT = Path(__file__).parents[2]
SEPARATE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--ipc", "sh", "-c"]
PREPARE = 'hostname "$0" && mount -t tmpfs tmpfs /dev/shm && exec "$@"'
CERTIFY = [sys.executable, "-m", "command_line", "certify", "--ranks", "4", "--nodes", "2"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def start(name: str, command: list[str], log: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, meeting.KEY: "a key for the tests", "GLOO_SOCKET_IFNAME": "lo"}
    with log.open("wb") as output:
        return subprocess.Popen(
            [*SEPARATE, PREPARE, name, *command], cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT
        )


@pytest.mark.nightly
def test_two_machines_below_torchrun(separate_nodes: None, tmp_path: Path) -> None:
    """An outer torchrun starts the same command on both machines, and gives each its number."""
    rendezvous, endpoint = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    started = []
    for number in range(2):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
        torchrun += ["--rdzv-backend", "c10d", "--rdzv-endpoint", rendezvous, "--rdzv-id", "outer"]
        torchrun += ["--rdzv-conf", f"is_host={1 - number}", "--local-addr", f"127.0.0.{number + 1}"]
        command = [*CERTIFY, "--endpoint", endpoint, "--output", str(tmp_path / f"machine-{number}")]
        started.append(start(f"machine-{number}", [*torchrun, "--no-python", *command], tmp_path / f"{number}.log"))
    try:
        statuses = [process.wait(400) for process in started]
    finally:
        for process in started:
            process.kill()
    logs = "\n".join((tmp_path / f"{number}.log").read_text() for number in range(2))
    assert statuses == [0, 0], logs
    written = [folder for folder in sorted(tmp_path.glob("machine-*")) if (folder / "evidence.jsonl").is_file()]
    assert len(written) == 1, "the first machine alone writes evidence"
    recorded = evidence.read(written[0] / "evidence.jsonl")
    every = [group for groups in recorded.groups.values() for group in groups]
    assert recorded.runs[0].nodes == 2
    assert {group.verdict for group in every} == {Verdict.PASS}, logs
    assert "NODES-CCL-001" in {group.requirement for group in every}


def refused(*arguments: str, key: str | None = None) -> str:
    """Return the one line with which certify refuses a request."""
    environment = {name: value for name, value in os.environ.items() if name != meeting.KEY}
    environment |= {} if key is None else {meeting.KEY: key}
    done = subprocess.run(
        [*CERTIFY, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2, done.stdout + done.stderr
    [line] = done.stderr.strip().splitlines()
    return line


def test_wrong_requests_are_refused_at_once(tmp_path: Path) -> None:
    output = ("--output", str(tmp_path / "out"))
    assert "IRIS_HARNESS_KEY: expected a secret" in refused("--endpoint", "127.0.0.1:1", *output)
    no_number = refused("--endpoint", "127.0.0.1:1", *output, key="a key for the tests")
    assert "--node-rank: expected the number of this machine" in no_number
    assert "--node-rank: only a machine of --nodes has one" in refused("--node-rank", "1", *output)
    assert "--profile emulated-gfx942" in refused("--profile", "emulated-gfx942", *output)
    assert not (tmp_path / "out").exists()
