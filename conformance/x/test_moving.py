"""all_gather, all_to_all and gather of a tile: every element where it belongs, and nothing else touched.

all_gather(tile, dst_view, dim, ctx) puts rank r's matrix behind those of the ranks below, by rows or by columns;
all_to_all(tile, src_view, dst_view, N_per_rank, ctx) puts rank i's column block j into rank j's column block i;
gather(tile, src_view, source_rank, ctx) returns another rank's tile, 0 outside the matrix.

001  Matrices, tiles, strides and numbers of programs of any kind.
002  all_gather by columns where a kernel knows that all ranks' columns together divide by 16, and one rank's do not.
"""

from conformance.x.tiles import run
from fixtures.requirement import requirement
from harness.cases.tile import TILE_MOVES, TileCase


def cases(ranks, op):
    from harness.cases.tile_strategies import tile_collectives

    return tile_collectives(ranks, op)


@requirement("X-MOVE-001", cases=cases, weight=2.0, op=TILE_MOVES)
def test_moving_tiles(check, case, op):
    check(run, case)


def share_cases(ranks):
    """Rows of input and output begin at multiples of 16 elements."""
    n = 16 + max(1, 16 // ranks)
    return [
        TileCase("all_gather_columns", "fp16", m, n, 16, 128, 4, wide=True, in_pad=-n % 16, out_pad=-ranks * n % 16)
        for m in (1, 17)
    ]


@requirement("X-MOVE-002", cases=share_cases, ranks=2)
def test_uneven_shares(check, case):
    check(run, case)
