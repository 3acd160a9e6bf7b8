"""reduce(output (M, N), input (M, N), dst, op, group, async_op, config): the reduction of all inputs, on global rank
``dst`` alone.

There the output is what torch.distributed gives; nothing else changes, on any rank. In place too. All seven reductions,
on values whose result is exact in any order.
"""

from conformance.collectives.calls import run
from fixtures.requirement import requirement
from harness.cases import ALL


def cases(ranks, dtype):
    from harness.cases.collective_strategies import collectives

    return collectives(ranks, "reduce", dtype)


@requirement("CCL-REDUCE-001", cases=cases, weight=0.25, dtype=("fp32", *(name for name in ALL if name != "fp32")))
def test_reduce(check, case):
    check(run, case)
