"""Views of more than 2^31 elements: the offset of a tile needs 64 bits.

The first case calls all_gather between views whose last rows are beyond 2 and 4 GiB, on both sides. The others gather
16 elements of each rank into a view of 2^31 rows, or columns, a number that is a 64-bit argument. The heap is sparse:
only the elements, and the addresses that a 31- or 32-bit product would give, are touched.
"""

import torch

from conformance.support.cases import HostCase
from conformance.support.instances import release
from conformance.x.cases import TileCase
from conformance.x.tiles import launch
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import payload
from harness.oracles import gathered

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


def _spread(heap, rows):
    """Return ``rows`` rows spread over 5 GiB, and the set of their start offsets.

    Their distance is below 2 GiB, so that it is a 32-bit argument and only its product with a row number overflows.
    """
    stride = min(5 * GIB // (rows - 1), 2 * GIB - PAGE) // PAGE * PAGE
    return heap.as_strided((rows, COLUMNS), (stride, 1)), {row * stride for row in range(rows)}


def cases(ranks):
    return [HostCase("far"), HostCase("long", (True,)), HostCase("long", (False,))]


@requirement("X-FAR-001", cases=cases, weak=False)
def test_far_tiles(check, case):
    check(run_long if case.what == "long" else run, case)
