"""matmul_all_gather(C (M, N), A (M/W, K), B (K, N), bias (M/W,)): every rank's product, stacked, on every rank.

001  Every shape, stride, bias, block size and number of calls gives what torch.matmul and all_gather give; calls may
     follow each other, with other data, without anything in between. Nothing else changes.
"""

from conformance.ops.products import run
from fixtures.requirement import requirement


def cases(ranks, dtype):
    from harness.cases.fused_strategies import fused

    return fused(ranks, "matmul_all_gather", dtype)


@requirement("FUSED-ALLGATHER-001", cases=cases, weight=0.25, dtype=("fp16", "bf16", "fp32"))
def test_matmul_all_gather(check, case):
    check(run, case)
