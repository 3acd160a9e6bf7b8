"""Masked-off lanes may point outside the heap: they access neither side of a transfer.

The last elements of the heap are moved in a block that reaches far beyond the heap's end. The local end, where it need
not be on a heap, is memory of exactly these elements. On the emulated device any access of the lanes beyond either end
would fault. Every kernel with a mask that the tests of the op draw is launched; in weak memory this also shows a value
that is stored before its load is complete.

Likewise all_reduce with atomics, each of which has a kernel of its own, reduces into the last elements of each heap.
"""

import numpy as np
import torch

from conformance.collectives.calls import config
from conformance.collectives.cases import CollectiveCase
from conformance.rma.cases import TransferCase
from conformance.rma.kernels import OTHER, launch
from conformance.rma.operations import TRANSFERS
from conformance.support.cases import HostCase
from conformance.support.forms import FORMS
from conformance.support.instances import OtherInstance, release
from conformance.support.masks import kept_lanes
from conformance.support.outside import ends_with
from fixtures import judged
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import contribution, of_name, payload
from harness.oracles import exchange, reduced
from harness.oracles.heap import place

HEAP = 1 << 16
COUNTS = (10, 16)
"""Elements that are moved, by whether the kernel knows of multiples of 16. Every block has more lanes."""
ONE_OF_SEVERAL = ("fourths", "even")
"""Patterns of which a wavefront's lanes have only the first, second, third or fourth of a thread's elements first: code
that waits for each element's load in the branch of its mask has every such branch as the first one."""
BEFORE = 0x5A
"""Each byte of the heap and of a local target before the transfer."""


def run(env, case):
    name, form = case.arguments
    findings = Findings(env.rank)
    iris = env.under_test.iris(heap_size=HEAP)
    heap, instance = iris.empty(HEAP, dtype=torch.uint8), OtherInstance(env, iris)
    for actor, transfer in transfers(env.world_size, name, form):
        _move(env, instance, TRANSFERS[name], transfer, actor, heap, findings)
    env.settle()
    release(iris)
    return findings.first


def transfers(ranks, name, form):
    """Return the only rank that acts, or None for all, and the transfer, for each kernel with a mask."""
    from conformance.rma.strategies import kernels

    listed = []
    for row in kernels(ranks):
        if (row["op"], row["form"]) == (name, form) and row["mask"] != "none" and not (ranks == 1 and row["retyped"]):
            given = {field: row[field] for field in ("dtype", "aligned", "other", "volatile", "retyped", "hinted")}
            spt, warps = row["shape"]
            direction = ("to", "from")[len(listed) % 2] if TRANSFERS[name].two_ranks else "to"
            shape = {"n": COUNTS[row["aligned"]], "spt": spt, "warps": warps, "direction": direction}
            for mask in ("range",) if row["mask"] == "range" else ONE_OF_SEVERAL:
                listed.append((row["actor"], TransferCase(**given, **shape, mask=mask, form=form)))
    return listed


def _move(env, instance, op, case, actor, heap, findings):
    """Move the last elements to or from the right neighbour's heap. If both ends of the op must be on a heap, they are
    at the same offset, so that one rank alone acts."""
    me, ranks, n = env.rank, env.world_size, case.n
    right, left = (me + 1) % ranks, (me - 1) % ranks
    push = op.pushes(case)
    dtype, target_dtype = of_name(case.dtype), of_name(case.target_dtype)
    if op.two_ranks and actor is None:
        actor = 0
    caller = left if push else me  # of the transfer that this rank receives
    receives = actor in (None, caller)

    def last(memory, kind):
        return memory[memory.numel() - n * kind.itemsize :].view(kind)

    around = [(rank, (rank + 1) % ranks) for rank in range(ranks)]
    mine = payload(case.dtype, n, rank=me, ranks=ranks, converted=case.retyped)
    pairs = {(a, b) if push else (b, a) for a, b in around}
    sent = exchange(mine, pairs, rank=me, ranks=ranks)[left if push else right].to(target_dtype)
    heap.fill_(BEFORE)
    whole = case.other and op.shows_other  # the kernel stores all lanes of the block
    count = case.block if whole else n
    near = torch.full((count * target_dtype.itemsize,), BEFORE, dtype=torch.uint8, device=heap.device)
    local = mine.to(heap.device, copy=True)
    source = local if push and not op.two_ranks else last(heap, dtype)
    source.copy_(mine)
    target = last(heap, target_dtype) if push or op.two_ranks else near.view(target_dtype)
    wanted_heap, wanted_near = heap.cpu().clone(), near.cpu().clone()
    if receives:
        wanted = last(wanted_heap, target_dtype) if push or op.two_ranks else wanted_near.view(target_dtype)
        if whole:
            wanted.fill_(OTHER)
        place(wanted[:n], sent.cpu(), np.array(kept_lanes(case.mask, n, caller)))
    keep = torch.from_numpy(kept_lanes(case.mask, n, me).astype(np.uint8)).to(heap.device)
    env.settle()
    if actor in (None, me):
        with env.acting():
            launch(instance, op, case, source, target, keep, right)
    env.settle()
    label = f"{op.name} of the last {n} elements by {case}"
    findings.same(f"the heap after {label}", heap, wanted_heap)
    findings.same(f"the local target after {label}", near, wanted_near)
    env.settle()


def run_reduction(env, case):
    """Reduce into the last elements of every rank's heap by atomics. An atomic beyond them may change nothing, as an OR
    with 0, but would access memory that is not there."""
    (reduce,) = case.arguments
    dtype = "fp32" if reduce == "sum" else "int32"  # the kernels of CCL-TURNS-001
    findings = Findings(env.rank)
    iris = env.under_test.iris(heap_size=HEAP)
    heap = iris.empty(HEAP, dtype=torch.uint8)
    heap.fill_(BEFORE)
    shape = CollectiveCase(op="all_reduce", dtype=dtype, reduce=reduce, m=4, n=87, variant="atomic", warps=2)
    mine = contribution(reduce, dtype, shape.m * shape.n, member=env.rank, members=env.world_size)
    source = ends_with(mine.view(shape.m, shape.n).to(heap.device))
    target = heap[HEAP - mine.nbytes :].view(of_name(dtype)).view(shape.m, shape.n)
    wanted = heap.cpu().clone()
    wanted[HEAP - mine.nbytes :] = reduced(mine, reduce).cpu().view(torch.uint8)
    env.settle()
    with env.acting():
        op = getattr(env.under_test.module.ccl.ReduceOp, reduce.upper())
        iris.ccl.all_reduce(target, source, op=op, config=config(env, shape, env.world_size))
    env.settle()
    findings.same(f"the heap after {reduce} into its last {mine.numel()} elements", heap, wanted)
    env.settle()
    release(iris)
    return findings.first


REDUCED = "reduced"


def cases(ranks):
    from conformance.collectives.strategies import atomic_ops

    moved = [HostCase("masked", (op, form)) for form in FORMS for op in TRANSFERS]
    reductions = atomic_ops("int32") if judged.offers("ccl.all_reduce") and judged.extended() else ()
    return moved + [HostCase(REDUCED, (reduce,)) for reduce in reductions]


@requirement("NEGATIVE-MASK-001", cases=cases, race=False, sampled=True)
def test_masked_off_heap(check, case):
    check(run_reduction if case.what == REDUCED else run, case)
