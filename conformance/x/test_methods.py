"""Each tile-level collective as a method of DeviceContext gives what the function of ``x`` gives.

Other requirements draw the methods too, where the library has them. This one is about them alone, so that a library
without one is reported as such: its group is unsupported.
"""

from conformance.x.cases import TileCase
from conformance.x.operations import FUNCTIONS, TILES
from conformance.x.tiles import run
from fixtures.requirement import requirement


def cases(ranks, function):
    listed = []
    for op in TILES.values():
        if op.function == function:
            dtype, block_m, block_n, warps = op.aligned
            shape = {"m": block_m + 1, "n": block_n + 16, "block_m": block_m, "block_n": block_n, "warps": warps}
            listed.append(TileCase(op.name, dtype, **shape, methods=True, aligned=True, root=ranks - 1))
    return listed


@requirement("X-METHOD-001", cases=cases, function=FUNCTIONS)
def test_methods(check, case):
    check(run, case)
