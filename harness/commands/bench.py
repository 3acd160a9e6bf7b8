"""``iris-harness bench``: check the request, hold the GPUs, measure, write."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from harness import devices
from harness.bench import tables
from harness.bench.ops import OPS, op_named
from harness.bench.plan import DEVICE_RESERVE, HEAP_SLACK, Request, parse_cus, parse_sizes, size_text
from harness.bench.results import Results
from harness.bench.run import RANKS_MODULE, Measurement, Stopped
from harness.bench.showing import Showing, print_meaning, print_results
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


GPU = Defaults("8KiB:512MiB", "auto", 20)
TUNE = Defaults("8KiB:512MiB:x4", "auto", 5)
EMULATED = Defaults("4KiB:16KiB", "auto", 3)
ALL = "all"


def check_requests(
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
    tune: Path | None,
    implementation: str,
) -> list[Request]:
    """One request per op and element type, with what the machine has where something is not named. UsageError that says
    what to do.

    Device: cuda or rocm where torch sees such a GPU, else emulated. Ranks: all visible GPUs; 2 emulated ones.
    """
    ops = _words("op", ",".join(OPS) if op == ALL else op)
    for name in ops:
        op_named(name)
    device = device or _device_here()
    asked = preflight.check_request(device, arch, None, "gate", implementation, seed)
    defaults = EMULATED if device == "emulated" else GPU if tune is None else TUNE
    if ranks is None:
        ranks = EMULATED_RANKS if device == "emulated" else len(inventory.visible(device))
    if not 1 <= ranks <= preflight.MOST_RANKS:
        raise UsageError(f"--ranks: expected a number of ranks from 1 to {preflight.MOST_RANKS}, got {ranks}")
    if tune is not None and cus is not None:
        raise UsageError("--tune tries CU counts of its own: leave --cus out")
    requests = [
        Request(
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
            tune=tune is not None,
            implementation=implementation,
        )
        for op, dtype in itertools.product(ops, _words("dtype", dtype))
    ]
    preflight.check_software(asked.device, asked.arch, (ranks,))
    if tune is not None:
        tables.check(tune)  # makes its folder: when nothing else is wrong any more
    return requests


def check_memory(requests: Sequence[Request], memory: int) -> None:
    """UsageError if a rank needs more than ``memory`` bytes: of its GPU, or its share of the machine's."""
    request = max(requests, key=Request.memory_bytes)
    needed = request.memory_bytes()
    if needed > memory:
        what = "the emulated ranks' share of this machine's memory" if request.emulated else "the GPU's memory"
        reserve = "" if request.emulated else f" and {size_text(DEVICE_RESERVE)} for the context and NCCL"
        raise UsageError(
            f"{size_text(request.sizes[-1])} needs {_gib(needed)} per rank (heap {_gib(request.heap_bytes())}, as much "
            f"for nccl, what is expected{reserve}), but {what} is {_gib(memory)}: use smaller --sizes"
        )


def folders(requests: Sequence[Request], output: Path) -> list[Path]:
    """Where the files of each request go: ``output`` itself, or a folder per request below it."""
    if len(requests) == 1:
        return [output]
    return [output / f"{request.op}-{request.dtype}" for request in requests]


def run(requests: Sequence[Request], output: Path, console: Console, tune: Path | None = None) -> list[Results]:
    """Measure everything that is asked for, on the same ranks, with the results so far in ``folders`` after each size,
    and the best configurations in ``tune``.

    UsageError before anything starts: too few or unfit GPUs, too little memory. SIGINT and SIGTERM end it between two
    timings; a second one at once.
    """
    gpus = _gpus(requests)
    implementation = requests[0].implementation
    environment = {
        **capture_environment(),
        "implementation": {"name": implementation, "commit": commit_of(implementation)},
        "harness": commit_of("harness"),
    }
    places = folders(requests, output)
    planned = [Results.planned(request, environment, _now()) for request in requests]
    for folder in places:
        folder.mkdir(parents=True, exist_ok=True)
        set_aside(folder)
    with _held(requests, gpus, console) as (group, used), _stop_signals() as stop:
        stopped: str | None = None
        try:
            rig = {**_start(group), "gpus": inventory.to_plain(used)}
            with Showing(console) as showing:
                for results, folder in zip(planned, places, strict=True):
                    results.rig, results.started = rig, _now()
                    showing.op(results.request)
                    measurement = Measurement(results, group, showing, lambda: bool(stop))
                    for size in results.sizes:
                        measurement.run(size)
                        write(results, folder)
                        if tune is not None:
                            tables.merge(tune, tables.found(results, size))
                    results.finished = _now()
        except (Stopped, KeyboardInterrupt):
            stopped = stop[0]
        except CaseFailed as failure:
            stopped = f"the ranks could not be set up: {failure}"
        except HarnessError as error:
            stopped = f"an error of the harness: {error}"
            raise
        finally:
            # Before the ranks are ended and their GPUs given back, which may fail too.
            for results, folder in zip(planned, places, strict=True):
                if results.finished is None:
                    results.stopped = stopped
                write(results, folder)
    return planned


def conclude(found: Sequence[Results], output: Path, console: Console, tune: Path | None = None) -> int:
    """Print the tables, draw the plots, give the exit status: 0 only if every cell ran and every output was right."""
    for results in found:
        print_results(results, console)
    print_meaning(found[0], console)
    drawn = _draw(found, output, console)
    plots = f" and {drawn} plots" if drawn else ""
    console.print(f"\nResults{plots}: {output.resolve()}", markup=False, soft_wrap=True)
    if tune is not None and tune.exists():
        console.print(f"Configurations: {tune.resolve()}", markup=False, soft_wrap=True)
    [stopped] = {results.stopped for results in found if results.finished is None} or {None}
    if stopped is not None and stopped in signal.Signals.__members__:
        console.print("Stopped before the end; what was measured is kept.", style="yellow")
        return 128 + signal.Signals[stopped]
    if stopped is not None:
        console.print(stopped, markup=False, style="bold red", soft_wrap=True)
    return 0 if all(results.good for results in found) else 1


def _draw(found: Sequence[Results], output: Path, console: Console) -> int:
    """How many plots were drawn. Where there is nothing to draw with, the figures of an expensive run stay all the
    same."""
    if importlib.util.find_spec("matplotlib") is None:
        console.print("There are no plots: matplotlib is not installed.", style="yellow")
        return 0
    from harness.bench.plots import draw

    places = folders([results.request for results in found], output)
    return sum(len(draw(results, folder)) for results, folder in zip(found, places, strict=True))


def _start(group: RankGroup) -> dict[str, Any]:
    described: dict[str, Any] = group.call(f"{RANKS_MODULE}:describe_rig", None, START_TIMEOUT)[0]
    return described


def _gpus(requests: Sequence[Request]) -> Sequence[GpuInfo]:
    if requests[0].emulated:
        import psutil

        check_memory(requests, psutil.virtual_memory().available // requests[0].ranks)
        return ()
    gpus = inventory.visible(requests[0].device)
    check_memory(requests, min(gpu.memory for gpu in gpus))
    return gpus


def _device_here() -> str:
    for name in ("cuda", "rocm"):
        if devices.known(name).missing() is None:
            return name
    return "emulated"


@contextlib.contextmanager
def _held(
    requests: Sequence[Request], gpus: Sequence[GpuInfo], console: Console
) -> Iterator[tuple[RankGroup, Sequence[GpuInfo]]]:
    """The rank group and its GPUs, which nobody else takes meanwhile."""
    request = requests[0]
    device = devices.known(request.device, request.arch)
    outputs, inputs = zip(*(request.buffer_bytes() for request in requests), strict=True)
    options = {
        "backend": device.backend,
        "device": request.device,
        "arch": request.arch,
        "implementation": request.implementation,
        "plan": {
            "heap_bytes": max(outputs) + max(inputs) + HEAP_SLACK,
            "input_bytes": max(inputs),
            "output_bytes": max(outputs),
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


def _words(what: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if len(set(words)) < len(words):
        raise UsageError(f"{text!r} names an {what} twice" if what == "op" else f"{text!r} names a {what} twice")
    return words


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.3g} GiB"
