"""Rank functions for the collectives on GPUs: sizes beyond 2^31, device graphs, streams, groups, handles, equal bits.

All but ``large`` run on the emulated device too, where a device graph is the call itself and a stream is none.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
import triton
import triton.language as tl

from harness import devices
from iris_under_test.ccl import Config, ReduceOp

LARGE_ROWS, LARGE_COLUMNS = (1 << 15) + 24, 1 << 16
"""A few rows more than 2^31 elements, hence bytes of int8."""

DELAY = 4_000_000
"""Clocks of ``torch.cuda._sleep``, some 2 ms: behind the other ranks, and nothing depends on how far."""

_REPLAYS, _STEPS = 4, 3
_TILE = {"block_size_m": 8, "block_size_n": 64}


def setup(info, options):
    device = devices.known(options["device"], options["arch"], ranks_per_gpu=options["ranks_per_gpu"])
    device.activate(info["local_rank"])
    import iris_under_test

    return iris_under_test.iris(options["heap_size"])


# -- the ops -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Op:
    """``call`` (ccl, output, input, world, options); shapes in units of (M, N) for W ranks; ``wanted`` (inputs of all
    ranks, rank) is what its output gets, None for nothing. ``fields`` of Config."""

    call: Callable[..., Any]
    wanted: Callable[[list[torch.Tensor], int], torch.Tensor | None]
    out_parts: str = ""
    in_parts: str = ""
    fields: dict[str, Any] = field(default_factory=dict)


def _sum(inputs: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(inputs).sum(0, dtype=inputs[0].dtype)


def _columns(inputs: list[torch.Tensor], rank: int) -> torch.Tensor:
    width = inputs[0].shape[1] // len(inputs)
    return torch.cat([each[:, rank * width : (rank + 1) * width] for each in inputs], 1)


def _owned(inputs: list[torch.Tensor], rank: int) -> torch.Tensor:
    """Tiles are 8 rows each, and as many as ranks."""
    out = torch.full_like(inputs[0], -1)
    rows = slice(8 * rank, 8 * rank + 8)
    out[rows] = _sum(inputs)[rows]
    return out


def _broadcast(ccl: Any, out: torch.Tensor, source: torch.Tensor, world: int, **options: Any) -> Any:
    out.copy_(source)
    return ccl.broadcast(out, src=1, **options)


def _all_reduce(variant: str) -> Op:
    def call(ccl: Any, out: torch.Tensor, source: torch.Tensor, world: int, **options: Any) -> Any:
        return ccl.all_reduce(out, source, **options)

    return Op(call, lambda inputs, rank: _sum(inputs), fields={"all_reduce_variant": variant})


def _around(ccl: Any, out: torch.Tensor, source: torch.Tensor, world: int, **options: Any) -> Any:
    rank = dist.get_rank()
    return ccl.sendrecv(source, out, dst=(rank + 1) % world, src=(rank - 1) % world, **options)


def _message(ccl: Any, out: torch.Tensor, source: torch.Tensor, world: int, **options: Any) -> Any:
    """Rank 0 sends to the last one."""
    rank = dist.get_rank()
    if rank == 0:
        return ccl.send(source, dst=world - 1, **options)
    return ccl.recv(out, src=0, **options) if rank == world - 1 else None


OPS = {
    "all_gather": Op(
        lambda ccl, out, source, world, **options: ccl.all_gather(out, source, **options),
        lambda inputs, rank: torch.cat(inputs), out_parts="rows",
    ),
    "all_to_all": Op(lambda ccl, out, source, world, **options: ccl.all_to_all(out, source, **options), _columns),
    "reduce_scatter": Op(
        lambda ccl, out, source, world, **options: ccl.reduce_scatter(out, source, op=ReduceOp.SUM, **options), _owned
    ),
    "broadcast": Op(_broadcast, lambda inputs, rank: inputs[1]),
    "reduce": Op(
        lambda ccl, out, source, world, **options: ccl.reduce(out, source, dst=1, **options),
        lambda inputs, rank: _sum(inputs) if rank == 1 else None,
    ),
    "scatter": Op(
        lambda ccl, out, source, world, **options: ccl.scatter(out, source, src=1, **options),
        lambda inputs, rank: inputs[1].chunk(len(inputs))[rank], in_parts="rows",
    ),
    "gather": Op(
        lambda ccl, out, source, world, **options: ccl.gather(out, source, dst=1, **options),
        lambda inputs, rank: torch.cat(inputs) if rank == 1 else None, out_parts="rows",
    ),
    **{f"all_reduce {name}": _all_reduce(name) for name in ("one_shot", "two_shot", "ring", "atomic", "spinlock")},
    "sendrecv": Op(_around, lambda inputs, rank: inputs[rank - 1]),
    "send and recv": Op(_message, lambda inputs, rank: inputs[0] if rank == len(inputs) - 1 else None),
}  # fmt: skip


# -- what is checked ---------------------------------------------------------------------------------------------------


def graphs(iris, payload):
    """Each op captured once and replayed with other data each time, all of it queued before one synchronisation; what
    was wrong. ``payload``: names of ops, whether in Gluon, and by how much what is wanted is wrong."""
    names, use_gluon, wrong = payload
    return {name: printed for name in names if (printed := _replayed(iris, OPS[name], use_gluon, wrong))}


def _replayed(iris: Any, op: Op, use_gluon: bool, wrong: int) -> str:
    rank, world, device = iris.get_rank(), iris.get_num_ranks(), iris.get_device()
    rows = {"": 8 * world, "rows": 8 * world * world}
    out = iris.empty((rows[op.out_parts], 64 * world), dtype=torch.int32)
    source = iris.empty((rows[op.in_parts], 64 * world), dtype=torch.int32)
    # int32, so that sums are exact in every order.
    data = [
        [torch.arange(source.numel(), dtype=torch.int32).view(source.shape) + 1000 * step + 100 * other]
        for step in range(_REPLAYS)
        for other in range(world)
    ]
    inputs = [[data[step * world + other][0] for other in range(world)] for step in range(_REPLAYS)]
    mine = [each[rank].to(device) for each in inputs]
    # One row of tiles, so that the owner of each is known.
    fields = {"block_size_m": 8, "block_size_n": 64 * world if world & (world - 1) == 0 else 64, "comm_sms": 4}
    config = Config(use_gluon=use_gluon, num_warps=4, **fields, **op.fields)

    def call() -> Any:
        return op.call(iris.ccl, out, source, world, async_op=True, config=config)

    replay = _captured(call, device)
    seen = []
    for each in mine:
        source.copy_(each)
        out.fill_(-1)
        replay()
        seen.append(out.clone())
    iris.barrier()
    differences = []
    for step, actual in enumerate(seen):
        expected = op.wanted(inputs[step], rank)
        expected = torch.full(out.shape, -1, dtype=torch.int32) if expected is None else expected + wrong
        if not torch.equal(actual.cpu(), expected):
            differences.append(f"replay {step}: {int((actual.cpu() != expected).sum())} of {actual.numel()} differ")
    for tensor in (out, source):
        iris.free(tensor)
    return "; ".join(differences)


def _captured(call: Callable[[], Any], device: torch.device) -> Callable[[], None]:
    """``call`` as a device graph; compiled and prepared before. Its handle is waited for in the graph."""

    def waited() -> None:
        work = call()
        if work is not None:
            work.wait()

    waited()
    if device.type != "cuda":
        return waited
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        waited()
    return graph.replay


def large(iris, payload):
    """More than 2^31 elements and bytes of int8 in the output, or in both tensors; how many elements differ, by op."""
    use_gluon, wrong = payload
    rank, world, device = iris.get_rank(), iris.get_num_ranks(), iris.get_device()
    buffers = [iris.empty((LARGE_ROWS, LARGE_COLUMNS), dtype=torch.int8) for _ in range(2)]
    config = Config(block_size_m=16, block_size_n=1024, comm_sms=128, num_warps=8, use_gluon=use_gluon)
    columns = torch.arange(LARGE_COLUMNS, device=device, dtype=torch.int32)

    def rows_of(rows: torch.Tensor, other: torch.Tensor | int) -> torch.Tensor:
        """Return the values of rank ``other`` in these rows: at most 30, so that sums of four ranks are exact."""
        return ((rows[:, None] * 7 + columns[None, :] * 11 + (columns[None, :] >> 8) + other * 13) % 31).to(torch.int8)

    def fill(tensor: torch.Tensor) -> None:
        for start in range(0, len(tensor), 1024):
            part = tensor[start : start + 1024]
            part.copy_(rows_of(torch.arange(start, start + len(part), device=device), rank))

    def differing(tensor: torch.Tensor, wanted: Callable[[torch.Tensor], torch.Tensor]) -> int:
        total = 0
        for start in range(0, len(tensor), 1024):
            part = tensor[start : start + 1024]
            total += int((part != wanted(torch.arange(start, start + len(part), device=device)) + wrong).sum())
        return total

    output, source = buffers
    each = LARGE_ROWS // world
    fill(source)
    output.fill_(-1)
    iris.ccl.all_gather(output[: each * world], source[:each], config=config)
    actual = {
        "all_gather": differing(output[: each * world], lambda rows: rows_of(rows % each, (rows // each)[:, None]))
    }

    output.fill_(-1)
    iris.ccl.all_to_all(output, source, config=config)
    width = LARGE_COLUMNS // world

    def swapped(rows: torch.Tensor) -> torch.Tensor:
        mine = slice(rank * width, (rank + 1) * width)
        return torch.cat([rows_of(rows, other)[:, mine] for other in range(world)], 1)

    actual["all_to_all"] = differing(output, swapped)
    for variant in ("one_shot", "two_shot"):
        output.fill_(-1)
        iris.ccl.all_reduce(output, source, config=Config(**{**vars(config), "all_reduce_variant": variant}))
        actual[f"all_reduce {variant}"] = differing(
            output, lambda rows: torch.stack([rows_of(rows, other) for other in range(world)]).sum(0, dtype=torch.int8)
        )
    for tensor in buffers:
        iris.free(tensor)
    return actual


def two_groups(iris, payload):
    """An op of the world that the last rank holds up, on one stream, and 20 ops of pairs of ranks on another, which are
    not: (the pairs' were complete while the world's was not, all were right)."""
    rank, world = iris.get_rank(), iris.get_num_ranks()
    pairs = [dist.new_group([first, first + 1]) for first in range(0, world, 2)]
    mine, place = pairs[rank // 2], rank % 2
    config = Config(comm_sms=8)
    total, ones = (iris.full((64, 64), value, dtype=torch.int32) for value in (-1, 1))
    both, own = (iris.full((rows, 64), -1, dtype=torch.int32) for rows in (16, 8))
    for warm in (iris.ccl.all_reduce(total, ones, config=config), iris.ccl.all_gather(both, own, mine, config=config)):
        assert warm is None or warm.is_completed()
    total.fill_(-1)
    both[::8, 0].clone()  # Loaded now: CUDA loads no kernel while one spins.
    iris.barrier()
    one, other = torch.cuda.Stream(), torch.cuda.Stream()
    seen = []
    with _held(one, on=rank == world - 1):
        with torch.cuda.stream(one):
            slow = iris.ccl.all_reduce(total, ones, async_op=True, config=config)
        with torch.cuda.stream(other):
            for step in range(20):
                own.fill_(100 * step + rank)
                quick = iris.ccl.all_gather(both, own, mine, async_op=True, config=config)
                seen.append(both[::8, 0].clone())
            quick.synchronize()
        beside = not slow.is_completed()
    slow.synchronize()
    iris.barrier()
    expected = [[100 * step + rank - place, 100 * step + rank - place + 1] for step in range(20)]
    right = [each.tolist() for each in seen] == expected and bool((total == world).all())
    return beside, right


def overlapping_groups(iris, payload):
    """A new group behind others of which its members have had different numbers: whether each got what it should."""
    rank, right = iris.get_rank(), []
    rows = iris.empty((iris.get_num_ranks(), 64), dtype=torch.int32)  # allocations are the world's
    mine = torch.full((1, 64), rank, dtype=torch.int32, device=iris.get_device())
    for ranks in ([0, 1, 3], [0, 2], [1, 3], [2, 3]):
        group = dist.new_group(ranks)
        if rank not in ranks:
            continue
        for protocol in ("simple", "ll"):
            got = rows[: len(ranks)].fill_(-1)
            iris.ccl.all_gather(got, mine, group=group, config=Config(comm_sms=2, protocol=protocol))
            right.append(got[:, 0].tolist() == ranks)
    total = iris.zeros((64, 64), dtype=torch.int32)
    iris.ccl.all_reduce(total, total, config=Config(all_reduce_variant="ring"))  # Its workspace is the world's.
    return right


@contextlib.contextmanager
def _held(stream: torch.cuda.Stream, on: bool) -> Iterator[None]:
    """Delay work that is enqueued on ``stream`` inside until every rank's host is at the end, if ``on``."""
    hosts, gate = dist.new_group(backend="gloo"), torch.zeros(1, dtype=torch.int32, pin_memory=True)
    opened = torch.cuda.Event()
    try:
        if on:
            with torch.cuda.stream(stream):
                _wait_for[(1,)](gate)
                opened.record()
        yield
        dist.barrier(hosts)
    finally:
        gate.fill_(1)
        opened.synchronize()


@triton.jit
def _wait_for(gate):
    """One program spins until the host has written 1 to ``gate``, which is pinned host memory."""
    while tl.load(gate, volatile=True) == 0:
        pass


def equal_bits(iris, payload):
    """Reductions whose sums round, three times each, once behind a delay of one rank: of each, its different hashes on
    this rank, and whether they are the bits of a sum in the members' order, rounded once."""
    use_gluon, rounds = payload
    rank, world, device = iris.get_rank(), iris.get_num_ranks(), iris.get_device()
    shape, actual = (8 * world, 256), {}
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        drawn = [_drawn(shape, dtype, other) for other in range(world)]
        ordered = drawn[0].float()
        for other in drawn[1:]:
            ordered = ordered + other.float()
        ordered = ordered.to(dtype)
        source, out = iris.empty(shape, dtype=dtype), iris.empty(shape, dtype=dtype)
        source.copy_(drawn[rank])
        for name in ("all_reduce one_shot", "all_reduce two_shot", "all_reduce ring", "reduce", "reduce_scatter"):
            op = OPS[name]
            config = Config(**_TILE, comm_sms=16, use_gluon=use_gluon, **op.fields)
            hashes = set()
            for step in range(rounds):
                out.copy_(ordered)
                if step == 1 and rank == 0 and device.type == "cuda":
                    torch.cuda._sleep(DELAY)
                op.call(iris.ccl, out, source, world, async_op=True, config=config)
                got = out.clone()
                iris.barrier()
                hashes.add(hashlib.sha256(got.cpu().view(torch.uint8).numpy().tobytes()).hexdigest())
            actual[f"{name} {dtype}"] = sorted(hashes), torch.equal(got.cpu(), ordered)
        for tensor in (source, out):
            iris.free(tensor)
    return actual


def _drawn(shape: tuple[int, int], dtype: torch.dtype, rank: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(rank)).to(dtype)


def handles(iris, payload):
    """A handle before and after its op, which the last rank holds up: (complete at once, complete after synchronize,
    what a stream saw that waited for the handle). ``payload``: whether it waited; if not, as planted, it is too early.
    """
    rank, world = iris.get_rank(), iris.get_num_ranks()
    rows, mine = iris.full((world, 256), -1, dtype=torch.int32), iris.full((1, 256), rank, dtype=torch.int32)
    iris.ccl.all_gather(rows, mine)
    rows.fill_(-1)
    rows[:, 0].clone()  # Loaded now: CUDA loads no kernel while one spins.
    iris.barrier()
    side = torch.cuda.Stream()
    with _held(torch.cuda.current_stream(), on=rank == world - 1):
        work = iris.ccl.all_gather(rows, mine, async_op=True)
        early = work.is_completed()
        with torch.cuda.stream(side):
            if payload:
                work.wait()
            seen = rows[:, 0].clone()
        if not payload:
            side.synchronize()
    side.synchronize()
    work.synchronize()
    late = work.is_completed()
    iris.barrier()
    return early, late, seen.tolist()


def guide(iris, payload):
    """Everything that docs/collectives.md shows, its device graph included."""
    from tests.examples.test_guides import COLLECTIVES, blocks, execute

    execute("\n\n".join(blocks(COLLECTIVES)), iris)
