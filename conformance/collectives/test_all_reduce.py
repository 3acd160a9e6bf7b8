"""all_reduce(output (M, N), input (M, N), op, group, async_op, config, workspace): the reduction of all inputs, on
every member.

001  Every variant gives what torch.distributed's all_reduce gives, and changes nothing else, in place too. All seven
     reductions, on values whose result is exact in any order.
"""

from conformance.collectives.calls import run
from fixtures.requirement import requirement
from harness.cases import ALL


def cases(ranks, dtype):
    from harness.cases.collective_strategies import collectives

    return collectives(ranks, "all_reduce", dtype)


@requirement("CCL-ALLREDUCE-001", cases=cases, dtype=("bf16", *(name for name in ALL if name != "bf16")))
def test_all_reduce(check, case):
    check(run, case)
