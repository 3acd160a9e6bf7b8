"""Remote accesses of tile-level collectives are 16 bytes per lane wherever rows are contiguous and aligned.

With n and the strides of rows multiples of 16, as the kernel knows, and tiles of 16 bytes per lane; at a ragged edge
too. (Of all_gather by columns it cannot know what a rank's share divides by: there, what is executed is looked at.)
The remote stores of all_gather in both directions and of all_to_all, and the remote loads of gather and of
all_reduce_ring; the other sums read and write by the same functions, beside 4-byte flags (tests/iris/test_x.py).
"""

from conformance.isa.listing import expect_width
from conformance.isa.targets import WIDTH
from conformance.x import tiles
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness import isa
from harness.cases import size_of
from harness.cases.tile import TileCase

STORES = ("all_gather_rows", "all_gather_columns", "all_to_all")


def run(env, case):
    wrong = tiles.run(env, case)
    found = Findings(env.rank)
    launches = [launch for launch in env.launched() if launch.kernel == "tile_kernel"]
    everywhere = 1 if case.op == "gather" else env.world_size
    moved = everywhere * case.m * case.n * size_of(case.dtype)
    counted = env.device.name == "emulated"
    if case.op == "all_gather_columns":
        found.true("a launch to look at", launches)
        for launch in launches:
            for code in isa.codes_of(launch):
                found.true(f"wide remote stores in the {code.language}", WIDTH in isa.remote_widths(code, "store"))
            if counted:
                done = isa.executed([launch])
                ran = [one for one in done.accesses if (one.kind, one.where) == ("store", "remote") and one.lanes]
                found.equal("width of remote stores that were executed", {one.width for one in ran}, {WIDTH})
                found.equal("bytes that they stored", sum(one.bytes for one in ran), moved)
    else:
        expect_width(found, launches, "store" if case.op in STORES else "load", moved, counted)
    return wrong or found.first


def cases(ranks):
    from harness.cases.tile_strategies import KERNELS

    found = []
    for op in (*STORES, "gather", "all_reduce_ring"):
        dtype, block_m, block_n, warps = KERNELS[op][True]
        found.append(
            TileCase(
                op, dtype, block_m + 1, block_n + 16, block_m, block_n, warps, wide=True, in_pad=16, root=ranks - 1
            )
        )
    return found


@requirement("X-WIDTH-001", cases=cases)
def test_width_of_tiles(check, case):
    check(run, case)
