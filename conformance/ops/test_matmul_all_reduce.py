"""matmul_all_reduce(C (M, N), A (M, K), B (K, N), bias (M,)): the sum of every rank's product, on every rank.

001  Every variant, shape, stride, bias, block size and number of calls gives what torch.matmul and all_reduce give;
     calls on one workspace may follow each other, with other data, without anything in between. Nothing else changes.
"""

from conformance.ops.products import run
from fixtures.requirement import requirement


def cases(ranks, dtype):
    from harness.cases.fused_strategies import fused

    return fused(ranks, "matmul_all_reduce", dtype)


@requirement("FUSED-ALLREDUCE-001", cases=cases, weight=0.5, dtype=("fp16", "bf16", "fp32"))
def test_matmul_all_reduce(check, case):
    check(run, case)
