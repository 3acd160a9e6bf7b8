"""all_gather(output (W*M, N), input (M, N), group, async_op, config): everybody's rows, in the group's order, on every
member.

Every shape, stride, tile, kernel, variant, group and number of calls gives what torch.distributed's all_gather
gives; padding between rows and all other memory stay as they were. Calls may follow each other without anything in
between, also on the same tensors.
"""

from conformance.collectives.calls import run
from fixtures.requirement import requirement


def cases(ranks, width):
    from harness.cases.collective_strategies import moves

    return moves(ranks, "all_gather", width)


@requirement("CCL-ALLGATHER-001", cases=cases, width=(2, 1, 8, 4))
def test_all_gather(check, case):
    check(run, case)
