"""Fused products in the cases that are most easily wrong. These cases are part of every run.

001  Ragged tiles in every order in memory, several tiles per program, tails of K, calls queued without synchronization,
     sums that are exact only in float32, fp32 that must not be rounded to TF32: the result is that of torch.matmul and
     torch.distributed.
"""

from conformance.ops.operations import PRODUCTS
from conformance.ops.products import moves, run
from fixtures.requirement import requirement


def cases(ranks, op):
    from conformance.ops.strategies import edges

    return edges(op)


@requirement("FUSED-EDGES-001", cases=cases, op=tuple(PRODUCTS), moves=moves)
def test_edges(check, case):
    check(run, case)
