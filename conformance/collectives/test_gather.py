"""gather(output (W*M, N), input (M, N), dst, group, async_op, config): everybody's rows, in the group's order, on the
global rank ``dst``. The other members pass None as output.

Each call gives what torch.distributed's gather gives, and changes nothing else.
"""

from conformance.collectives.calls import run
from fixtures.requirement import requirement
from harness.cases import ALL


def cases(ranks, dtype):
    from harness.cases.collective_strategies import collectives

    return collectives(ranks, "gather", dtype)


@requirement("CCL-GATHER-001", cases=cases, weight=0.5, dtype=("fp64", *(name for name in ALL if name != "fp64")))
def test_gather(check, case):
    check(run, case)
