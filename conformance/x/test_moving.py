"""all_gather, all_to_all and gather of a tile: every element where it belongs, and nothing else touched.

all_gather(tile, dst_view, dim, ctx) puts rank r's matrix behind those of the ranks below, by rows or by columns;
all_to_all(tile, src_view, dst_view, N_per_rank, ctx) puts rank i's column block j into rank j's column block i;
gather(tile, src_view, source_rank, ctx) returns another rank's tile, 0 outside the matrix.
"""

from conformance.x.tiles import run
from fixtures.requirement import requirement
from harness.cases.tile import TILE_MOVES


def cases(ranks, op):
    from harness.cases.tile_strategies import tile_collectives

    return tile_collectives(ranks, op)


@requirement("X-MOVE-001", cases=cases, weight=2.0, op=TILE_MOVES)
def test_moving_tiles(check, case, op):
    check(run, case)
