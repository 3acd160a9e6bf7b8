"""The recorder on real NVIDIA GPUs: its figures for work whose size is known."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from harness import devices
from harness.devices import inventory
from harness.telemetry import Watch
from tests.gpu import rig

REASON = rig.absent("cuda")
pytestmark = pytest.mark.skipif(REASON is not None, reason=f"needs a CUDA GPU: {REASON}")

WORK = """
import json, sys, time
import torch
kind = sys.argv[1]
if kind == "compute":
    a = torch.randn(8192, 8192, device="cuda:0", dtype=torch.bfloat16)
    out = a @ a
    torch.cuda.synchronize()
    started = time.time()
    while time.time() - started < 3:
        for _ in range(50):
            torch.mm(a, a, out=out)
        torch.cuda.synchronize()
    moved = 0
elif kind == "memory":
    held = torch.ones(4 << 30, device="cuda:0", dtype=torch.uint8)
    torch.cuda.synchronize()
    started, moved = time.time(), 4 << 30
    time.sleep(1)
else:
    source = torch.ones(1 << 30, device="cuda:0", dtype=torch.uint8)
    target = torch.empty(1 << 30, device="cuda:1", dtype=torch.uint8)
    target.copy_(source)
    torch.cuda.synchronize("cuda:0"), torch.cuda.synchronize("cuda:1")
    time.sleep(0.5)
    started = time.time()
    for _ in range(64):
        target.copy_(source)
    torch.cuda.synchronize("cuda:0"), torch.cuda.synchronize("cuda:1")
    moved = 64 << 30
print(json.dumps([started, time.time(), moved]))
"""


@pytest.fixture(scope="module")
def gpus():
    return inventory.visible("cuda")


@pytest.fixture(scope="module")
def watch(gpus):
    with Watch(devices.kind("cuda").telemetry, gpus) as started:
        for _ in range(2):
            assert started.wait(started.lines, 30)
        assert started.ended is None
        yield started


def around(watch, gpu, started, ended):
    deadline = time.monotonic() + 10
    while (actual := watch.window(gpu.uuid, started, ended)) is None:
        assert time.monotonic() < deadline
        watch.wait(watch.lines, 1)
    assert actual.samples is not None, actual.reason
    return actual.samples


def work(kind):
    """Do it in a process of its own; when it began and ended, and how many bytes it was about."""
    done = subprocess.run([sys.executable, "-c", WORK, kind], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_field_has_a_value_or_a_reason(watch, gpus, record_property):
    now = time.time() + 0.5  # the first sample of each GPU is there by then
    for gpu in gpus:
        printed = around(watch, gpu, now, now)
        reported = {*printed["gauges"], *printed["deltas"], *printed["unavailable"]}
        states = {name for name in watch.hardware["fields"] if name.startswith("throttle")}
        assert reported | states == set(watch.hardware["fields"])
        assert {"power", "temperature_core", "clock_compute", "memory_used"} <= set(printed["gauges"])
        assert {"ecc_corrected", "ecc_uncorrected"} <= set(printed["deltas"])
        record_property(f"telemetry of GPU {gpu.index}", json.dumps(printed))
    record_property("hardware", json.dumps(watch.hardware))


def test_hardware_is_the_gpu_that_torch_names(watch, gpus):
    for gpu in gpus:
        assert watch.hardware["gpus"][gpu.uuid]["name"] == gpu.name
    assert watch.hardware["driver"]["version"]


def test_energy_is_the_integral_of_power(watch, gpus):
    started, ended, _ = work("compute")
    printed = around(watch, gpus[0], started, ended)
    begin, end = printed["bracket"]
    assert printed["samples"] > 10
    assert printed["gauges"]["power"][1] > 200
    assert printed["gauges"]["clock_compute"][1] > 500
    mean = printed["deltas"]["energy"] / (end - begin)
    assert 0.5 * printed["gauges"]["power"][0] <= mean <= 1.1 * printed["gauges"]["power"][1]


def test_memory_in_use_is_seen(watch, gpus):
    before = time.time() + 0.5
    idle = around(watch, gpus[0], before, before)["gauges"]["memory_used"][0]
    started, ended, size = work("memory")
    assert around(watch, gpus[0], started, ended)["gauges"]["memory_used"][1] - idle >= size


def test_link_bytes_are_those_that_were_sent(watch, gpus):
    if len(gpus) < 2:
        pytest.skip(f"needs 2 GPUs, {len(gpus)} can be seen")
    started, ended, size = work("link")
    first, second = (around(watch, gpu, started, ended) for gpu in gpus[:2])
    sent = first["deltas"]["link_tx"] + second["deltas"]["link_tx"]
    received = first["deltas"]["link_rx"] + second["deltas"]["link_rx"]
    # Not twice nor eighteen times as much: the counter is the GPU's, not each link's, or it is added up once.
    assert 0.95 * size <= first["deltas"]["link_tx"] + first["deltas"]["link_rx"] <= 1.3 * size
    assert 0.95 * size <= sent <= 1.3 * size
    assert 0.95 * size <= received <= 1.3 * size
    assert first["marks"] == second["marks"] == []
