"""all_gather on tensors whose rows lie more than 2 GiB and 4 GiB apart: row times stride needs 64 bits.

The heap is mostly holes: only the rows themselves, and the places that a 32-bit product would reach, are ever touched.
"""

import torch

from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase, payload
from harness.oracles import gathered

GIB = 1 << 30
ROWS, COLUMNS = 4, 64


def run(env, case):
    side, kernels = case.arguments
    me, ranks = env.rank, env.world_size
    found = Findings(me)
    rows = ROWS * (ranks if side == "output" else 1)
    # Below 2 GiB, so that the stride itself is a 32-bit argument and only its product with a row overflows.
    stride = min((5 * GIB) // (rows - 1) // 4096 + 1, 2 * GIB // 4096 - 1) * 4096
    heap_size = stride * rows + (2 << 20)
    iris = env.under_test.iris(heap_size=heap_size)
    near = iris.empty(ROWS * ranks, COLUMNS, dtype=torch.int8)
    heap = iris.empty(stride * rows + 4096, dtype=torch.int8)
    far = heap.as_strided((rows, COLUMNS), (stride, 1))
    mine = payload("int8", ROWS * COLUMNS, rank=me, ranks=ranks).view(ROWS, COLUMNS)
    source, target = (near[:ROWS], far) if side == "output" else (far, near)
    # Where a product of 31 or 32 bits would end up, and the row itself, hold something else before.
    watched = sorted(
        {row * stride % size for row in range(rows) for size in (2 * GIB, 4 * GIB)}
        - {row * stride for row in range(rows)}
    )
    for place in watched:
        heap[place : place + COLUMNS].fill_(-99)
    target.fill_(-98)
    source.copy_(mine)
    wanted = gathered(mine)
    env.settle()
    with env.acting():
        iris.ccl.all_gather(target, source, config=env.under_test.config(use_gluon=kernels == "gluon"))
    env.settle()
    found.same("the output", target.contiguous(), wanted)
    for place in watched:
        got = heap[place : place + COLUMNS]
        found.same(f"{COLUMNS} bytes at {place:#x}, which nothing may touch", got, torch.full_like(got, -99))
    env.settle()
    iris.close()
    return found.first


def cases(ranks):
    return [HostCase("far", (side, kernels)) for kernels in ("gluon", "triton") for side in ("output", "input")]


@requirement("CCL-FAR-001", cases=cases)
def test_far(check, case):
    check(run, case)
