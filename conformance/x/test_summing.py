"""The five all_reduces of a tile, and reduce_scatter, give the exact sum of all ranks' tiles.

Every rank gets the sum, or for reduce_scatter(tile, src_view, dst_view, locks, ctx) only the tile's owner: of T tiles,
rank r of W owns the T // W tiles from number r * (T // W) on, and the last rank also owns the rest. Sums of fp16 and
bf16 are rounded once, except in all_reduce_atomic and all_reduce_spinlock, which add to the output itself. The three
ops with flags wait for each rank's tile. At the end the flags are set, and the locks of all_reduce_spinlock are free.
"""

from conformance.x.operations import names
from conformance.x.tiles import run
from fixtures.requirement import requirement


def cases(ranks, op):
    from conformance.x.strategies import tile_collectives

    return tile_collectives(ranks, op)


@requirement("X-SUM-001", cases=cases, weight=2.0, op=names(lambda op: op.sums))
def test_summing_tiles(check, case, op):
    check(run, case)
