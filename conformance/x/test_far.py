"""Views of more than 2^31 elements: where a tile lies needs 64 bits.

Rows of a view lie more than 1 GiB apart, so that its last ones are behind 2 and 4 GiB. The heap is mostly holes: only
the rows themselves, and the places that a 31- or 32-bit product would reach, are ever touched.
"""

import torch

from conformance.x.tiles import launch
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase, payload
from harness.cases.tile import TileCase
from harness.oracles import gathered

GIB = 1 << 30
ROWS, COLUMNS = 4, 16


def run(env, case):
    (op,) = case.arguments
    me, ranks = env.rank, env.world_size
    found = Findings(me)
    rows = ROWS * (ranks if op == "all_gather_rows" else 1)
    # Below 2 GiB, so that the stride itself is a 32-bit argument and only its product with a row overflows.
    stride = min((5 * GIB) // (rows - 1) // 4096 + 1, 2 * GIB // 4096 - 1) * 4096
    iris = env.under_test.iris(heap_size=stride * rows + (2 << 20))
    near = iris.empty(ROWS, COLUMNS, dtype=torch.int8)
    heap = iris.empty(stride * rows + 4096, dtype=torch.int8)
    far = heap.as_strided((rows, COLUMNS), (stride, 1))
    places = {row * stride for row in range(rows)}
    watched = sorted({place % size for place in places for size in (2 * GIB, 4 * GIB)} - places)
    for place in watched:
        heap[place : place + COLUMNS].fill_(-99)
    far.fill_(-98)
    mine = payload("int8", ROWS * COLUMNS, rank=me, ranks=ranks).view(ROWS, COLUMNS)
    root = (me + 1) % ranks
    given, target = (far, near) if op == "gather" else (near, far)
    given.copy_(mine)
    everybody = gathered(mine)
    env.settle()
    with env.acting():
        launch(env, TileCase(op, "int8", ROWS, COLUMNS, root=root), iris, given, given, target, given)
    env.settle()
    wanted = everybody[root * ROWS : (root + 1) * ROWS] if op == "gather" else everybody
    found.same("the output", target.contiguous(), wanted)
    for place in watched:
        got = heap[place : place + COLUMNS]
        found.same(f"{COLUMNS} bytes at {place:#x}, which nothing may touch", got, torch.full_like(got, -99))
    env.settle()
    iris.close()
    return found.first


def cases(ranks):
    return [HostCase("far", ("all_gather_rows",)), HostCase("far", ("gather",))]


@requirement("X-FAR-001", cases=cases)
def test_far_tiles(check, case):
    check(run, case)
