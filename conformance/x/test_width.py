"""Remote accesses of tile-level collectives are 16 bytes per lane if rows are contiguous and aligned.

The kernel is specialized on n and row strides that are multiples of 16, and tiles have 16 bytes per lane; the matrices
have ragged edges. An all_gather by columns cannot be specialized on the divisibility of a rank's part: there the test
checks the executed accesses. The test covers the remote stores of all_gather in both directions and of all_to_all, and
the remote loads of gather and of all_reduce_ring. The other sums use the same functions, and 4-byte flags
(tests/iris/test_x.py). One rank alone has no remote memory, so this needs two ranks.

In a case of the function, rank 0 calls it and the others the method, if the library has methods: each rank's kernel is
another one, and what differs between the function and the method does not depend on the rank.
"""

from dataclasses import replace

from conformance.isa.listing import expect_executed, expect_width
from conformance.isa.targets import WIDTH
from conformance.x import tiles
from conformance.x.cases import TileCase
from conformance.x.operations import TILES, has_methods
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness import isa
from harness.cases import size_of


def run(env, case):
    op = TILES[case.op]
    calls_method = case.methods or (has_methods(case.op) and env.rank != 0)
    wrong = tiles.run(env, replace(case, methods=calls_method))
    findings = Findings(env.rank)
    launches = [launch for launch in env.launched() if launch.kernel == "tile_kernel"]
    moved = (1 if op.rooted else env.world_size) * case.m * case.n * size_of(case.dtype)
    own = moved // (1 if op.rooted else env.world_size)  # what this rank sends to itself
    if op.rooted and env.rank != case.root:
        own = 0
    counted = env.device.name == "emulated"
    if not op.static_width:
        findings.true("tile_kernel was launched", launches)
        for launch in launches:
            for code in isa.codes_of(launch):
                findings.true(f"wide remote stores in the {code.language}", WIDTH in isa.remote_widths(code, "store"))
            if counted:
                expect_executed(findings, launch, "store", moved - own)
    else:
        expect_width(findings, launches, op.remote, moved, counted, own)
    return wrong or findings.first


def cases(ranks):
    listed = []
    for op in TILES.values():
        dtype, block_m, block_n, warps = op.aligned
        shape = {"m": block_m + 1, "n": block_n + 16, "block_m": block_m, "block_n": block_n, "in_pad": 16}
        listed += [
            TileCase(op.name, dtype, **shape, warps=warps, methods=methods, aligned=True, root=ranks - 1)
            for methods in ((True, False) if has_methods(op.name) else (False,))
            if op.remote
        ]
    return listed


@requirement("X-WIDTH-001", cases=cases, ranks=2)
def test_width_of_tiles(check, case):
    check(run, case)
