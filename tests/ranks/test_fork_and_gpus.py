"""Ranks with GPUs can be forked only from processes that never queried a GPU: a driver does not survive a fork."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import devices
from harness.ranks import RankGroup

ALARM = """
# Run by every interpreter before all other code: logs each process that queries torch for a GPU, and reports no GPU.
import os, traceback
import torch
def watched(name):
    def alarm(*arguments):
        with open(os.environ["GPU_ALARM"], "a") as file:
            file.write(f"{os.getpid()} {name} {traceback.format_stack()}\\n")
        return 0
    setattr(torch.cuda, name, alarm)
for name in ("is_available", "device_count", "current_device", "_lazy_init", "init", "get_device_properties"):
    watched(name)
"""


@pytest.mark.slow
@pytest.mark.parametrize("start", ["fork", pytest.param("exec", marks=pytest.mark.nightly)])
def test_neither_keeper_nor_agent_asks_for_a_gpu(start: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(ALARM)
    log = tmp_path / "log"
    log.touch()
    device = devices.known("emulated")
    options = {
        "backend": device.backend,
        "device": "emulated",
        "arch": device.arch,
        "implementation": "iris_under_test",
        "start": start,
    }
    environment = {"PYTHONPATH": str(tmp_path), "GPU_ALARM": str(log)}
    preload = (*device.modules, "iris_under_test")
    with RankGroup(2, "fixtures.worker:setup", options, environment=environment, preload=preload) as group:
        group.call("tests.ranks.targets:asks_for_a_gpu")
        _, agent, keeper = group.call("tests.ranks.targets:pids_below")[0]
        ranks = group.pids
    queries = {int(line.split()[0]): line for line in log.read_text().splitlines()}
    assert set(ranks) <= set(queries), "the alarm works"
    assert not {agent, keeper} & set(queries), queries
