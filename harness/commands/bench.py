"""``iris-harness bench``: check the request, hold the GPUs, measure, write."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from harness import devices
from harness.bench.ops import op_named
from harness.bench.plan import DEVICE_RESERVE, Request, parse_cus, parse_sizes, size_text
from harness.bench.results import Results
from harness.bench.run import RANKS_MODULE, Measurement, Stopped
from harness.bench.showing import Showing, print_results
from harness.bench.writing import set_aside, write
from harness.commands import preflight
from harness.devices import inventory
from harness.devices.inventory import GpuInfo
from harness.errors import HarnessError, UsageError
from harness.evidence.environment import capture_environment, commit_of
from harness.ranks import CaseFailed, RankGroup, leases

EMULATED_RANKS = 2
LEASE_WAIT = 60.0
START_TIMEOUT = 180.0


@dataclass(frozen=True)
class Defaults:
    """What is measured where the command line does not say."""

    sizes: str
    cus: str
    repeat: int


GPU = Defaults("2MiB:512MiB", "4:128", 20)
EMULATED = Defaults("4KiB:16KiB", "1:2", 3)


def check_request(
    op: str,
    *,
    device: str | None,
    arch: str | None,
    ranks: int | None,
    sizes: str | None,
    cus: str | None,
    backends: str,
    dtype: str,
    repeat: int | None,
    seed: int,
    eager: bool,
    implementation: str,
) -> Request:
    """The request, with what the machine has where something is not named. UsageError that says what to do.

    Device: cuda or rocm where torch sees such a GPU, else emulated. Ranks: all visible GPUs; 2 emulated ones.
    """
    op_named(op)
    device = device or _device_here()
    asked = preflight.check_request(device, arch, None, "gate", implementation)
    defaults = EMULATED if device == "emulated" else GPU
    if ranks is None:
        ranks = EMULATED_RANKS if device == "emulated" else len(inventory.visible(device))
    if not 1 <= ranks <= preflight.MOST_RANKS:
        raise UsageError(f"{ranks} is no rank count: use 1 to {preflight.MOST_RANKS}")
    request = Request(
        op=op,
        device=asked.device,
        arch=asked.arch,
        ranks=ranks,
        sizes=parse_sizes(sizes if sizes is not None else defaults.sizes),
        cus=parse_cus(cus if cus is not None else defaults.cus),
        backends=tuple(name.strip() for name in backends.split(",")),
        dtype=dtype,
        repeat=repeat if repeat is not None else defaults.repeat,
        seed=seed,
        eager=eager,
        implementation=implementation,
    )
    preflight.check_software(request.device, request.arch, (request.ranks,))
    return request


def check_memory(request: Request, memory: int) -> None:
    """UsageError if a rank needs more than ``memory`` bytes: of its GPU, or its share of the machine's."""
    needed = request.memory_bytes()
    if needed > memory:
        what = "the emulated ranks' share of this machine's memory" if request.emulated else "the GPU's memory"
        reserve = "" if request.emulated else f" and {size_text(DEVICE_RESERVE)} for the context and NCCL"
        raise UsageError(
            f"{size_text(request.sizes[-1])} needs {_gib(needed)} per rank (heap {_gib(request.heap_bytes())}, as much "
            f"for nccl, what is expected{reserve}), but {what} is {_gib(memory)}: use smaller --sizes"
        )


def run(request: Request, output: Path, console: Console) -> Results:
    """Measure everything that is asked for, with the results so far in ``output`` after each size.

    UsageError before anything starts: too few or unfit GPUs, too little memory. SIGINT and SIGTERM end it between two
    timings; a second one at once.
    """
    gpus = _gpus(request)
    environment = {
        **capture_environment(),
        "implementation": {"name": request.implementation, "commit": commit_of(request.implementation)},
        "harness": commit_of("harness"),
    }
    results = Results.planned(request, environment, _now())
    set_aside(output)
    with _held(request, gpus, console) as (group, used), _stop_signals() as stop:
        try:
            results.rig = {**_start(group), "gpus": inventory.to_plain(used)}
            with Showing(console) as showing:
                measurement = Measurement(results, group, showing, lambda: bool(stop))
                for size in results.sizes:
                    measurement.run(size)
                    write(results, output)
            results.finished = _now()
        except (Stopped, KeyboardInterrupt):
            results.stopped = stop[0]
        except CaseFailed as failure:
            results.stopped = f"the ranks could not be set up: {failure}"
        except HarnessError as error:
            results.stopped = f"an error of the harness: {error}"
            raise
        finally:
            write(results, output)  # before the ranks are ended and their GPUs given back, which may fail too
    return results


def conclude(results: Results, output: Path, console: Console) -> int:
    """Print the table, draw the plots, give the exit status: 0 only if every cell ran and every output was right."""
    from harness.bench.plots import draw

    print_results(results, console)
    drawn = draw(results, output)
    plots = f" and {len(drawn)} plots" if drawn else ""
    console.print(f"\nResults{plots}: {output.resolve()}", markup=False, soft_wrap=True)
    if results.stopped is not None and results.stopped in signal.Signals.__members__:
        console.print("Stopped before the end; what was measured is kept.", style="yellow")
        return 128 + signal.Signals[results.stopped]
    if results.stopped is not None:
        console.print(results.stopped, markup=False, style="bold red", soft_wrap=True)
    return 0 if results.good else 1


def _start(group: RankGroup) -> dict[str, Any]:
    described: dict[str, Any] = group.call(f"{RANKS_MODULE}:describe_rig", None, START_TIMEOUT)[0]
    return described


def _gpus(request: Request) -> Sequence[GpuInfo]:
    if request.emulated:
        import psutil

        check_memory(request, psutil.virtual_memory().available // request.ranks)
        return ()
    gpus = inventory.visible(request.device)
    check_memory(request, min(gpu.memory for gpu in gpus))
    return gpus


def _device_here() -> str:
    for name in ("cuda", "rocm"):
        if devices.known(name).missing() is None:
            return name
    return "emulated"


@contextlib.contextmanager
def _held(request: Request, gpus: Sequence[GpuInfo], console: Console) -> Iterator[tuple[RankGroup, Sequence[GpuInfo]]]:
    """The rank group and its GPUs, which nobody else takes meanwhile."""
    device = devices.known(request.device, request.arch)
    largest = max(request.layouts(), key=lambda layout: layout.size)
    options = {
        "backend": device.backend,
        "device": request.device,
        "arch": request.arch,
        "implementation": request.implementation,
        "plan": {
            "op": request.op,
            "dtype": request.dtype,
            "heap_bytes": request.heap_bytes(),
            "input_bytes": largest.input_bytes,
            "output_bytes": largest.size,
        },
    }
    arguments: dict[str, Any] = {
        "setup": f"{RANKS_MODULE}:setup",
        "options": options,
        "start_timeout": START_TIMEOUT,
        "preload": (*device.modules, request.implementation),
    }
    if request.emulated:
        with RankGroup(request.ranks, **arguments) as group:
            yield group, ()
        return

    lease = leases.acquire(gpus, request.ranks, LEASE_WAIT, lambda line: console.print(line, markup=False))
    try:
        arguments |= {"hold": lease.descriptors, "environment": lease.environment(request.device)}
        with RankGroup(request.ranks, **arguments) as group:
            yield group, lease.gpus
    finally:
        lease.release()


@contextlib.contextmanager
def _stop_signals() -> Iterator[list[str]]:
    """The names of the signals that came. The first is only noted; the second raises KeyboardInterrupt."""
    came: list[str] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(signal.Signals(number).name)
        if len(came) > 1:
            raise KeyboardInterrupt

    previous = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.3g} GiB"
