"""The five all_reduces of a tile, and reduce_scatter: the exact sum of all ranks' tiles.

On every rank, or for reduce_scatter(tile, src_view, dst_view, locks, ctx) on the tile's owner: of T tiles, rank r of W
owns T // W from number r * (T // W) on, the last rank the rest too. Sums of fp16 and bf16 are rounded once, but for
all_reduce_atomic and all_reduce_spinlock, which add to the output itself. The three that take flags wait for each
rank's tile; the flags stay set, and the locks of all_reduce_spinlock are free in the end.
"""

from conformance.x.tiles import run
from fixtures.requirement import requirement
from harness.cases.tile import TILE_SUMS


def cases(ranks, op):
    from harness.cases.tile_strategies import tile_collectives

    return tile_collectives(ranks, op)


@requirement("X-SUM-001", cases=cases, weight=2.0, op=TILE_SUMS)
def test_summing_tiles(check, case, op):
    check(run, case)
