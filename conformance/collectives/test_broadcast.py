"""broadcast(tensor (M, N), src, group, async_op, config): every member's tensor becomes that of global rank ``src``.

Each call gives what torch.distributed's broadcast gives, and changes nothing else.
"""

from conformance.collectives.calls import run
from fixtures.requirement import requirement
from harness.cases import ALL


def cases(ranks, dtype):
    from harness.cases.collective_strategies import collectives

    return collectives(ranks, "broadcast", dtype)


@requirement("CCL-BROADCAST-001", cases=cases, weight=0.5, dtype=("fp16", *(name for name in ALL if name != "fp16")))
def test_broadcast(check, case):
    check(run, case)
