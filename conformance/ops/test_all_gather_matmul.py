"""all_gather_matmul(C (M, N), A_shard (M, K/W), B (K, N), bias (M,)):
the product of everybody's shards, side by side, and the own B.

001  Every shape, stride, bias, block size and number of calls gives what all_gather and torch.matmul give; calls on one
     workspace may follow each other, with other data, without anything in between. Nothing else changes.
"""

from conformance.ops.products import run
from fixtures.requirement import requirement


def cases(ranks, dtype):
    from harness.cases.fused_strategies import fused

    return fused(ranks, "all_gather_matmul", dtype)


@requirement("FUSED-GATHERMATMUL-001", cases=cases, weight=0.25, dtype=("fp16", "bf16", "fp32"))
def test_all_gather_matmul(check, case):
    check(run, case)
