"""Common parts of the benchmarks of named cells: options, ranks with their own GPUs, rounds, figures.

Such a benchmark is a module with these functions, which run on every rank:

    setup(info, options)     once per process; what it returns is ``bench`` below
    cells(bench, None)       the names of what can be timed, in order, the same on every rank
    prepare(bench, name)     make a cell ready: compile, warm up, capture
    measure(bench, name)     seconds of one step of it; raises where the result is wrong

Cells are prepared one after the other and then take turns, with a line on stderr for each cell and each round. The
slowest rank counts; figures are the median with the 10th and 90th percentile over the rounds, in microseconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from command_line.bench.results import percentile
from fixtures import implementation
from harness import devices
from harness.devices import inventory
from harness.errors import UsageError
from harness.ranks import CaseFailed, RankGroup, leases

PREPARE_DEADLINE, MEASURE_DEADLINE = 300.0, 60.0
GPU_WAIT = 120.0

Figures = dict[str, dict[str, float]]
"""Cell -> "median", "p10" and "p90", in microseconds."""


class Ranks(Protocol):
    """The part of a rank group that benchmarks use."""

    def call(self, target: str, payload: Any = None, deadline: float = 30.0) -> list[Any]:
        """Run ``target`` on every rank; results in rank order."""


def options(description: str | None, ranks: Sequence[int], words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line: device, ranks (one of ``ranks``), repeat, json. Exits with status 2 and a line that names what
    is wrong with it, before anything starts."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="emulated", choices=devices.names())
    parser.add_argument("--ranks", type=int, default=2, help="processes, on GPUs one each [2]")
    parser.add_argument("--repeat", type=int, default=10, help="rounds [10]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    given = parser.parse_args(words)
    if given.ranks not in ranks:
        parser.error(f"--ranks {given.ranks}: use {_shown(ranks)}")
    if given.repeat < 1:
        parser.error(f"--repeat {given.repeat}: use 1 round or more")
    if given.json is not None and (given.json.is_dir() or not given.json.parent.is_dir()):
        parser.error(f"--json {given.json}: name a file in a folder that exists")
    try:
        devices.get(given.device, ranks=given.ranks)
    except UsageError as error:
        parser.error(str(error))
    return given


def run(module: str, given: argparse.Namespace) -> Figures:
    """Run the benchmark in ``module`` with its ``options``; return its figures, also written to the file of ``--json``.

    Exits with status 1 and the ranks' messages if a cell could not be timed or was wrong.
    """
    device, started = devices.known(given.device), time.monotonic()

    def report(message: str) -> None:
        print(f"{time.monotonic() - started:.0f} s: {message}", file=sys.stderr, flush=True)

    request = {
        "device": device.name,
        "arch": device.arch,
        "implementation": "iris_under_test",
        "backend": device.backend,
    }
    with (
        gpus(device, given.ranks, report) as held,
        RankGroup(given.ranks, setup=f"{module}:setup", options=request, **held) as group,
    ):
        report(f"starting {given.ranks} ranks")
        try:
            figures = measured(module, group, given.repeat, report)
        except CaseFailed as failure:
            sys.exit(str(failure))
    if given.json is not None:
        plain = {"device": device.name, "ranks": given.ranks, "microseconds": figures}
        given.json.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    return figures


def measured(module: str, group: Ranks, repeat: int, report: Callable[[str], None]) -> Figures:
    """All cells of the benchmark in ``module``, timed ``repeat`` times in turns."""
    names: list[str] = group.call(f"{module}:cells")[0]
    for number, name in enumerate(names, 1):
        report(f"preparing {number} of {len(names)}: {name}")
        group.call(f"{module}:prepare", name, PREPARE_DEADLINE)
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(1, repeat + 1):
        report(f"round {number} of {repeat}")
        for name in names:
            times[name].append(max(group.call(f"{module}:measure", name, MEASURE_DEADLINE)))
    return {name: spread(seconds) for name, seconds in times.items()}


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Median, 10th and 90th percentile in microseconds."""
    return {name: 1e6 * percentile(seconds, share) for name, share in (("median", 0.5), ("p10", 0.1), ("p90", 0.9))}


def _shown(numbers: Sequence[int]) -> str:
    return f"{numbers[0]} to {numbers[-1]}" if isinstance(numbers, range) else ", ".join(map(str, numbers))


@contextlib.contextmanager
def gpus(device: devices.Device, ranks: int, report: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Yield a rank group's options for the GPUs that it alone uses; empty for the emulated device."""
    if device.name == "emulated":
        yield {}
        return
    lease = leases.acquire(inventory.visible(device.name), ranks, GPU_WAIT, report)
    try:
        yield {"environment": lease.environment(), "hold": lease.descriptors}
    finally:
        lease.release()


def on_rank(
    info: Mapping[str, Any], request: Mapping[str, Any]
) -> tuple[devices.Device, implementation.Implementation]:
    """The device of this rank, active, and the library: how a ``setup`` begins."""
    device = devices.known(request["device"], request["arch"])
    device.activate(info["local_rank"])
    torch.set_num_threads(1)
    return device, implementation.load(request["implementation"])
