"""Common parts of the GEMM all-scatter benchmarks: options, ranks, validation, times. ``main`` is a whole program.

The operation under test is a class like ``GemmAllScatter``: it is constructed from an instance of Iris and a
``Tiling``, and called with (c, a, b), and with ``local=True`` to send nothing to other ranks.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import functools
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import triton

import iris_under_test as iris
from harness import emulator
from iris_under_test.device.signals import MAX_PROGRAMS

from .gemm_all_scatter import GemmAllScatter, Tiling, suited_columns
from .matmul_wrapper import matmul

DTYPES = {"fp16": torch.float16, "fp32": torch.float32, "int8": torch.int8, "bf16": torch.bfloat16}
POISON = 85
"""Value of C before it is computed, so that a missing write is detected."""


def run(operation: type[GemmAllScatter], options: argparse.Namespace) -> bool:
    """Run all steps on one rank; return whether the data of all ranks is right."""
    ctx = iris.iris(options.heap_size)
    rank, ranks, device = ctx.get_rank(), ctx.get_num_ranks(), ctx.get_device()
    m, n, k, dtype = options.m, options.n, options.k, DTYPES[options.datatype]
    if n % ranks or k % ranks:
        raise ValueError(f"-n and -k must be multiples of the {ranks} ranks, got {n} and {k}")

    def whole_numbers(seed: int, *shape: int) -> torch.Tensor:
        """-3 to 3: every product and every sum is exact in every type, so that a right result is so to the bit."""
        generator = torch.Generator(device).manual_seed(seed)
        return torch.randint(-3, 4, shape, generator=generator, device=device, dtype=torch.int8).to(dtype)

    a = whole_numbers(0, m, k)
    b = whole_numbers(1 + rank, n // ranks, k).T
    c = ctx.empty((m, n), dtype=torch.int32 if dtype == torch.int8 else dtype)
    report = {"options": vars(options), "device": _device_name(), "ranks": ranks, "triton": triton.__version__}
    report["results"] = []
    right = True
    for tiling in tilings(options):
        entry = {"tiling": dataclasses.asdict(tiling)}
        gemm = operation(ctx, tiling)
        if options.validate:
            c.fill_(POISON)
            ctx.barrier()
            matmul(a, b, gemm, c)
            ctx.barrier()
            wrong = 0
            for other in range(ranks):
                theirs = whole_numbers(1 + other, n // ranks, k).T
                columns = slice(other * (n // ranks), (other + 1) * (n // ranks))
                # Exact: no sum of whole numbers comes near 2^24.
                wrong += int((c[:, columns] != (a.float() @ theirs.float()).to(c.dtype)).sum())
            entry["wrong"] = _of_all_ranks(wrong, dist.ReduceOp.SUM, device)
            right &= entry["wrong"] == 0
            if wrong:
                ctx.error(f"{name_of(tiling)}: {wrong} of {c.numel()} elements are wrong")
            else:
                ctx.info(f"{name_of(tiling)}: Validation successful!")
        if options.debug:
            entry["kernel"] = _about(gemm, c, a, b)
            ctx.info(f"{name_of(tiling)}: {entry['kernel']}")
        if options.benchmark:
            entry |= measured(gemm, c, *like_activations(a, b), options)
            if rank == 0:
                print(table(tiling, entry, 2.0 * m * n * k, c, ranks), flush=True)
        if options.trace_tiles:
            stem = options.output_file.removesuffix(".json")
            entry["trace"] = traced(gemm, c, a, b, f"{stem}.{name_of(tiling)}.trace.json")
        report["results"].append(entry)
    if rank == 0:
        with open(options.output_file, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=2)
    ctx.barrier()
    return right


def like_activations(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Return tensors of the same shapes that hold normally distributed numbers.

    The whole numbers of the validation have few bits set: a GPU needs less power for them, and its clock is higher than
    users will see.
    """
    return [t if t.dtype == torch.int8 else torch.empty_like(t).normal_() for t in tensors]


def measured(
    gemm: GemmAllScatter, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, options: argparse.Namespace
) -> dict[str, dict[str, float]]:
    """Return milliseconds per call of the slowest rank: {name: {median, p10, p90}}. The calls are measured in turns.

    ``fused``: the operation. ``products``: the same kernel without stores to other ranks. ``transfer``: the same kernel
    with one block of K, so little else than its stores. ``library``: torch.matmul, then all_gather_into_tensor, into
    (ranks, M, n), which is not yet C; ``matmul`` and ``all_gather`` are its halves.

    On GPUs a sample is ``--calls`` calls in a row, after a barrier of the devices. Those of this example come as a
    device graph: a launch from Python takes longer than a call here, and a captured program does not pay for it.
    ``eager`` is ``fused`` without a graph.
    """
    block = gemm.tiling.block_k
    calls: dict[str, Callable[[], object]] = {
        "fused": lambda: gemm(c, a, b),
        "products": lambda: gemm(c, a, b, local=True),
        "transfer": lambda: gemm(c, a[:, :block], b[:block]),
    }
    if a.is_cuda:
        calls = {name: _graph(call, options.calls) for name, call in calls.items()}
        calls["eager"] = lambda: [gemm(c, a, b) for _ in range(options.calls)]
    if a.is_cuda and a.dtype != torch.int8:
        own = torch.empty((a.shape[0], b.shape[1]), dtype=c.dtype, device=a.device)
        gathered = torch.empty((c.numel() // own.numel(), *own.shape), dtype=c.dtype, device=a.device)

        def library(*, multiplies: bool = True, gathers: bool = True) -> None:
            for _ in range(options.calls):
                if multiplies:
                    torch.matmul(a, b, out=own)
                if gathers:
                    dist.all_gather_into_tensor(gathered, own)

        calls["library"] = library
        calls["matmul"] = functools.partial(library, gathers=False)
        calls["all_gather"] = functools.partial(library, multiplies=False)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(-2, options.rounds):
        for name, call in calls.items():
            gemm.ctx.barrier()
            milliseconds = _time(gemm, call) / (options.calls if a.is_cuda else 1)
            slowest = _of_all_ranks(milliseconds, dist.ReduceOp.MAX, a.device)
            if turn >= 0:
                times[name].append(slowest)
    return {"ms": {name: _summary(values) for name, values in times.items()}}


def table(tiling: Tiling, entry: dict, flops: float, c: torch.Tensor, ranks: int) -> str:
    """Return the measured times as text."""
    times = {name: summary["median"] for name, summary in entry["ms"].items()}
    lines = [f"{name_of(tiling)}: ms of the slowest rank, TFLOPS of all ranks"]
    for name, summary in entry["ms"].items():
        rate = "" if name in ("transfer", "all_gather") else f"{flops / summary['median'] / 1e9:10.1f}"
        lines.append(f"  {name:10} {summary['median']:10.4f}  {summary['p10']:.4f}-{summary['p90']:.4f} {rate}")
    # The part of the transfer's time that the products hide when both run at once.
    hidden = (times["products"] + times["transfer"] - times["fused"]) / times["transfer"]
    entry["hidden"] = hidden
    sent = c.numel() * c.element_size() * (ranks - 1) / ranks
    lines.append(f"  transfer hidden behind products: {hidden:.0%}; {sent / times['transfer'] / 1e6:.1f} GB/s alone")
    if "library" in times:
        entry["speedup"] = times["library"] / times["fused"]
        lines.append(f"  against matmul, then all_gather: {entry['speedup']:.3f} x")
    return "\n".join(lines)


def traced(gemm: GemmAllScatter, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, file: str) -> str:
    """Run one call that records when each tile is sent; return the name of the trace file (Perfetto,
    chrome://tracing).
    """
    tiles = triton.cdiv(c.shape[0], gemm.tiling.block_m) * triton.cdiv(b.shape[1], gemm.tiling.block_n)
    gemm.ctx.tracing.enable(2 * tiles * gemm.ctx.get_num_ranks() + MAX_PROGRAMS.value)
    gemm(c, a, b, traced=True)
    gemm.ctx.barrier()
    gemm.ctx.tracing.export(file, merge=True)
    return file


def name_of(tiling: Tiling) -> str:
    """Return a name like ``256x64x64``."""
    return f"{tiling.block_m}x{tiling.block_n}x{tiling.block_k}"


def tilings(options: argparse.Namespace) -> Iterator[Tiling]:
    """Yield the tilings of ``--tiles``, or else the one of ``--BLK_M`` and so on."""
    sizes = (
        options.tiles or f"{options.BLK_M}x{options.BLK_N or suited_columns(DTYPES[options.datatype])}x{options.BLK_K}"
    )
    for words in sizes.split(","):
        m, n, k = (int(word) for word in words.split("x"))
        yield Tiling(m, n, k, options.gsize_m, options.gemm_sms, options.fewest_steps)


def _about(gemm: GemmAllScatter, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> dict[str, int]:
    compiled = gemm(c, a, b)
    gemm.ctx.barrier()
    programs, pieces = gemm.tiling.schedule(*a.shape[:1], b.shape[1], a.shape[1], gemm.ctx.get_cu_count())
    return {
        "registers": compiled.n_regs,
        "spills": compiled.n_spills,
        "shared": compiled.metadata.shared,
        "programs": programs,
        "pieces": pieces,
    }


def _graph(call: Callable[[], object], calls: int) -> Callable[[], None]:
    """Return a function that replays a device graph of ``calls`` calls."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # Not "global": NCCL's watchdog queries events from its own thread.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(calls):
            call()
    return graph.replay


def _time(gemm: GemmAllScatter, call: Callable[[], object]) -> float:
    """Return the milliseconds on this rank's device."""
    if not torch.cuda.is_available():
        started = time.perf_counter()
        call()
        return (time.perf_counter() - started) * 1e3
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    gemm.ctx.device_barrier()
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def _summary(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "median": statistics.median(ordered),
        "p10": ordered[len(ordered) // 10],
        "p90": ordered[(len(ordered) * 9) // 10],
    }


def _of_all_ranks(value: float, op: dist.ReduceOp.RedOpType, device: torch.device) -> float:
    tensor = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(tensor, op)
    return tensor.item()


def _device_name() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"emulated {triton.runtime.driver.active.get_current_target().arch}"


def worker(rank: int, operation: type[GemmAllScatter], options: argparse.Namespace, port: int | None) -> None:
    """Run one rank. ``port``: of the store of the ranks that this program has started; None under torchrun."""
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(rank)
    else:
        emulator.activate()
    started_here = {}
    if port is not None:
        store = dist.TCPStore("127.0.0.1", port, is_master=False)
        started_here = {"store": store, "rank": rank, "world_size": options.num_ranks}
    backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=60), **started_here)
    with contextlib.ExitStack() as stack:
        stack.callback(dist.destroy_process_group)
        right = run(operation, options)
    raise SystemExit(0 if right else 1)


def parser(description: str, dtypes: Iterable[str] = DTYPES) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark here."""
    parser = argparse.ArgumentParser(description=description.split("\n\n", maxsplit=1)[0])
    parser.add_argument("-m", type=int, default=8192, help="rows of A and C")
    parser.add_argument("-n", type=int, default=4608, help="columns of C, of all ranks together")
    parser.add_argument("-k", type=int, default=36864, help="columns of A, rows of B")
    parser.add_argument("-d", "--debug", action="store_true", help="print the kernel's registers and memory")
    parser.add_argument("-v", "--validate", action="store_true", help="compare with torch, bit for bit")
    parser.add_argument("-t", "--trace_tiles", action="store_true", help="record when tiles are sent")
    parser.add_argument("-b", "--benchmark", action="store_true", help="measure")
    parser.add_argument("--datatype", choices=dtypes, default="fp16", help="of A and B; C is int32 for int8")
    parser.add_argument("--output_file", default="log.json", help="JSON with all results, from rank 0")
    parser.add_argument("--BLK_M", type=int, default=256, help="rows of a tile")
    parser.add_argument("--BLK_N", type=int, help="columns of a tile [64; 128 of fp16 and bf16 on Hopper]")
    parser.add_argument("--BLK_K", type=int, default=64, help="K of a step")
    parser.add_argument("--gsize_m", type=int, default=6, help="rows of tiles per group of the tile order")
    parser.add_argument("--heap_size", type=int, default=2**33, help="bytes of symmetric heap per rank")
    parser.add_argument(
        "--gemm_sms", type=int, default=304, help="largest number of programs; at most one per compute unit"
    )
    parser.add_argument("-r", "--num_ranks", type=int, default=2, help="ranks to start; ignored under torchrun")
    parser.add_argument("--tiles", help="several tiles, one after the other: 128x256x64,256x128x64")
    parser.add_argument(
        "--fewest_steps",
        type=int,
        default=16,
        help="smallest number of K steps in a piece of a split tile; 0: never split",
    )
    parser.add_argument("--rounds", type=int, default=10, help="samples of each time")
    parser.add_argument("--calls", type=int, default=5, help="calls in a sample, on GPUs")
    return parser


def main(operation: type[GemmAllScatter], options: argparse.Namespace) -> None:
    """Start the ranks, or be one of those that torchrun has started. Exits with status 1 if any data is wrong."""
    if "RANK" in os.environ:
        worker(int(os.environ["LOCAL_RANK"]), operation, options, None)
    # Port 0 is any free port; the store stays open here until the ranks have ended.
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    mp.spawn(worker, args=(operation, options, store.port), nprocs=options.num_ranks)
