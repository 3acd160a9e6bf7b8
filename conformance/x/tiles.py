"""A kernel that calls a tile-level collective for each of its tiles, and the rank function that runs it.

Each rank's matrix is "given". For collectives that wait for flags, the kernel first stores each tile in "shared", and
the collective reads it there, so that a collective that does not wait reads poison. Calls are ordered on the device: a
device_barrier between the new input and the call, and one after the call.
"""

import contextlib
from types import SimpleNamespace

import torch
import triton
import triton.language as tl

from conformance.isa.builds import check_builds
from conformance.isa.contract import contracts
from conformance.support.steps import Stops
from conformance.x.operations import TILES
from fixtures.findings import Findings
from harness.cases import FLOATS, of_name, payload, rounds_needed
from harness.oracles.heap import starts

_ANYWHERE = contextlib.nullcontext()


@triton.jit
def published_ready(place, view, locks, ctx):
    """Set the flag of a tile as the published Iris API describes it, which does not order other wavefronts' stores."""
    tl.debug_barrier()
    number = place.pid_m * tl.cdiv(view.N, place.block_n) + place.pid_n
    tl.atomic_xchg(locks + number, 1, sem="release", scope="sys")


@triton.jit(do_not_specialize=["m", "root", "target_rows"])
def tile_kernel(
    DeviceContext: tl.constexpr, TileView: tl.constexpr, Tile: tl.constexpr, make_tensor_view: tl.constexpr,
    ready: tl.constexpr, function: tl.constexpr, call: tl.constexpr, context_tensor, given, shared, target, locks,
    m, n, given_columns, target_rows, target_columns, given_m, given_n, target_m, target_n, root,
    RANK: tl.constexpr, RANKS: tl.constexpr, METHODS: tl.constexpr, FLAGS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Call the collective for each tile of the (m, n) matrix ``given``; programs process the tiles in turn.

    With FLAGS, the kernel first stores a tile in ``shared`` and sets its flag: the next or the previous tile, which
    another program processes, so that a program has to wait for its own rank too. All programs must run at once.
    """
    ctx = DeviceContext.initialize(context_tensor, RANK, RANKS)
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    source = make_tensor_view(given, m, given_columns, given_m, given_n)
    staged = make_tensor_view(shared, m, n, given_m, given_n)
    output = make_tensor_view(target, target_rows, target_columns, target_m, target_n)
    for number in range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        place = TileView(number // tiles_n, number % tiles_n, BLOCK_M, BLOCK_N)
        here, mask = source.tile_ptr(place)
        tile = Tile(number // tiles_n, number % tiles_n, BLOCK_M, BLOCK_N, tl.load(here, mask=mask))
        if FLAGS:
            swapped = (tl.num_programs(0) > 1) & ((number ^ 1) < tiles_m * tiles_n)
            filled = tl.where(swapped, number ^ 1, number)
            part = TileView(filled // tiles_n, filled % tiles_n, BLOCK_M, BLOCK_N)
            here, mask = source.tile_ptr(part)
            there, mask = staged.tile_ptr(part)
            tl.store(there, tl.load(here, mask=mask), mask=mask)
            if METHODS:
                ready(part, staged, locks, ctx)
            else:
                published_ready(part, staged, locks, ctx)
        call(function, METHODS, place, tile, source, staged, output, locks, n, root, ctx)


def names_of(under_test, op):
    """Return the kernel's arguments from the library: its types, the function that sets a flag (if the library has
    one), the function of ``op``, and the function that calls it."""
    x = under_test.x
    ready, function = getattr(x, "set_ready", published_ready), getattr(x, TILES[op].function)
    return x.TileView, x.Tile, x.make_tensor_view, ready, function, TILES[op].call


anywhere = triton.jit(
    tile_kernel.fn,
    do_not_specialize=[
        "m",
        "root",
        "n",
        "given_columns",
        "target_rows",
        "target_columns",
        "given_m",
        "given_n",
        "target_m",
        "target_n",
    ],
)
"""The kernel without specialization on sizes and strides."""


def launch(env, case, iris, given, shared, target, locks, *, target_shape=None, **options):
    """Launch the case's kernel once, with Triton's ``options``. ``given`` and ``target`` have any strides.

    ``target_shape``: what the kernel takes to be the target's shape, in place of that of the case.
    """
    kernel, op = tile_kernel if case.aligned else anywhere, TILES[case.op]
    (_, given_columns), shape = op.shapes(case, env.world_size)
    kernel[(case.programs or max(1, case.tiles),)](
        env.under_test.triton_context, *names_of(env.under_test, case.op), iris.get_device_context(),
        given, shared, target, locks, case.m, case.n, given_columns, *(target_shape or shape), *given.stride(),
        *target.stride(), case.root, env.rank, env.world_size, case.methods, op.flags, case.block_m, case.block_n,
        num_warps=env.warps(case.warps), **options,
    )  # fmt: skip


def moves(ranks, case):
    """Return whether elements of the case reach another rank."""
    return ranks > 1 and case.m > 0 and case.n > 0


def run(env, case, confined=False):
    """Run a case in as many rounds as its element type needs to distinguish all moved elements; return a difference, or
    a fault in the code of its kernels. ``confined``: on the emulated device they can access only their tensors."""
    mismatch = None
    op = TILES[case.op]
    (rows, columns), _ = op.shapes(case, env.world_size)
    codes = case.calls * env.world_size * rows * columns
    for round_ in range(1 if op.sums else rounds_needed(case.dtype, codes)):
        mismatch = _round(env, case, round_, confined=confined) or mismatch
    return mismatch or check_code(env, case)


def check_code(env, case):
    """Return the first fault in the code that this case has launched so far, or None; see ``check_builds``.

    A kernel of several wavefronts that sets a tile's flag as the published API describes it is not read: it keeps no
    contract.
    """
    if env.fault is not None or (TILES[case.op].flags and not case.methods and case.warps > 1):
        return None
    allowed = [contracts()[f"tile {case.op}"]]
    # Each rank has a kernel of its own, with the rank as a constant.
    return check_builds(env, f"tile {case.op}", allowed, env.rank, env.world_size, shared=False)


def run_stopping(env, case, stopping):
    """Let one rank stop inside its kernels, the barrier after them among these; see ``conformance.support.steps``."""
    return _round(env, case, 0, Stops(env, stopping))


def _round(env, case, round_, stops=None, confined=False):
    image, findings = env.image, Findings(env.rank)
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
            if TILES[case.op].adds_to_output:
                heap.target.zero_()
            heap.locks.copy_(unset(case, heap.locks.numel(), call))
            env.iris.device_barrier()
            inside = env.confined([heap.given, heap.shared, heap.target, heap.locks]) if confined else _ANYWHERE
            with stops.call(call) if stops else inside:
                launch(env, case, env.iris, heap.given, heap.shared, heap.target, heap.locks)
                env.iris.device_barrier()
            outputs.append(heap.target.clone())
    if stops:
        stops.end(findings)
    env.settle()
    for call, (output, right) in enumerate(zip(outputs[:-1], wanted[:-1], strict=False)):
        got = torch.where(right.written, output.cpu(), right.values)
        findings.same(f"the output of call {call}", got, right.values)
    expect(env, case, heap, mine, wanted[-1])
    return image.difference() or findings.first


def unset(case, count, call):
    """Return the locks before a call: 0, but if they are flags of tiles every second one is 2, as little ready as 0."""
    others = torch.arange(call, call + count, dtype=torch.int32) % 2 * 2
    return others if TILES[case.op].flags and case.tiles else torch.zeros_like(others)


def claim(env, case):
    """Claim regions of the heap; return them with the matrices in them."""
    op, dtype = TILES[case.op], of_name(case.dtype)
    given, target = op.shapes(case, env.world_size)
    sizes = {
        "given": (_span(*given, case.in_pad, case.turned), dtype),
        "shared": (_span(*given, case.in_pad, case.turned) if op.flags else 1, dtype),
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
    """Set the expected contents of the regions after the last call."""
    op = TILES[case.op]
    given, target = op.shapes(case, env.world_size)

    def part(name, shape, pad):
        return _matrix(env.image.expected(heap.regions[name]), *shape, pad, case.turned)

    part("given", given, case.in_pad).copy_(mine)
    if op.flags:
        part("shared", given, case.in_pad).copy_(mine)
    output = part("target", target, case.out_pad)
    output.copy_(torch.where(right.written, right.values, output))
    env.image.expected(heap.regions["locks"]).fill_(int(op.flags and case.tiles > 0))


def _span(rows, columns, pad, turned):
    """Return the number of elements of a matrix with its padding; at least one, so that it has an address."""
    return max(1, columns * (rows + pad) if turned else rows * (columns + pad))


def _matrix(flat, rows, columns, pad, turned):
    return flat.as_strided((rows, columns), (1, rows + pad) if turned else (columns + pad, 1))


def content(case, rank, ranks, round_, call):
    """Return the input matrix of ``rank`` in a call."""
    op = TILES[case.op]
    (rows, columns), _ = op.shapes(case, ranks)
    count = rows * columns
    if op.sums:
        flat = addends(case.dtype, count, rank, ranks, call, rounded_once=not op.adds_to_output)
    else:
        flat = payload(case.dtype, count, rank=rank, ranks=ranks, round_=round_, repetition=call)
    return flat.view(rows, columns)


def addends(dtype, count, rank, ranks, call, rounded_once):
    """Return numbers whose sums are exact. Integers use all their bits, and their sums wrap.

    With ``rounded_once`` and more than two ranks, sums of 16-bit floats are exact only in float32: rank 0 adds a number
    so large that their type cannot represent it plus 1, and the last rank subtracts it.
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
    """Return the oracle's result for all ranks' ``mine``, and the mask of the elements that are ``written``."""
    op = TILES[case.op]
    values = op.reference(case, mine, env.rank, env.world_size)
    written = torch.ones(values.shape, dtype=torch.bool)
    if op.owned is not None:
        written = op.owned(case, env.rank, env.world_size)
    if before is not None:
        values = torch.where(written, values, before.values)
    return SimpleNamespace(values=values, written=written)
