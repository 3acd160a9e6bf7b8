"""``certify --groups``: how many rank groups work at the same time, and one report of several."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from command_line.preflight import check_request
from command_line.publishing import PARTIAL
from command_line.suite import groups
from command_line.suite.groups import Machine, fitting, measured, number
from harness.devices import inventory
from harness.devices.gpu_kind import GpuInfo
from harness.errors import UsageError
from harness.evidence import Verdict, read
from tests import python
from tests.fleet import fake_suite

ROOT = Path(__file__).resolve().parents[2]
GIB = 1 << 30


@pytest.mark.parametrize(
    ("cores", "memory", "sizes", "wanted"),
    [
        (2, 24, (4,), 2),
        (16, 64, (4,), 16),
        (16, 8, (4,), 4),
        (64, 64, (4, 1, 2, 8), 24),
        (1, 64, (4,), 1),
        (4, 1, (8,), 1),
    ],
)
def test_cores_and_memory_limit_the_groups(cores: int, memory: int, sizes: tuple[int, ...], wanted: int) -> None:
    assert fitting(Machine(cores, memory * GIB), sizes) == wanted


def test_ranks_that_judge_apart_need_more_memory() -> None:
    assert fitting(Machine(16, 8 * GIB), (4,), apart=True) == 3


def test_the_limits_of_a_container_count(tmp_path: Path) -> None:
    whole = measured(tmp_path / "none")
    assert whole.cores == len(os.sched_getaffinity(0)) and whole.memory > 0
    for name, text in (("cpu.max", "100000 100000"), ("memory.max", str(3 * GIB)), ("memory.current", str(2 * GIB))):
        (tmp_path / name).write_text(f"{text}\n")
    assert measured(tmp_path) == Machine(1, GIB)
    (tmp_path / "memory.stat").write_text(f"anon 1\ninactive_file {GIB}\n")
    assert measured(tmp_path) == Machine(1, 2 * GIB), "the page cache is free for use"
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert measured(tmp_path).cores == whole.cores and measured(tmp_path).memory > 2 * GIB


@pytest.mark.parametrize(
    ("gpus", "ranks", "shared", "wanted"),
    [
        (8, "4", 1, 2),
        (8, "2,4", 1, 2),
        (4, "4", 1, 1),
        (4, None, 1, 1),
        (4, "4", 2, 2),
        (1, "4", 4, 1),
        (2, None, 1, 1),
    ],
)
def test_gpus_limit_the_groups(
    monkeypatch: pytest.MonkeyPatch, gpus: int, ranks: str | None, shared: int, wanted: int
) -> None:
    """``ci`` has world sizes up to 8: those that do not fit are left out of the run, and do not count."""
    monkeypatch.setattr(groups, "measured", lambda: Machine(64, 64 * GIB))
    monkeypatch.setitem(inventory._adopted, "cuda", tuple(gpu(index) for index in range(gpus)))
    request = check_request("cuda", None, ranks, "ci", "iris_under_test", ranks_per_gpu=shared)
    assert number(request, None) == wanted
    with pytest.raises(UsageError, match=f"at most {wanted} fit"):
        number(request, str(wanted + 1))


def gpu(index: int) -> GpuInfo:
    return GpuInfo(index, "NVIDIA H200", "sm_90", 1, f"GPU-{index}", f"0000:{index:02}:00.0", (), "cuda")


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "", "257", "0000002560", "9" * 40, "\u0663"])
def test_a_wrong_number_is_one_line(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        number(check_request("emulated", None, "2", "gate", "iris_under_test"), text)
    message = str(refused.value)
    assert message.startswith("--groups: expected a whole number from 1 to 256, got ") and "\n" not in message
    assert len(message) < 140


@pytest.mark.slow
def test_two_groups_write_one_report(tmp_path: Path) -> None:
    """With the real plugin, and cases that need no ranks."""
    control = tmp_path / "control"
    control.mkdir()
    environment = fake_suite.environment(fake_suite.make_suite(tmp_path / "suite"), control, dict(os.environ))
    command = ["certify", "--ranks", "2", "--level", "ci", "--judge", "together", "--groups", "2"]
    done = python.run(
        [sys.executable, "-m", "command_line", *command, "--output", str(tmp_path / "out")],
        cwd=tmp_path, env=environment, timeout=300,
    )  # fmt: skip
    assert done.returncode == PARTIAL, done.stdout + done.stderr  # the level has other world sizes too
    evidence = read(tmp_path / "out" / "evidence.jsonl")
    assert evidence.verdict() is Verdict.PASS and not evidence.problems
    assert set(evidence.groups) == fake_suite.GROUPS and all(len(each) == 1 for each in evidence.groups.values())
    assert written_by(tmp_path / "out" / "evidence.jsonl") >= {"gw0", "gw1"}
    assert not list((tmp_path / "out").glob("evidence-gw*"))


@pytest.mark.nightly
def test_two_groups_of_emulated_ranks_write_one_report(tmp_path: Path) -> None:
    command = [
        "certify",
        "--provider",
        "tests.adapters.heaps:Plain",
        "--ranks",
        "2",
        "--level",
        "ci",
        "--groups",
        "2",
    ]
    done = python.run(
        [sys.executable, "-m", "command_line", *command, "--output", str(tmp_path / "out")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=500,
    )
    assert done.returncode == 3, done.stdout + done.stderr
    evidence = read(tmp_path / "out" / "evidence.jsonl")
    assert evidence.verdict() is Verdict.UNSUPPORTED and not evidence.problems
    assert written_by(tmp_path / "out" / "evidence.jsonl") >= {"gw0", "gw1"}
    assert not list((tmp_path / "out").glob("evidence-gw*"))


def written_by(evidence: Path) -> set[str]:
    """Return the processes that wrote records. All cases may be those of one process, if it is the faster one."""
    return {json.loads(line).get("writer", "") for line in evidence.read_text(encoding="utf-8").splitlines()}
