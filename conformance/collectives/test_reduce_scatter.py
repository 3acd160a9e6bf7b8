"""reduce_scatter(output (M, N), input (M, N), op, group, async_op, config): the members share the tiles of the result.

Each element of what torch.distributed's all_reduce gives is written by the member that owns its tile, at its place, and
the rest of each output is untouched; ``shares`` says who owns what. In place too. All seven reductions, on values whose
result is exact in any order.
"""

from conformance.collectives.calls import run
from fixtures.requirement import requirement
from harness.cases import ALL


def cases(ranks, dtype):
    from harness.cases.collective_strategies import collectives

    return collectives(ranks, "reduce_scatter", dtype)


@requirement(
    "CCL-REDUCESCATTER-001", cases=cases, weight=0.25, dtype=("fp16", *(name for name in ALL if name != "fp16"))
)
def test_reduce_scatter(check, case):
    check(run, case)
