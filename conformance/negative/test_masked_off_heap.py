"""Masked-off lanes may point outside the heap: they access neither side of a transfer.

The last elements of the heap are moved in a block that reaches far beyond the heap's end. The local end, where it need
not be on a heap, is memory of exactly these elements. On the emulated device any access of the lanes beyond either end
would fault. Every kernel with a mask that the tests of the op draw is launched; in weak memory this also shows a value
that is stored before its load is complete.
"""

import numpy as np
import torch

from conformance.rma.cases import TransferCase
from conformance.rma.kernels import OTHER, launch
from conformance.rma.operations import TRANSFERS
from conformance.support.cases import HostCase
from conformance.support.forms import FORMS
from conformance.support.instances import OtherInstance, release
from conformance.support.masks import kept_lanes
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import of_name, payload
from harness.oracles import exchange
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


def cases(ranks):
    return [HostCase("masked", (op, form)) for form in FORMS for op in TRANSFERS]


@requirement("NEGATIVE-MASK-001", cases=cases, race=False)
def test_masked_off_heap(check, case):
    check(run, case)
