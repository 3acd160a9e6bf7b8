"""scatter(output (M, N), input (W*M, N), src, group, async_op, config): the i-th M rows of global rank ``src`` become
member i's output. The other members pass None as input.

Each call gives what torch.distributed's scatter gives, and changes nothing else.
"""

from conformance.collectives.calls import run
from fixtures.requirement import requirement


def cases(ranks, width):
    from harness.cases.collective_strategies import moves

    return moves(ranks, "scatter", width)


@requirement("CCL-SCATTER-001", cases=cases, weight=0.5, width=(4, 1, 2, 8))
def test_scatter(check, case):
    check(run, case)
