"""Masked-off lanes may point outside the heap: they access neither side of a transfer.

The last elements of the heap are moved in a block that reaches far beyond the heap's end. On the emulated device any
access of the lanes beyond the end would fault.
"""

import torch

from conformance.rma.cases import TransferCase
from conformance.rma.kernels import launch
from conformance.rma.operations import TRANSFERS
from conformance.support.cases import HostCase
from conformance.support.forms import FORMS
from conformance.support.instances import OtherInstance, release
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import payload
from harness.oracles import exchange

HEAP, COUNT = 1 << 16, 10


def run(env, case):
    """Move the last ``COUNT`` elements to or from the right neighbour's heap.

    The local end is off the heap, unless both ends of the op must be on one.
    """
    name, form = case.arguments
    op = TRANSFERS[name]
    shape = TransferCase(dtype="int32", n=COUNT, spt=1, warps=1, form=form)  # the kernels of RMA-FAR
    me, ranks = env.rank, env.world_size
    right, left = (me + 1) % ranks, (me - 1) % ranks
    push = op.pushes(shape)
    findings = Findings(me)
    iris = env.under_test.iris(heap_size=HEAP)
    last = iris.empty(HEAP, dtype=torch.uint8).view(torch.int32)[-COUNT:]
    near = torch.zeros(COUNT, dtype=torch.int32, device=env.device.torch_device)
    mine = payload("int32", COUNT, rank=me, ranks=ranks)
    (near if push and not op.two_ranks else last).copy_(mine)
    around = [(rank, (rank + 1) % ranks) for rank in range(ranks)]
    transfers = {(a, b) if push else (b, a) for a, b in around}
    wanted = exchange(mine, transfers, rank=me, ranks=ranks)[left if push else right]
    source, target = (near, last) if push else (last, near)
    # A copy has both ends on a heap, at the same offset, so that only one rank may send. A kernel with
    # ``DeviceContext`` is compiled for one rank: the ranks take the operations by turns.
    alone = op.two_ranks or form == "context"
    actor = list(TRANSFERS).index(name) % ranks if form == "context" else 0
    if op.two_ranks:
        source, target = last, last
    if alone and me != ((actor + 1) % ranks if push else actor):
        wanted = target.cpu().clone()
    keep = torch.ones(COUNT, dtype=torch.uint8, device=env.device.torch_device)
    with env.acting():
        if not alone or me == actor:
            launch(OtherInstance(env, iris), op, shape, source, target, keep, right)
    env.settle()
    findings.same(f"the last {COUNT} elements after {name}", target, wanted)
    env.settle()
    release(iris)
    return findings.first


def cases(ranks):
    return [HostCase("masked", (op, form)) for form in FORMS for op in TRANSFERS]


@requirement("NEGATIVE-MASK-001", cases=cases, weak=False)
def test_masked_off_heap(check, case):
    check(run, case)
