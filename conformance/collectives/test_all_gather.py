"""all_gather(output (W*M, N), input (M, N), group, async_op, config): everybody's rows, in the group's order, on every
member.

Every shape, stride, tile, kernel, variant, group and number of calls gives what torch.distributed's all_gather
gives; padding between rows and all other memory stay as they were. Calls may follow each other without anything in
between, also on the same tensors.
"""

from conformance.collectives.calls import run
from fixtures.requirement import requirement
from harness.cases import ALL


def cases(ranks, dtype):
    from harness.cases.collective_strategies import collectives

    return collectives(ranks, "all_gather", dtype)


@requirement("CCL-ALLGATHER-001", cases=cases, dtype=("fp16", *(name for name in ALL if name != "fp16")))
def test_all_gather(check, case):
    check(run, case)
