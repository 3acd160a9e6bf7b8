"""gather(output (W*M, N), input (M, N), dst, group, async_op, config): everybody's rows, in the group's order, on the
global rank ``dst``. The other members pass None as output.

Each call gives what torch.distributed's gather gives, and changes nothing else.
"""

from conformance.collectives.calls import run
from fixtures.requirement import requirement


def cases(ranks, width):
    from harness.cases.collective_strategies import moves

    return moves(ranks, "gather", width)


@requirement("CCL-GATHER-001", cases=cases, weight=0.5, width=(8, 2, 1, 4))
def test_gather(check, case):
    check(run, case)
