"""Lanes that the mask switches off may point off the heap: they touch neither side of a transfer.

The last elements of the heap are moved in a block that reaches far beyond its end. On the emulated device any access of
the lanes beyond would fault.
"""

import importlib

import torch

from conformance.rma.test_far import OtherInstance
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import FORMS, HostCase, TransferCase, payload
from harness.oracles import exchange

HEAP, COUNT = 1 << 16, 10


def run(env, case):
    """To or from the last ``COUNT`` elements of the right neighbour's heap; the local end of all but copy is off it."""
    op, form = case.arguments
    me, ranks = env.rank, env.world_size
    right, left = (me + 1) % ranks, (me - 1) % ranks
    push = op in ("put", "store", "copy")
    found = Findings(me)
    iris = env.under_test.iris(heap_size=HEAP)
    last = iris.empty(HEAP, dtype=torch.uint8).view(torch.int32)[-COUNT:]
    near = torch.zeros(COUNT, dtype=torch.int32, device=env.device.torch_device)
    mine = payload("int32", COUNT, rank=me, ranks=ranks)
    (near if push and op != "copy" else last).copy_(mine)
    around = [(rank, (rank + 1) % ranks) for rank in range(ranks)]
    transfers = {(a, b) if push else (b, a) for a, b in around}
    wanted = exchange(mine, transfers, rank=me, ranks=ranks)[left if push else right]
    source, target = (near, last) if push else (last, near)
    if op == "copy":
        # Both ends are on a heap, at one place: only one rank sends.
        source, target = last, last
        wanted = wanted if me == 1 % ranks else mine
    keep = torch.ones(COUNT, dtype=torch.uint8, device=env.device.torch_device)
    with env.acting():
        if op != "copy" or me == 0:
            launch = importlib.import_module(f"conformance.rma.test_{op}").launch
            launch(
                OtherInstance(env, iris),
                TransferCase(dtype="int32", n=COUNT, spt=1, warps=4, form=form),
                source,
                target,
                keep,
                right,
            )
    env.settle()
    found.same(f"the last {COUNT} elements after {op}", target, wanted)
    env.settle()
    iris.close()
    return found.first


def cases(ranks):
    return [HostCase("masked", (op, form)) for form in FORMS for op in ("put", "store", "get", "load", "copy")]


@requirement("NEGATIVE-MASK-001", cases=cases)
def test_masked_off_heap(check, case):
    check(run, case)
