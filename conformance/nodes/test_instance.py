"""An instance over ranks of several nodes.

INIT   It is made on every rank or refused on every rank; torch.distributed works afterwards, and so does a next one.
HEAP   It states which ranks its kernels reach: those of its node. It has bases for these, and 0 for the others.
"""

import gc

import torch
import torch.distributed as dist

from conformance.nodes.cases import near
from conformance.support.cases import HostCase
from fixtures.findings import Findings
from fixtures.requirement import requirement

REFUSALS = (RuntimeError, ValueError)


def run_made(env, case):
    """Make two instances, one after the other, and compare between ranks whether they exist."""
    (allocator,) = case.arguments
    findings = Findings(env.rank)
    for turn in ("the first", "the second"):
        made, refusal = None, None
        try:
            made = env.under_test.iris(heap_size=1 << 20, allocator_type=allocator)
        except REFUSALS as error:
            refusal = f"{type(error).__name__}: {error}"
        outcomes = [None] * env.world_size
        dist.all_gather_object(outcomes, refusal)
        refused = [rank for rank, text in enumerate(outcomes) if text is not None]
        findings.true(
            f"{turn} instance: made on all ranks or on none, refused on {refused}",
            len(refused) in (0, env.world_size),
        )
        env.count({"refused" if refusal else "made": 1})
        total = torch.ones(1)
        dist.all_reduce(total)
        findings.equal(f"a sum after {turn} instance", total.item(), float(env.world_size))
        del made
        gc.collect()
        env.settle()
    return findings.first


@requirement("NODES-INIT-001", cases=lambda ranks: [HostCase("made", (name,)) for name in ("torch", "vmem")])
def test_made_or_refused(check, case):
    check(run_made, case)


def run_reachable(env, case):
    """Compare ``reachable`` and the heap bases with the ranks of this node, and offsets between all ranks."""
    findings, mine = Findings(env.rank), near(env)
    findings.equal("reachable", list(env.iris.reachable), mine)
    bases = env.iris.get_heap_bases().tolist()
    findings.equal("ranks with a heap base", [rank for rank, base in enumerate(bases) if base], mine)
    tensor = env.iris.zeros(100, dtype=torch.int32)
    offsets = [None] * env.world_size
    dist.all_gather_object(offsets, tensor.data_ptr() - bases[env.rank])
    findings.equal("offset of an allocation on all ranks", offsets, [offsets[0]] * env.world_size)
    return findings.first


@requirement("NODES-HEAP-001", cases=lambda ranks: [HostCase("reachable")])
def test_reachable(check, case):
    check(run_reachable, case)
