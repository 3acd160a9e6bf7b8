"""A kernel that gives each of its tiles to a tile-level collective, and what the ranks do with it.

Each rank's matrix is "given". Collectives that wait for flags read what the kernel has first stored as "shared", so
that who does not wait reads poison. Calls follow one another on the device: a device_barrier before each, behind the
new input, and one after it.
"""

import importlib
from functools import cache
from types import SimpleNamespace

import torch
import triton
import triton.language as tl

from fixtures.findings import Findings
from harness.cases import FLOATS, of_name, payload, rounds_needed
from harness.cases.tile import TILE_MOVES
from harness.oracles import exchange, gathered, reduced
from harness.oracles.heap import starts

FLAGGED = ("all_reduce_one_shot", "all_reduce_two_shot", "reduce_scatter")
IN_PLACE_SUMS = ("all_reduce_atomic", "all_reduce_spinlock")


@triton.jit
def published_ready(place, view, locks, ctx):
    """Sets the flag of a tile as the published text has it; what other wavefronts stored is another matter."""
    tl.debug_barrier()
    number = place.pid_m * tl.cdiv(view.N, place.block_n) + place.pid_n
    tl.atomic_xchg(locks + number, 1, sem="release", scope="sys")


@triton.jit(do_not_specialize=["m", "root"])
def tile_kernel(
    DeviceContext: tl.constexpr, TileView: tl.constexpr, Tile: tl.constexpr, make_tensor_view: tl.constexpr,
    ready: tl.constexpr, function: tl.constexpr, context_tensor, given, shared, target, locks,
    m, n, columns, given_m, given_n, target_m, target_n, root,
    RANK: tl.constexpr, RANKS: tl.constexpr, OP: tl.constexpr, WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Programs take the tiles of the (m, n) matrix ``given`` in turns. ``columns``: of all ranks. WIDE: by methods."""
    ctx = DeviceContext.initialize(context_tensor, RANK, RANKS)
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    if OP == "all_gather_rows":
        output = make_tensor_view(target, RANKS * m, n, target_m, target_n)
    elif OP == "all_gather_columns" or OP == "all_to_all":
        output = make_tensor_view(target, m, columns, target_m, target_n)
    elif OP == "gather":
        output = make_tensor_view(target, tiles_m * BLOCK_M, tiles_n * BLOCK_N, target_m, target_n)
    else:
        output = make_tensor_view(target, m, n, target_m, target_n)
    if OP == "all_to_all":
        source = make_tensor_view(given, m, columns, given_m, given_n)
    else:
        source = make_tensor_view(given, m, n, given_m, given_n)

    for number in range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        place = TileView(number // tiles_n, number % tiles_n, BLOCK_M, BLOCK_N)
        here, mask = source.tile_ptr(place)
        if OP == "all_to_all":
            if WIDE:
                ctx.all_to_all(place, source, output, n)
            else:
                function(place, source, output, n, ctx)
        elif OP == "gather":
            if WIDE:  # noqa: SIM108 - Triton takes no method of an aggregate from an expression
                block = ctx.gather(place, source, root)
            else:
                block = function(place, source, root, ctx)
            there, inside = output.tile_ptr(place)
            tl.store(there, block, mask=inside)
        elif OP == "all_reduce_ring":
            if WIDE:
                ctx.all_reduce_ring(place, source, output)
            else:
                function(place, source, output, ctx)
        else:
            tile = Tile(number // tiles_n, number % tiles_n, BLOCK_M, BLOCK_N, tl.load(here, mask=mask))
            staged = make_tensor_view(shared, m, n, given_m, given_n)
            if OP == "all_gather_rows":
                if WIDE:
                    ctx.all_gather(tile, output, 0)
                else:
                    function(tile, output, 0, ctx)
            elif OP == "all_gather_columns":
                if WIDE:
                    ctx.all_gather(tile, output, 1)
                else:
                    function(tile, output, 1, ctx)
            elif OP == "all_reduce_atomic":
                if WIDE:
                    ctx.all_reduce_atomic(tile, output)
                else:
                    function(tile, output, ctx)
            elif OP == "all_reduce_spinlock":
                if WIDE:
                    ctx.all_reduce_spinlock(tile, output, locks)
                else:
                    function(tile, output, locks, ctx)
            else:
                there, mask = staged.tile_ptr(place)
                tl.store(there, tile.data, mask=mask)
                if WIDE:
                    ready(place, staged, locks, ctx)
                else:
                    published_ready(place, staged, locks, ctx)
                if OP == "reduce_scatter":
                    if WIDE:
                        ctx.reduce_scatter(place, staged, output, locks)
                    else:
                        function(place, staged, output, locks, ctx)
                elif OP == "all_reduce_one_shot":
                    if WIDE:
                        ctx.all_reduce_one_shot(place, staged, output, locks)
                    else:
                        function(place, staged, output, locks, ctx)
                else:
                    if WIDE:
                        ctx.all_reduce_two_shot(place, staged, output, locks)
                    else:
                        function(place, staged, output, locks, ctx)


@cache
def names_of(package, op):
    """What the kernel is given of the library: the types, what sets a flag if it has that, and the function of
    ``op``."""
    x = importlib.import_module(f"{package}.x")
    function = getattr(x, "all_gather" if op.startswith("all_gather") else op)
    return x.TileView, x.Tile, x.make_tensor_view, getattr(x, "set_ready", published_ready), function


anywhere = triton.jit(
    tile_kernel.fn, do_not_specialize=["m", "root", "n", "columns", "given_m", "given_n", "target_m", "target_n"]
)
"""The kernel compiled for sizes and strides of any kind."""


def launch(env, case, iris, given, shared, target, locks):
    """``given`` and ``target`` are matrices, of any strides."""
    kernel = tile_kernel if case.wide else anywhere
    kernel[(case.programs or max(1, case.tiles),)](
        env.under_test.triton_context, *names_of(env.under_test.name, case.op), iris.get_device_context(),
        given, shared, target, locks, case.m, case.n, env.world_size * case.n, *given.stride(), *target.stride(),
        case.root, env.rank, env.world_size, case.op, case.wide, case.block_m, case.block_n,
        num_warps=env.warps(case.warps),
    )  # fmt: skip


def run(env, case):
    """All calls of a case; what moves is told apart from everything else over as many rounds as its type needs."""
    found = None
    given, _ = shapes(case, env.world_size)
    codes = case.calls * env.world_size * given[0] * given[1]
    for round_ in range(rounds_needed(case.dtype, codes) if case.op in TILE_MOVES else 1):
        found = _round(env, case, round_) or found
    return found


def _round(env, case, round_):
    image, found = env.image, Findings(env.rank)
    image.reset()
    heap = claim(env, case)
    wanted, before = [], None
    for call in range(case.calls):
        mine = content(case, env.rank, env.world_size, round_, call)
        wanted.append(result(env, case, mine, before))
        before = wanted[-1]
    outputs = []
    env.settle()
    with env.acting():
        for call in range(case.calls):
            env.late(case.skewed, case.skew_ms)
            heap.given.copy_(content(case, env.rank, env.world_size, round_, call))
            if case.op in IN_PLACE_SUMS:
                heap.target.zero_()
            heap.locks.zero_()
            env.iris.device_barrier()
            launch(env, case, env.iris, heap.given, heap.shared, heap.target, heap.locks)
            env.iris.device_barrier()
            outputs.append(heap.target.clone())
    env.settle()
    for call, (output, right) in enumerate(zip(outputs[:-1], wanted[:-1], strict=False)):
        got = torch.where(right.written, output.cpu(), right.values)
        found.same(f"the output of call {call}", got, right.values)
    expect(env, case, heap, mine, wanted[-1])
    return image.difference() or found.first


def shapes(case, ranks):
    """Rows and columns of "given" and "target"."""
    wide = (case.m, ranks * case.n)
    whole = (-(-case.m // case.block_m) * case.block_m, -(-case.n // case.block_n) * case.block_n)
    target = {"all_gather_rows": (ranks * case.m, case.n), "all_gather_columns": wide, "all_to_all": wide,
              "gather": whole}.get(case.op, (case.m, case.n))  # fmt: skip
    return wide if case.op == "all_to_all" else (case.m, case.n), target


def claim(env, case):
    """Regions of the heap, and the matrices in them."""
    dtype, (given, target) = of_name(case.dtype), shapes(case, env.world_size)
    sizes = {
        "given": (_span(*given, case.in_pad, case.turned), dtype),
        "shared": (_span(*given, case.in_pad, case.turned) if case.op in FLAGGED else 1, dtype),
        "target": (_span(*target, case.out_pad, case.turned), dtype),
        "locks": (max(1, case.tiles), torch.int32),
    }
    places = starts(1024, [count * kind.itemsize for count, kind in sizes.values()])
    regions = {
        name: env.image.claim(name, place, *size) for (name, size), place in zip(sizes.items(), places, strict=True)
    }
    flat = {name: env.image.tensor(region) for name, region in regions.items()}
    return SimpleNamespace(
        regions=regions,
        given=_matrix(flat["given"], *given, case.in_pad, case.turned),
        shared=flat["shared"],
        target=_matrix(flat["target"], *target, case.out_pad, case.turned),
        locks=flat["locks"],
    )


def expect(env, case, heap, mine, right):
    """Tell the image what the regions must hold after the last call."""
    given, target = shapes(case, env.world_size)

    def part(name, shape, pad):
        return _matrix(env.image.expected(heap.regions[name]), *shape, pad, case.turned)

    part("given", given, case.in_pad).copy_(mine)
    if case.op in FLAGGED:
        part("shared", given, case.in_pad).copy_(mine)
    output = part("target", target, case.out_pad)
    output.copy_(torch.where(right.written, right.values, output))
    env.image.expected(heap.regions["locks"]).fill_(int(case.op in FLAGGED and case.tiles > 0))


def _span(rows, columns, pad, turned):
    """Elements of a matrix with its padding; at least one, for something must have the address."""
    return max(1, columns * (rows + pad) if turned else rows * (columns + pad))


def _matrix(flat, rows, columns, pad, turned):
    return flat.as_strided((rows, columns), (1, rows + pad) if turned else (columns + pad, 1))


def content(case, rank, ranks, round_, call):
    """What ``rank`` gives in a call, as a matrix."""
    (rows, columns), _ = shapes(case, ranks)
    count = rows * columns
    if case.op in TILE_MOVES:
        flat = payload(case.dtype, count, rank=rank, ranks=ranks, round_=round_, repetition=call)
    else:
        flat = addends(case.dtype, count, rank, ranks, call, rounded_once=case.op not in IN_PLACE_SUMS)
    return flat.view(rows, columns)


def addends(dtype, count, rank, ranks, call, rounded_once):
    """Numbers of which every sum is exact: integers use all their bits, and wrap.

    With ``rounded_once`` and more than two ranks, sums of 16-bit floats are exact in float32 only: rank 0 gives a
    number to which their type cannot add 1, and the last rank takes it away.
    """
    mixed = torch.arange(count, dtype=torch.int64) * 0x9E3779B1 + (rank + 1) * 0x85EBCA6B * (call * 64 + 1)
    mixed ^= mixed >> 15
    if dtype not in FLOATS:
        return mixed.to(of_name(dtype))
    if dtype in ("fp32", "fp64"):
        return (mixed % (1 << 20)).to(of_name(dtype))
    small = mixed % 17 - 8
    if rounded_once and ranks > 2 and rank in (0, ranks - 1):
        small = torch.full_like(small, 4096 if dtype == "fp16" else 512) * (1 if rank == 0 else -1)
    return small.to(of_name(dtype))


def result(env, case, mine, before):
    """What torch.distributed gives for everybody's ``mine``, and which elements of the output are ``written``."""
    me, ranks, dtype = env.rank, env.world_size, of_name(case.dtype)
    _, shape = shapes(case, ranks)
    written = torch.ones(shape, dtype=torch.bool)
    if case.op in ("all_gather_rows", "all_gather_columns", "gather"):
        parts = gathered(mine, members=ranks).view(ranks, case.m, case.n)
        if case.op == "gather":
            values = torch.zeros(shape, dtype=dtype)
            values[: case.m, : case.n] = parts[case.root]
        else:
            values = torch.cat(list(parts), dim=0 if case.op == "all_gather_rows" else 1)
    elif case.op == "all_to_all":
        pairs = {(one, other) for one in range(ranks) for other in range(ranks)}
        sent = [mine[:, to * case.n : (to + 1) * case.n].contiguous() for to in range(ranks)]
        received = exchange(sent, pairs, rank=me, ranks=ranks)
        values = torch.cat([received[by].view(case.m, case.n) for by in range(ranks)], dim=1)
    else:
        values = reduced(mine.float() if dtype.itemsize == 2 else mine, "sum").to(dtype)
        if case.op == "reduce_scatter":
            written = owned(case, me, ranks)
    if before is not None:
        values = torch.where(written, values, before.values)
    return SimpleNamespace(values=values, written=written)


def owned(case, rank, ranks):
    """The elements of the tiles that ``rank`` owns: an equal share of whole tiles, and the rest is the last rank's."""
    rows = torch.arange(case.m)[:, None] // case.block_m
    columns = torch.arange(case.n)[None, :] // case.block_n
    number, share = rows * -(-case.n // case.block_n) + columns, case.tiles // ranks
    last = rank == ranks - 1
    return (number >= rank * share) & (last | (number < (rank + 1) * share))
