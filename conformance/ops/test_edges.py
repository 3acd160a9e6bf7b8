"""Fused products where they are most easily wrong, in every run.

001  Ragged tiles in every order in memory, several for a program, tails of K, calls queued behind each other, sums that
     are exact in float32 alone, fp32 that must not be cut to TF32: what torch.matmul and torch.distributed give.
"""

from conformance.ops.products import run
from conformance.ops.test_refused import OPS
from fixtures.requirement import requirement


def cases(ranks, op):
    from harness.cases.fused_strategies import edges

    return edges(op)


@requirement("FUSED-EDGES-001", cases=cases, op=OPS)
def test_edges(check, case):
    check(run, case)
