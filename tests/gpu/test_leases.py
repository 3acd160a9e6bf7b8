"""Leases of real GPUs: processes take disjoint sets, masks mean to torch what they mean to a lease, memory comes back.

What needs no GPU (contention, crashes, messages) is in tests/ranks/test_leases.py and tests/fixtures/test_rig.py.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fixtures.options import Options
from fixtures.rig import rig as leased
from harness import devices
from harness.devices import inventory
from harness.devices.occupancy import memory_in_use
from harness.ranks import leases
from tests.gpu import rig

pytestmark = pytest.mark.skipif(rig.reason() is not None, reason=rig.reason() or "")

ROOT = Path(__file__).parents[2]
LIMIT = 180

SEEN = "import json, torch; print(json.dumps([str(torch.cuda.get_device_properties(i).uuid)\
 for i in range(torch.cuda.device_count())]))"
HOLD = f"""
import json, os, subprocess, sys
from harness.devices import inventory
from harness.ranks import leases
device, count = sys.argv[1], int(sys.argv[2])
lease = leases.acquire(inventory.visible(device), count, 60, lambda line: None)
environment = {{**os.environ, **lease.environment()}}
seen = subprocess.run([sys.executable, "-c", {SEEN!r}], env=environment, capture_output=True, text=True, check=True)
report = {{"leased": [gpu.uuid for gpu in lease.gpus], "seen": json.loads(seen.stdout.splitlines()[-1])}}
print(json.dumps(report), flush=True)
sys.stdin.readline()
lease.release()
"""
CRASH = """
import sys, time
from fixtures.options import Options
from fixtures.rig import rig as leased
from tests.gpu import rig
device, arch = sys.argv[1:]
options = Options.checked(device=device, arch=arch, mode=None, ranks="2", level="gate",
    implementation_name="iris_under_test", seed=None, evidence=None, replay=None, deadline=None)
with leased(options, 2, print) as found:
    assert rig.passes(found.group)
    print(*found.group.pids, flush=True)
    time.sleep(600)
"""


def child(code: str, *arguments: object, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def word(process: subprocess.Popen[str]) -> dict[str, list[str]]:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def plain(uuids: list[str]) -> list[str]:
    return [uuid.removeprefix("GPU-") for uuid in uuids]


def test_two_processes_take_disjoint_gpus():
    holders = [child(HOLD, rig.device(), 1) for _ in range(2)]
    try:
        first, second = (word(holder) for holder in holders)
        assert set(first["leased"]).isdisjoint(second["leased"]), (first, second)
        for reported in (first, second):
            assert plain(reported["seen"]) == plain(reported["leased"]), "torch sees what was leased, and nothing else"
    finally:
        for holder in holders:
            holder.communicate("\n", timeout=LIMIT)
    assert [holder.returncode for holder in holders] == [0, 0]


@pytest.mark.parametrize("by", ["index", "uuid"])
def test_a_lease_stays_inside_the_callers_mask(by):
    gpu = inventory.visible(rig.device())[1]
    if rig.device() == "rocm" and by == "uuid":
        pytest.skip("HIP_VISIBLE_DEVICES takes indices")
    mask = os.environ.get(devices.gpu_kind(rig.device()).masks[0])
    entries = mask.split(",") if mask else [str(gpu.index) for gpu in inventory.visible(rig.device())]
    entry = gpu.uuid if by == "uuid" else entries[1]
    holder = child(HOLD, rig.device(), 1, **{devices.gpu_kind(rig.device()).masks[0]: entry})
    try:
        reported = word(holder)
        assert reported["leased"] == [gpu.uuid] and plain(reported["seen"]) == plain([gpu.uuid])
        assert leases.holder(gpu) == holder.pid, "the lock is the same one, seen through another mask"
    finally:
        holder.communicate("\n", timeout=LIMIT)


def test_the_gpus_of_a_group_come_back_with_their_memory():
    gpus = inventory.visible(rig.device())
    options = Options.checked(
        device=rig.device(), arch=gpus[0].arch, mode=None, ranks="2", level="gate",
        implementation_name="iris_under_test", seed=None, evidence=None, replay=None, deadline=None,
    )  # fmt: skip
    reported: list[str] = []
    with leased(options, 2, reported.append) as actual:
        before = [memory_in_use(gpu) for gpu in actual.gpus]
        assert [leases.holder(gpu) for gpu in actual.gpus] == [os.getpid()] * 2
        assert rig.passes(actual.group)
        for gpu, was in zip(actual.gpus, before, strict=True):
            assert memory_in_use(gpu) - was > rig.SLACK, "ranks have their contexts and heaps there"
    for gpu, was in zip(actual.gpus, before, strict=True):
        assert memory_in_use(gpu) - was <= rig.SLACK and leases.holder(gpu) is None
    assert reported == []


def test_the_gpus_of_a_killed_run_come_back():
    gpus = inventory.visible(rig.device())
    run = child(CRASH, rig.device(), gpus[0].arch)
    assert run.stdout is not None
    assert len(run.stdout.readline().split()) == 2, "the ranks' pids"
    held = [gpu for gpu in gpus if leases.holder(gpu) == run.pid]
    assert len(held) == 2
    used = [memory_in_use(gpu) for gpu in held]
    run.send_signal(signal.SIGKILL)
    run.communicate(timeout=LIMIT)
    lease = leases.acquire(held, 2, 60, lambda line: None)
    end = time.monotonic() + 10
    while any(was - memory_in_use(gpu) < rig.SLACK for gpu, was in zip(held, used, strict=True)):
        assert time.monotonic() < end, "the lock was free before the memory of the ranks was"
        time.sleep(0.05)
    lease.release()
