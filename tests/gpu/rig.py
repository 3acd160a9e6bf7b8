"""A rank group on two GPUs for the tests here, and the memory that it must give back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from harness import cases, devices
from harness.devices import inventory
from harness.devices.occupancy import memory_in_use
from harness.ranks import RankGroup
from reports.text import plural

TARGETS = "tests.gpu.hang_targets"
COLD, WARM = 180.0, 5.0
"""Deadlines in seconds: where kernels must be compiled and communicators made, and where everything is there."""

STARTS = ("exec", "fork")
SLACK = 32 << 20
MEMORY_LIMIT = 60.0


def absent(device: str) -> str | None:
    """Return the reason why no GPU of that kind can be used here; None if one can.

    A machine without device files of GPUs has none. That is known without the query, which imports PyTorch in a child
    process while pytest collects.
    """
    if not any(path.exists() for path in (Path("/dev/nvidiactl"), Path("/dev/kfd"), Path("/dev/dxg"))):
        return "this machine has no device file of a GPU"
    return devices.known(device).missing()


def device() -> str:
    """The kind of GPU that this machine has: "cuda", also where it has none, or "rocm"."""
    return "rocm" if absent("rocm") is None else "cuda"


def reason(gpus: int = 2) -> str | None:
    """Return the reason why the tests cannot run here; None if they can."""
    needs = f"needs {plural(gpus, 'GPU')}"
    if why := absent(device()):
        return f"{needs}: {why}"
    actual = len(inventory.visible(device()))
    return None if actual >= gpus else f"{needs}, {actual} can be seen"


def chosen() -> tuple[str, ...]:
    """The options of pytest that choose two of this machine's GPUs."""
    return "--device", device(), "--arch", inventory.visible(device())[0].arch, "--ranks", "2"


@contextmanager
def group_of_two(start: str) -> Iterator[RankGroup]:
    """Two ranks on two GPUs, warm: kernels compiled, communicators made. Afterwards no process of theirs is there, and
    their GPUs have their memory back."""
    gpus = inventory.visible(device())[:2]
    before = [memory_in_use(gpu) for gpu in gpus]
    options = {
        "backend": devices.known(device()).backend,
        "device": device(),
        "arch": gpus[0].arch,
        "implementation": "iris_under_test",
        "start": start,
    }
    with RankGroup(2, "fixtures.worker:setup", options, preload=("iris_under_test", TARGETS)) as group:
        assert passes(group)
        yield group
        pids = group.pids
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    end = time.monotonic() + MEMORY_LIMIT
    while used := [
        f"{gpu}: {more:,} bytes more in use than before"
        for gpu, was in zip(gpus, before, strict=True)
        if (more := memory_in_use(gpu) - was) > SLACK
    ]:
        assert time.monotonic() < end, used
        time.sleep(0.1)


def run(group: RankGroup, function: str, case: Any = None, deadline: float = WARM) -> list[Any]:
    """A case as the suite runs it."""
    payload = {"function": f"{TARGETS}:{function}", "case": None if case is None else cases.to_json(case)}
    return group.call("fixtures.worker:run_case", payload, deadline=deadline)


def passes(group: RankGroup) -> bool:
    """Return whether the next case passes, on all ranks."""
    return [(result["error"], result["difference"]) for result in run(group, "works", deadline=COLD)] == [
        (None, None)
    ] * 2


@contextmanager
def costs_one_generation(group: RankGroup) -> Iterator[None]:
    """Around a case that ends the group: its processes are gone at once, and the next case passes on fresh ones."""
    old, generation = group.pids, group.generation
    yield
    assert group.pids == ()
    assert not [pid for pid in old if psutil.pid_exists(pid)]
    started = time.monotonic()
    assert passes(group)
    print(f"the next case passed after {time.monotonic() - started:.1f} s, with the start of fresh ranks")
    assert group.generation == generation + 1
    assert not set(group.pids) & set(old)
