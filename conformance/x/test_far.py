"""Views of more than 2^31 elements: where a tile lies needs 64 bits.

all_gather between views whose last rows lie behind 2 and 4 GiB, on both sides. The heap is mostly holes: only the rows
themselves, and the places that a 31- or 32-bit product would reach, are ever touched.
"""

import torch

from conformance.x.tiles import launch
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase, payload
from harness.cases.tile import TileCase
from harness.oracles import gathered

GIB, PAGE = 1 << 30, 4096
ROWS, COLUMNS = 4, 16


def run(env, case):
    me, ranks = env.rank, env.world_size
    found = Findings(me)
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
    found.same("the output", target.contiguous(), wanted)
    for place in watched:
        got = heap[place : place + COLUMNS]
        found.same(f"{COLUMNS} bytes at {place:#x}, which nothing may touch", got, torch.full_like(got, -99))
    env.settle()
    iris.close()
    return found.first


def _spread(heap, rows):
    """That many rows over 5 GiB, and where they begin. Their distance is below 2 GiB, so that it is a 32-bit argument
    and only its product with a row overflows."""
    stride = min(5 * GIB // (rows - 1), 2 * GIB - PAGE) // PAGE * PAGE
    return heap.as_strided((rows, COLUMNS), (stride, 1)), {row * stride for row in range(rows)}


@requirement("X-FAR-001", cases=lambda ranks: [HostCase("far")])
def test_far_tiles(check, case):
    check(run, case)
