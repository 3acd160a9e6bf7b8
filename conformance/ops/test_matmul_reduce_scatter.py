"""matmul_reduce_scatter(C (M, N), A (M, K), B (K, N), bias (M,)):
each rank's share of the tiles of the sum of every rank's product.

001  Every shape, stride, bias, block size and number of calls gives, in the tiles that are a rank's own, what
     torch.matmul and all_reduce give; its other tiles, and everything else, stay as they were.
"""

from conformance.ops.products import run
from fixtures.requirement import requirement


def cases(ranks, dtype):
    from harness.cases.fused_strategies import fused

    return fused(ranks, "matmul_reduce_scatter", dtype)


@requirement("FUSED-REDUCESCATTER-001", cases=cases, weight=0.25, dtype=("fp16", "bf16", "fp32"))
def test_matmul_reduce_scatter(check, case):
    check(run, case)
