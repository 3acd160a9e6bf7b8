"""What the flags of tile-level sums compile to orders memory between devices.

A flag at a narrower scope looks right in every run in which memory happens to be in order, so the code is read: a
release at system scope, an acquire at system scope, no atomic at a narrower one. all_reduce_atomic has no flags: its
additions must be at system scope.
"""

from conformance.isa.targets import barrier_order
from conformance.x import tiles
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness import isa
from harness.cases.tile import TileCase


def run(env, case):
    wrong = tiles.run(env, case)
    found = Findings(env.rank)
    launches = [launch for launch in env.launched() if launch.kernel == "tile_kernel"]
    codes = [code for launch in launches for code in isa.codes_of(launch)]
    found.true("code to look at", codes)
    for code in codes:
        for part, fine in barrier_order([code]).items():
            if case.op != "all_reduce_atomic" or part == "system scope alone":
                found.true(f"{part} ({code.language}) of {case.op}", fine)
    return wrong or found.first


def cases(ranks):
    from harness.cases.tile_strategies import KERNELS

    found = []
    for op in (*tiles.FLAGGED, *tiles.IN_PLACE_SUMS):
        dtype, block_m, block_n, warps = KERNELS[op][True]
        found.append(TileCase(op, dtype, block_m, block_n, block_m, block_n, warps, wide=True))
    return found


@requirement("X-ORDER-001", cases=cases)
def test_order_of_tiles(check, case):
    check(run, case)
