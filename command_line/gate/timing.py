"""Times of base and head on a GPU, taken in turn by ``iris-harness bench``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console

from command_line.gate.statistics import LEAST_SAMPLES, interleaved
from command_line.preflight import Request
from command_line.suite.process import Suite, environment_of
from command_line.suite.run import StopRequest
from harness import devices
from harness.errors import HarnessError, UsageError

TURNS = LEAST_SAMPLES
"""Processes of each side. A process gives one sample of a cell, its median: the least number that can be judged."""

SIZES = "64KiB:16MiB:x16"
_REPEAT = 7
_RESULTS = "bench.json"


def check(request: Request) -> None:
    """Raise UsageError if times cannot be taken with this request."""
    names = [kind.name for kind in devices.gpu_kinds()]
    if request.device not in names:
        wanted = " or ".join(names)
        raise UsageError(
            f"--bench: times are those of a GPU, and the device is {request.device}: name --device {wanted}"
        )


def measured(
    base: Path, library: Path, request: Request, ops: str, output: Path, stop: StopRequest, screen: Console
) -> list[tuple[Path, Path]]:
    """Time ``ops`` with the library in the folder ``base`` and the one at ``library``, in turn, and return the pairs of
    ``bench.json``; fewer than ``TURNS`` if ``stop`` got a signal. ``output`` gets the results and logs.

    Raises UsageError with the reason if the benchmark refuses its options, HarnessError if it left no results.
    """
    options = [ops, "--device", request.device, "--arch", request.arch, "--implementation", request.implementation]
    options += ["--ranks", str(max(request.ranks))] if request.ranks else []
    options += ["--backends", "gluon,triton", "--sizes", SIZES, "--repeat", str(_REPEAT)]
    count = 0

    def sample(side: str, folder: Path) -> list[Path]:
        nonlocal count
        if stop.signal is not None:
            return []
        count += 1
        screen.print(f"Timing {ops}: {count} of {2 * TURNS} processes, {side}", markup=False)
        return _bench(options, folder, output / f"{side}-{count}", stop)

    sides = interleaved(lambda: sample("base", base), lambda: sample("head", library.parent), TURNS)
    return [pair for old, new in sides for pair in zip(old, new, strict=False)]


def _bench(options: Iterable[str], folder: Path, output: Path, stop: StopRequest) -> list[Path]:
    """Run the benchmark with the library in ``folder``; return its results, in the order of their folders."""
    output.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "command_line", "bench", *options, "--output", str(output)]
    with Suite(command, output / "bench.log", environment_of(folder)) as child:
        while (status := child.poll()) is None and stop.signal is None:
            time.sleep(0.1)
        child.join()
        if status == 2:
            raise UsageError(f"--bench: {_last(child.tail)}")
    results = sorted(output.rglob(_RESULTS))
    if stop.signal is None and not results:
        raise HarnessError(f"the benchmark ended with status {status} and no results: {_last(child.tail)}")
    return results


def _last(lines: Sequence[str]) -> str:
    return next((line for line in reversed(lines) if line.strip()), "it printed nothing").removeprefix("iris-harness: ")
