"""all_to_all(output (M, W*N), input (M, W*N), group, async_op, config): column block j of member i becomes column block
i of member j.

Each call gives what torch.distributed's all_to_all_single gives for the blocks, and changes nothing else.
"""

from conformance.collectives.calls import run
from fixtures.requirement import requirement


def cases(ranks, width):
    from harness.cases.collective_strategies import moves

    return moves(ranks, "all_to_all", width)


@requirement("CCL-ALLTOALL-001", cases=cases, weight=0.5, width=(2, 8, 4, 1))
def test_all_to_all(check, case):
    check(run, case)
