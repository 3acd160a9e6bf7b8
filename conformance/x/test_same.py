"""Sums that are rounded, bit by bit: the same on every rank, and again.

fp32 numbers with full significands, whose sum depends on the order of additions.
"""

import torch

from conformance.x import tiles
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import rough
from harness.cases.tile import TileCase
from harness.oracles import gathered, sum_error


def run(env, case):
    env.image.reset()
    heap = tiles.claim(env, case)
    mine = rough("fp32", case.m * case.n, member=env.rank).view(case.m, case.n)
    heap.given.copy_(mine)
    outputs = []
    env.settle()
    with env.acting():
        for _ in range(case.calls):
            heap.target.fill_(-7.0)
            heap.locks.zero_()
            env.iris.device_barrier()
            tiles.launch(env, case, env.iris, heap.given, heap.shared, heap.target, heap.locks)
            env.iris.device_barrier()
            outputs.append(heap.target.cpu().clone())
    env.settle()
    found = Findings(env.rank)
    first = outputs[0] if outputs else torch.zeros(case.m, case.n)
    worst = sum_error(first, gathered(mine, members=env.world_size).view(-1, case.m, case.n))
    found.true(f"errors within the rounding of {env.world_size} additions, not {worst:.2f} times that", worst <= 1)
    for rank, theirs in enumerate(gathered(first, members=env.world_size).view(-1, case.m, case.n)):
        found.same(f"the sum here, beside that of rank {rank}", first, theirs)
    for again in outputs[1:]:
        found.same("the sum of a second call", again, first)
    return found.first


def cases(ranks):
    ops = ("all_reduce_one_shot", "all_reduce_two_shot", "all_reduce_ring")
    return [TileCase(op, "fp32", 9, 33, 4, 16, calls=2) for op in ops]


@requirement("X-SAME-001", cases=cases, ranks=3)
def test_same_sums(check, case):
    check(run, case)
