"""Each kernel of a fused product at the ragged ends of its matrices.

The code has limits of its own for each element of a lane: rows, columns and inner elements end at different ones. A
library with the extended API accesses no memory beyond its matrices, not even to read what it masks away later: on the
emulated device any such access is a fault, also of the matrix that other ranks read or write.
"""

from conformance.ops.operations import PRODUCTS
from conformance.ops.products import run
from fixtures import judged
from fixtures.requirement import requirement


def cases(ranks, op):
    from conformance.ops.strategies import ragged

    return ragged(op)


@requirement(
    "FUSED-RAGGED-001",
    cases=cases,
    weak=False,
    one_process="the emulated device confines the kernels of its own process",
    sampled=True,
    op=tuple(PRODUCTS),
)
def test_ragged(check, case):
    check(run, case, confined=judged.extended())
