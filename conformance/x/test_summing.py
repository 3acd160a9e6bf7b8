"""The five all_reduces of a tile, and reduce_scatter, give the exact sum of all ranks' tiles.

Every rank gets the sum, or for reduce_scatter(tile, src_view, dst_view, locks, ctx) only the tile's owner: of T tiles,
rank r of W owns the T // W tiles from number r * (T // W) on, and the last rank also owns the rest. Sums of fp16 and
bf16 are rounded once, except in all_reduce_atomic and all_reduce_spinlock, which add to the output itself. The three
ops with flags wait for each rank's tile; before, a flag is 0 or 2. At the end the flags are set, and the locks of
all_reduce_spinlock are free.

001  Matrices, tiles, strides and numbers of programs of any kind; with many ranks, mostly of fewer tiles than ranks.
002  Every rank owns tiles: the ops that divide the tiles among the ranks have code that a rank without a tile does not
     reach, and that each rank compiles for itself.
"""

from dataclasses import replace

from conformance.x.cases import TileCase
from conformance.x.operations import TILES, has_methods, names
from conformance.x.tiles import run
from fixtures.requirement import requirement


def cases(ranks, op):
    from conformance.x.strategies import tile_collectives

    return tile_collectives(ranks, op)


@requirement("X-SUM-001", cases=cases, weight=2.0, op=names(lambda op: op.sums))
def test_summing_tiles(check, case, op):
    check(run, case)


def share_cases(ranks, op):
    """Return cases of the kernels of 001: for W ranks, two rows of W + 1 tiles, each by a program of its own, and one
    row of 2 W + 1 tiles by three programs. The last tile of each dimension is ragged."""
    listed = []
    for aligned in (False, True):
        dtype, block_m, block_n, warps = TILES[op].aligned if aligned else TILES[op].unaligned
        for rows, columns, programs in ((2, ranks + 1, 0), (1, 2 * ranks + 1, 3)):
            m, n = (rows - 1) * block_m + 1, (columns - 1) * block_n + (16 if aligned else 1)
            methods = aligned and has_methods(op)
            shape = TileCase(op, dtype, m, n, block_m, block_n, warps, aligned=aligned)
            listed.append(replace(shape, programs=programs, methods=methods))
    return listed


@requirement("X-SUM-002", cases=share_cases, ranks=2, weak=False, op=names(lambda op: op.divides))
def test_shares(check, case, op):
    check(run, case)
