"""Collectives on tensors whose rows, or columns, lie more than 2 GiB and 4 GiB apart: place times stride needs 64 bits.

The heap is mostly holes: only the lines themselves, and the places that a 32-bit product would reach, are ever touched.
"""

import torch
import torch.distributed as dist

from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase, contribution, payload, shapes_of
from harness.oracles import gathered, reduced, swapped

GIB = 1 << 30
LINES, LENGTH = 4, 64
REFERENCES = {
    "all_gather": gathered, "all_to_all": swapped, "all_reduce": lambda mine: reduced(mine, "sum"),
    "sendrecv": lambda mine: gathered(mine[None])[dist.get_rank() - 1],
}  # fmt: skip


def run(env, case):
    op, side, kernels, *variant = case.arguments
    me, ranks = env.rank, env.world_size
    found = Findings(me)
    # The columns lie far apart, then, which are all_to_all's blocks.
    turned = op != "all_gather" and not {"ring", "spinlock"} & set(variant)
    inputs, outputs = shapes_of(op, *((LENGTH, LINES) if turned else (LINES, LENGTH)), ranks)
    shape = outputs if side == "output" else inputs
    lines = shape[1] if turned else shape[0]
    # Below 2 GiB, so that the stride itself is a 32-bit argument and only its product with a line overflows.
    stride = min((5 * GIB) // (lines - 1) // 4096 + 1, 2 * GIB // 4096 - 1) * 4096
    heap_size = stride * lines + (2 << 20)
    iris = env.under_test.iris(heap_size=heap_size)
    near = iris.empty(*(inputs if side == "output" else outputs), dtype=torch.int8)
    heap = iris.empty(stride * lines + 4096, dtype=torch.int8)
    far = heap.as_strided(shape, (1, stride) if turned else (stride, 1))
    count = inputs[0] * inputs[1]
    if op == "all_reduce":
        mine = contribution("sum", "int8", count, member=me, members=ranks).view(inputs)
    else:
        mine = payload("int8", count, rank=me, ranks=ranks).view(inputs)
    source, target = (near, far) if side == "output" else (far, near)
    # Where a product of 31 or 32 bits would end up, and the line itself, hold something else before.
    watched = sorted(
        {line * stride % size for line in range(lines) for size in (2 * GIB, 4 * GIB)}
        - {line * stride for line in range(lines)}
    )
    for place in watched:
        heap[place : place + LENGTH].fill_(-99)
    target.fill_(-98)
    source.copy_(mine)
    wanted = REFERENCES[op](mine)
    env.settle()
    with env.acting():
        # Of the output the tiles are far apart, of the input the lines of a single one, or in Gluon's all_gather both.
        high = 2 if side == "output" or (op, kernels) == ("all_gather", "gluon") else LINES
        block_m, block_n = (LENGTH, high) if turned else (high, LENGTH)
        settings = env.under_test.config(
            block_size_m=block_m, block_size_n=block_n, num_warps=env.warps(1), use_gluon=kernels == "gluon",
            threads_per_warp=env.device.lanes, **({"all_reduce_variant": variant[0]} if variant else {}),
        )  # fmt: skip
        if op == "sendrecv":
            iris.ccl.sendrecv(source, target, (me + 1) % ranks, (me - 1) % ranks, config=settings)
        else:
            getattr(iris.ccl, op)(target, source, config=settings)
    env.settle()
    found.same("the output", target.contiguous(), wanted)
    for place in watched:
        got = heap[place : place + LENGTH]
        found.same(f"{LENGTH} bytes at {place:#x}, which nothing may touch", got, torch.full_like(got, -99))
    env.settle()
    iris.close()
    return found.first


def cases(ranks, op):
    chosen = [("output", "gluon"), ("input", "triton"), ("input", "gluon"), ("output", "triton")]
    # Kernels of their own, for which one side is enough: both have the same rows and columns.
    own = [("output", "triton", variant) for variant in ("two_shot_push", "ring", "spinlock")]
    some = {"all_gather": chosen, "all_reduce": [*chosen[:2], *own]}.get(op, chosen[:2])
    return [HostCase("far", (op, *which)) for which in some]


@requirement("CCL-FAR-001", cases=cases, op=tuple(REFERENCES))
def test_far(check, case):
    check(run, case)
