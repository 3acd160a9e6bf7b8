"""Each kernel of a tile-level collective at the ragged ends of its matrices, two tiles in each dimension.

The last tile ends at each other row, and at columns of other lanes and of other elements of a lane: the code has limits
of its own for each of these. As in ``conformance.collectives.test_ragged``, a kernel of a library with the extended API
accesses no memory beyond its matrices and locks on any rank, not even to read what it masks away later.
"""

from conformance.x.cases import TileCase
from conformance.x.operations import FUNCTIONS, TILES, has_methods
from conformance.x.tiles import run
from fixtures import judged
from fixtures.requirement import requirement

ENDS = 4
"""Shapes of each kernel."""


def cases(ranks, function):
    """Return cases of the kernels of X-MOVE-001 or X-SUM-001, a list for each."""
    kernels = [(op, aligned) for op in TILES.values() if op.function == function for aligned in (False, True)]
    return [[_ragged(ranks, op, aligned, k) for k in range(ENDS)] for op, aligned in kernels]


def _ragged(ranks, op, aligned, k):
    """Return the k-th case of a kernel, whose last tile ends at another row and column than the others'."""
    dtype, block_m, block_n, warps = op.aligned if aligned else op.unaligned
    step = 16 if aligned else 1
    rows = 1 + k * max(1, block_m // ENDS)
    columns = step * (1 + 5 * k % (block_n // step))
    return TileCase(
        op.name,
        dtype,
        block_m + rows,
        block_n + columns,
        block_m,
        block_n,
        warps,
        programs=k % 2,
        methods=aligned and has_methods(op.name),
        aligned=aligned,
        turned=not aligned and k % 2 == 1,
        root=ranks - 1,
    )


@requirement(
    "X-RAGGED-001",
    cases=cases,
    ranks=2,
    weak=False,
    one_process="the emulated device confines the kernels of its own process",
    sampled=True,
    function=FUNCTIONS,
)
def test_ragged(check, case):
    check(run, case, confined=judged.extended())
