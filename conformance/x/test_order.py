"""The compiled flags of tile-level sums order memory between devices.

A flag at a narrower scope gives right results in every run in which memory happens to be in order. So the test reads
the compiled code: it must have a release at system scope, an acquire at system scope, and no atomic at a narrower
scope. all_reduce_atomic has no flags, but its additions must be at system scope.
"""

from conformance.isa.targets import barrier_order
from conformance.x import tiles
from conformance.x.cases import TileCase
from conformance.x.operations import TILES, has_methods
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness import isa


def run(env, case):
    wrong = tiles.run(env, case)
    findings = Findings(env.rank)
    launches = [launch for launch in env.launched() if launch.kernel == "tile_kernel"]
    codes = [code for launch in launches for code in isa.codes_of(launch)]
    findings.true("tile_kernel was launched and its code recorded", codes)
    for code in codes:
        for part, fine in barrier_order([code]).items():
            if TILES[case.op].locks or part == "system scope alone":
                findings.true(f"{part} ({code.language}) of {case.op}", fine)
    return wrong or findings.first


def cases(ranks):
    listed = []
    for op in TILES.values():
        if op.locks or op.adds_to_output:
            dtype, block_m, block_n, warps = op.aligned
            listed.append(
                TileCase(op.name, dtype, *(block_m, block_n) * 2, warps, methods=has_methods(op.name), aligned=True)
            )
    return listed


@requirement("X-ORDER-001", cases=cases)
def test_order_of_tiles(check, case):
    check(run, case)
