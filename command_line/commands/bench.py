"""``iris-harness bench``: check the request, lease the GPUs, measure, write the results."""

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

import click
from rich.console import Console

from command_line import output as streams
from command_line import preflight
from command_line.bench import tables
from command_line.bench.display import ProgressDisplay, print_meaning, print_results
from command_line.bench.ops import OPS, op_named
from command_line.bench.plan import DEVICE_RESERVE, HEAP_SLACK, Request, parse_cus, parse_sizes, size_text
from command_line.bench.results import Results
from command_line.bench.run import RANKS_MODULE, Measurement, Stopped
from command_line.bench.writing import set_aside, write
from command_line.options import PATH, implementation_option
from fixtures import adapters
from fixtures import options as plugin_options
from harness import devices, runs
from harness.devices import inventory
from harness.devices.gpu_kind import GpuInfo
from harness.errors import HarnessError, UsageError
from harness.evidence.environment import capture_environment, commit_of, sources_of
from harness.ranks import CaseFailed, RankGroup, leases

EMULATED_RANKS = 2
LEASE_WAIT = 60.0
START_TIMEOUT = 180.0


@click.command("bench", short_help="Time ops of the library against torch.distributed, and tune them.")
@click.argument("op")
@click.option("--ranks", default=None, help="Number of ranks.  [default: all visible GPUs; 2 emulated ones]")
@click.option(
    "--sizes",
    default=None,
    help="A:B doubles, A:B:x4 multiplies by 4, A,B is a list.  [default: 8KiB:512MiB; 4KiB:16KiB emulated]",
)
@click.option("--cus", default=None, help="Compute units, 4:128 or 8,24; auto: the library's choice.  [default: auto]")
@click.option("--backends", default="nccl,gluon,triton", show_default=True, help="Backends to time; also nccl-ctas.")
@click.option("--device", default=None, help="As for certify.  [default: a GPU if there is one, else emulated]")
@click.option("--arch", default=None, help="As for certify.  [default: the device's first]")
@click.option("--dtype", default="fp16", show_default=True, help="Element types, separated by commas.")
@click.option("--repeat", type=int, default=None, help="Rounds.  [default: 20; 5 with --tune; 3 emulated]")
@click.option("--eager", is_flag=True, help="Enqueue each call by itself instead of replaying a device graph.")
@click.option("--seed", default="0", show_default=True, help="Seed of the order within each round.")
@click.option("--tune", type=PATH, default=None, help="Try configurations, and write the fastest into this table.")
@implementation_option()
@click.option("--output", type=PATH, default=Path("out", "bench"), show_default=True, help="Directory for results.")
def command(op: str, output: Path, tune: Path | None, **options: Any) -> int:
    """Time OP of each backend at each size and CU count; write bench.json, bench.csv and plots.

    OP is all_gather, reduce_scatter, all_to_all, all_reduce or broadcast, several separated by commas, or all. A size
    is the larger of one rank's input and output in bytes, as in nccl-tests. Algorithm bandwidth is size / time; bus
    bandwidth is algorithm bandwidth times the factor of nccl-tests, (ranks - 1) / ranks for all_gather. Both are in
    GB/s (1e9 bytes). Every timed output is compared bit for bit. A time includes the completion of the op and is that
    of the slowest rank.

    Exit status 0 only if every cell ran and every output was right, 1 if not, 2 if the request was wrong, 130 if
    interrupted.
    """
    requests = check_requests(op, tune=tune, **options)
    folder = preflight.output_folder(output)
    console = streams.console()
    with runs.claimed(folder):
        results = run(requests, folder, console, tune)
        return conclude(results, folder, console, tune)


@dataclass(frozen=True)
class Defaults:
    """Values of options that the command line leaves out."""

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
    ranks: str | int | None,
    sizes: str | None,
    cus: str | None,
    backends: str,
    dtype: str,
    repeat: int | None,
    seed: str | int,
    eager: bool,
    tune: Path | None,
    implementation: str,
) -> list[Request]:
    """Return one checked request for each op and element type. Raises UsageError for a wrong value.

    The default device is the kind of GPU that torch sees, else emulated. The default number of ranks is the number of
    visible GPUs, or 2 on the emulated device.
    """
    ops = _words("OP", ",".join(OPS) if op == ALL else op)
    for name in ops:
        op_named(name)
    device = device or _device_here()
    checked = preflight.check_request(device, arch, None, "gate", implementation, seed)
    if not adapters.adapter_of(implementation).offers("iris"):
        raise UsageError(f"--implementation {implementation}: bench measures packages with the Iris API only")
    defaults = EMULATED if device == "emulated" else GPU if tune is None else TUNE
    if ranks is None:
        ranks = EMULATED_RANKS if device == "emulated" else len(inventory.visible(device))
    count = plugin_options.parse_count("--ranks", str(ranks))
    if tune is not None and cus is not None:
        raise UsageError("--cus cannot be used with --tune, which tries its own CU counts: leave --cus out")
    requests = [
        Request(
            op=op,
            device=checked.device,
            arch=checked.arch,
            ranks=count,
            sizes=parse_sizes(sizes if sizes is not None else defaults.sizes),
            cus=parse_cus(cus if cus is not None else defaults.cus),
            backends=tuple(name.strip() for name in backends.split(",")),
            dtype=dtype,
            repeat=repeat if repeat is not None else defaults.repeat,
            seed=checked.seed or 0,
            eager=eager,
            tune=tune is not None,
            implementation=implementation,
        )
        for op, dtype in itertools.product(ops, _words("--dtype", dtype))
    ]
    preflight.check_software(checked.device, checked.arch, (count,))
    if tune is not None:
        tables.check(tune)  # last: it creates the table's folder
    return requests


def check_memory(requests: Sequence[Request], memory: int) -> None:
    """Raise UsageError if a rank needs more than ``memory`` bytes.

    ``memory`` is the memory of the smallest GPU or, on the emulated device, the machine's free memory per rank.
    """
    request = max(requests, key=Request.memory_bytes)
    needed = request.memory_bytes()
    if needed > memory:
        available = "this machine's free memory per rank" if request.emulated else "the GPU's memory"
        reserve = "" if request.emulated else f" and {size_text(DEVICE_RESERVE)} for the context and NCCL"
        raise UsageError(
            f"{size_text(request.sizes[-1])} needs {_gib(needed)} per rank (heap {_gib(request.heap_bytes())}, as much "
            f"for nccl, the expected output{reserve}), but {available} is {_gib(memory)}: use smaller --sizes"
        )


def folders(requests: Sequence[Request], output: Path) -> list[Path]:
    """Return the folder for each request's files: ``output`` for a single request, else a folder per request in it."""
    if len(requests) == 1:
        return [output]
    return [output / f"{request.op}-{request.dtype}" for request in requests]


def run(requests: Sequence[Request], output: Path, console: Console, tune: Path | None = None) -> list[Results]:
    """Measure all ``requests`` on one rank group.

    After each size, the results so far are written into ``folders``, and the best configurations into ``tune``. Raises
    UsageError before anything starts if there are too few suitable GPUs or too little memory. SIGINT and SIGTERM end
    the run between two timings; a second signal ends it at once.
    """
    gpus = _gpus(requests)
    implementation = requests[0].implementation
    environment = {
        **capture_environment(),
        "implementation": {
            "name": implementation,
            "commit": commit_of(implementation),
            "sha256": sources_of(implementation),
        },
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
            with ProgressDisplay(console) as display:
                for results, folder in zip(planned, places, strict=True):
                    results.rig, results.started = rig, _now()
                    display.op(results.request)
                    measurement = Measurement(results, group, display, lambda: bool(stop))
                    for size in results.sizes:
                        measurement.run(size)
                        write(results, folder)
                        if tune is not None:
                            tables.merge(tune, tables.entries_of(results, size))
                    results.finished = _now()
        except (Stopped, KeyboardInterrupt):
            stopped = stop[0]
        except CaseFailed as failure:
            stopped = f"the ranks could not be set up: {failure}"
        except HarnessError as error:
            stopped = f"an error of the harness: {error}"
            raise
        finally:
            # Before the ranks end and the lease is released, which may fail too.
            for results, folder in zip(planned, places, strict=True):
                if results.finished is None:
                    results.stopped = stopped
                write(results, folder)
    return planned


def conclude(benchmarks: Sequence[Results], output: Path, console: Console, tune: Path | None = None) -> int:
    """Print the tables, draw the plots, and return the exit status.

    The status is 0 only if every cell ran and every output was right.
    """
    for results in benchmarks:
        print_results(results, console)
    print_meaning(benchmarks[0], console)
    drawn = _draw(benchmarks, output, console)
    plots = f" and {drawn} plots" if drawn else ""
    console.print(f"\nResults{plots}: {output.resolve()}", markup=False, soft_wrap=True)
    if tune is not None and tune.exists():
        console.print(f"Configurations: {tune.resolve()}", markup=False, soft_wrap=True)
    [stopped] = {results.stopped for results in benchmarks if results.finished is None} or {None}
    if stopped is not None and stopped in signal.Signals.__members__:
        console.print("Stopped before the end; what was measured is kept.", style="yellow")
        return 128 + signal.Signals[stopped]
    if stopped is not None:
        console.print(stopped, markup=False, style="bold red", soft_wrap=True)
    return 0 if all(results.good for results in benchmarks) else 1


def _draw(benchmarks: Sequence[Results], output: Path, console: Console) -> int:
    """Draw the plots and return their number. Without matplotlib none is drawn, and an expensive run still counts."""
    if importlib.util.find_spec("matplotlib") is None:
        console.print("No plots were drawn: matplotlib is not installed (pip install matplotlib).", style="yellow")
        return 0
    from command_line.bench.plots import draw

    places = folders([results.request for results in benchmarks], output)
    return sum(len(draw(results, folder)) for results, folder in zip(benchmarks, places, strict=True))


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
    for kind in devices.gpu_kinds():
        if devices.known(kind.name).missing() is None:
            return kind.name
    return "emulated"


@contextlib.contextmanager
def _held(
    requests: Sequence[Request], gpus: Sequence[GpuInfo], console: Console
) -> Iterator[tuple[RankGroup, Sequence[GpuInfo]]]:
    """Start the rank group on leased GPUs, so that no other run uses them; yield the group and its GPUs."""
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
        arguments |= {"hold": lease.descriptors, "environment": lease.environment()}
        with RankGroup(request.ranks, **arguments) as group:
            yield group, lease.gpus
    finally:
        lease.release()


@contextlib.contextmanager
def _stop_signals() -> Iterator[list[str]]:
    """Collect the names of SIGINT and SIGTERM as they arrive. The first is recorded, the second raises
    KeyboardInterrupt."""
    received: list[str] = []

    def record(number: int, frame: FrameType | None) -> None:
        received.append(signal.Signals(number).name)
        if len(received) > 1:
            raise KeyboardInterrupt

    previous = {number: signal.signal(number, record) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _words(option: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if len(set(words)) < len(words):
        raise UsageError(f"{option}: expected different names separated by commas, got {text!r:.60}")
    return words


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.3g} GiB"
