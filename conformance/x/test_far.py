"""Views of more than 2^31 elements: the offset of a tile needs 64 bits.

``far``: all_gather between views whose last rows are beyond 2 and 4 GiB, on both sides. ``long``: all_gather of 16
elements of each rank into a view of 2^31 rows, or columns, a number that is a 64-bit argument. ``ends``: all_to_all
between views of which the last rank's block starts at column 2^31 or after it, where three ranks or more show a product
of 32 bits; and all_reduce_spinlock on a view of 2^31 columns, where the number of a lock in the second row depends on
them. The heap is sparse: only the elements, and the
addresses that a 31- or 32-bit product would give, are touched.
"""

import torch
import triton
import triton.language as tl

from conformance.support.cases import HostCase
from conformance.support.instances import release
from conformance.x.cases import TileCase
from conformance.x.tiles import launch
from fixtures import judged
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import contribution, payload
from harness.oracles import exchange, gathered, reduced

GIB, PAGE = 1 << 30, 4096
ROWS, COLUMNS, TILE = 4, 16, 16


def run(env, case):
    me, ranks = env.rank, env.world_size
    findings = Findings(me)
    iris = env.under_test.iris(heap_size=5 * GIB + (3 << 20))
    heap = iris.empty(5 * GIB + (1 << 20), dtype=torch.int8)
    target, places = _spread(heap, ROWS * ranks)
    given, _ = _spread(heap[512:], ROWS)
    watched = sorted({place % size for place in places for size in (2 * GIB, 4 * GIB)} - places)
    for place in watched:
        heap[place : place + COLUMNS].fill_(-99)
    target.fill_(-98)
    mine = payload("int8", ROWS * COLUMNS, rank=me, ranks=ranks).view(ROWS, COLUMNS)
    given.copy_(mine)
    wanted = gathered(mine)
    env.settle()
    with env.acting():
        launch(env, TileCase("all_gather_rows", "int8", ROWS, COLUMNS), iris, given, given, target, given)
    env.settle()
    findings.same("the output", target.contiguous(), wanted)
    for place in watched:
        got = heap[place : place + COLUMNS]
        findings.same(f"{COLUMNS} bytes at {place:#x}, which must stay unchanged", got, torch.full_like(got, -99))
    env.settle()
    release(iris)
    return findings.first


def run_long(env, case):
    """Gather 16 elements of each rank along a dimension that has at least 2^31."""
    (rows,) = case.arguments
    me, ranks, findings = env.rank, env.world_size, Findings(env.rank)
    each = -(-(2**31) // ranks)
    iris = env.under_test.iris(heap_size=each * ranks + (1 << 20))
    mine = payload("int8", TILE, rank=me, ranks=ranks)
    given, target = iris.empty(TILE, dtype=torch.int8), iris.empty(each * ranks, dtype=torch.int8)
    given.copy_(mine)
    parts = [target[rank * each : rank * each + TILE] for rank in range(ranks)]
    for part in parts:
        part.fill_(-98)
    env.settle()
    shape, strides = ((TILE, 1), (1, 1)) if rows else ((1, TILE), (TILE, 1))
    name = "all_gather_rows" if rows else "all_gather_columns"
    place, result = given.as_strided(shape, strides), target.view((-1, 1) if rows else (1, -1))
    tile = TileCase(name, "int8", *shape, block_m=TILE, block_n=TILE)
    with env.acting():
        launch(env, tile, iris, place, place, result, place, target_shape=result.shape)
    env.settle()
    findings.same("the elements of all ranks", torch.cat(parts), gathered(mine))
    env.settle()
    release(iris)
    return findings.first


@triton.jit(do_not_specialize=["columns", "each", "width"])
def at_the_far_end(
    DeviceContext: tl.constexpr, TileView: tl.constexpr, Tile: tl.constexpr, make_tensor_view: tl.constexpr,
    all_to_all: tl.constexpr, all_reduce: tl.constexpr, context_tensor, given, received, terms, sums, locks,
    columns, each, width, RANK: tl.constexpr, RANKS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Exchange the first BLOCK elements of each rank's block of ``each`` columns, in views of one row; and add the
    first BLOCK elements of each of two rows of ``width`` columns."""
    ctx = DeviceContext.initialize(context_tensor, RANK, RANKS)
    source = make_tensor_view(given, 1, columns, columns, 1)
    output = make_tensor_view(received, 1, columns, columns, 1)
    all_to_all(TileView(0, 0, 1, BLOCK), source, output, each, ctx)
    total = make_tensor_view(sums, 2, width, width, 1)
    for row in range(2):
        here = terms + row * BLOCK + tl.arange(0, BLOCK)
        all_reduce(Tile(row, 0, 1, BLOCK, tl.load(here)[None, :]), total, locks, ctx)


def run_ends(env, case):
    """The last rank's block of an all_to_all starts at column 2^31 or after it; the lock of an all_reduce_spinlock in
    the second row has the number 2^27. The locks are the heap's first allocation, so that the lock of a number that is
    too small lies before the heap."""
    me, ranks, findings = env.rank, env.world_size, Findings(env.rank)
    each, width = -(-(2**31) // max(1, ranks - 1)), 2**31
    columns = each * ranks
    iris = env.under_test.iris(heap_size=2 * columns + width + 4 * width // TILE + (2 << 20))
    locks = iris.empty(width // TILE + 1, dtype=torch.int32)
    given, received = (iris.empty(columns, dtype=torch.int8) for _ in range(2))
    terms, heap = iris.empty(2, TILE, dtype=torch.int8), iris.empty(width + TILE, dtype=torch.int8)
    sums = heap.as_strided((2, TILE), (width, 1))
    mine = payload("int8", ranks * TILE, rank=me, ranks=ranks).view(ranks, TILE)
    summand = contribution("sum", "int8", 2 * TILE, member=me, members=ranks).view(2, TILE)
    parts = [received[rank * each : rank * each + TILE] for rank in range(ranks)]
    for rank, part in enumerate(parts):
        given[rank * each : rank * each + TILE].copy_(mine[rank])
        part.fill_(-98)
    terms.copy_(summand)
    for zero in (sums, locks[0], locks[-1]):
        zero.zero_()
    pairs = {(one, other) for one in range(ranks) for other in range(ranks)}
    exchanged, total = exchange(list(mine), pairs, rank=me, ranks=ranks), reduced(summand, "sum")
    env.settle()
    with env.acting():
        x = env.under_test.x
        at_the_far_end[(1,)](
            env.under_test.triton_context, x.TileView, x.Tile, x.make_tensor_view, x.all_to_all, x.all_reduce_spinlock,
            iris.get_device_context(), given, received, terms, sums, locks, columns, each, width, me, ranks, TILE,
            num_warps=env.warps(1),
        )  # fmt: skip
    env.settle()
    findings.same("the exchanged elements", torch.cat(parts), torch.cat([exchanged[rank] for rank in range(ranks)]))
    findings.same("the sums", sums.contiguous(), total)
    findings.equal("locks that are held after the call", [int(locks[0]), int(locks[-1])], [0, 0])
    env.settle()
    release(iris)
    return findings.first


def _spread(heap, rows):
    """Return ``rows`` rows spread over 5 GiB, and the set of their start offsets.

    Their distance is below 2 GiB, so that it is a 32-bit argument and only its product with a row number overflows.
    """
    stride = min(5 * GIB // (rows - 1), 2 * GIB - PAGE) // PAGE * PAGE
    return heap.as_strided((rows, COLUMNS), (stride, 1)), {row * stride for row in range(rows)}


RUNS = {"far": run, "long": run_long, "ends": run_ends}


def cases(ranks):
    ends = [HostCase("ends")] if judged.offers("x.all_to_all", "x.all_reduce_spinlock") else []
    return [HostCase("far"), HostCase("long", (True,)), HostCase("long", (False,)), *ends]


@requirement("X-FAR-001", cases=cases, weak=False)
def test_far_tiles(check, case):
    check(RUNS[case.what], case)
