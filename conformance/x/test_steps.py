"""Tile-level collectives wait for a rank that stops inside its kernel, wherever that is.

Each rank in turn stops in each call before another step that the others can notice, such as the store of a part, a
tile's flag or a lock; see ``conformance.support.steps``. A kernel processes four tiles, one of them whole. The calls
use the same tensors, and a device_barrier before and after each of them orders it; a rank that does not wait for a
tile's flag reads poison or the data of the call before.
"""

from conformance.support.steps import CALLS
from conformance.x.cases import TileCase
from conformance.x.operations import FUNCTIONS, TILES, has_methods
from conformance.x.tiles import run_stopping
from fixtures.requirement import requirement


def cases(ranks, function):
    """Return cases that share their kernels, which each rank compiles for itself, with X-MOVE-001 or X-SUM-001."""
    listed = []
    for op in TILES.values():
        if op.function == function:
            dtype, block_m, block_n, warps = op.aligned
            shape = {"m": block_m + 1, "n": block_n + 16, "block_m": block_m, "block_n": block_n, "warps": warps}
            more = {"methods": has_methods(op.name), "aligned": True, "root": ranks - 1, "programs": 2}
            listed.append(TileCase(op.name, dtype, **shape, **more, calls=CALLS))
    return listed


@requirement(
    "X-STEPS-001",
    cases=cases,
    ranks=2,
    function=FUNCTIONS,
    weak=False,
    device="emulated",
    checked=True,
    because="only there can a rank stop inside a kernel",
)
def test_steps(check, case):
    for stopping in range(check.ranks):
        check(run_stopping, case, stopping=stopping)
