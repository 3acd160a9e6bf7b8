"""Rounded sums have the same bits on every rank and in repeated calls.

The inputs are fp32 numbers with full significands, so that their sum depends on the order of additions.
"""

import torch

from conformance.x import tiles
from conformance.x.cases import TileCase
from conformance.x.operations import names
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import rough
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
    findings = Findings(env.rank)
    first = outputs[0] if outputs else torch.zeros(case.m, case.n)
    worst = sum_error(first, gathered(mine).view(-1, case.m, case.n))
    findings.true(f"errors within the rounding of {env.world_size} additions, not {worst:.2f} times that", worst <= 1)
    for rank, theirs in enumerate(gathered(first).view(-1, case.m, case.n)):
        findings.same(f"the sum, compared with that of rank {rank}", first, theirs)
    for again in outputs[1:]:
        findings.same("the sum of a second call", again, first)
    return findings.first


def cases(ranks):
    return [TileCase(op, "fp32", 9, 33, 4, 16, calls=2) for op in names(lambda op: op.same_bits)]


@requirement("X-SAME-001", cases=cases, ranks=3)
def test_same_sums(check, case):
    check(run, case)
