"""broadcast(tensor (M, N), src, group, async_op, config): every member's tensor becomes that of global rank ``src``.

Each call gives what torch.distributed's broadcast gives, and changes nothing else.
"""

from conformance.collectives.calls import run
from fixtures.requirement import requirement


def cases(ranks, width):
    from harness.cases.collective_strategies import moves

    return moves(ranks, "broadcast", width)


@requirement("CCL-BROADCAST-001", cases=cases, weight=0.5, width=(2, 1, 8, 4))
def test_broadcast(check, case):
    check(run, case)
