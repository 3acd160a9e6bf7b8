"""all_gather, all_to_all and gather of a tile: every element reaches its place, and no other memory changes.

all_gather(tile, dst_view, dim, ctx) joins the ranks' matrices in rank order, by rows or by columns;
all_to_all(tile, src_view, dst_view, N_per_rank, ctx) puts rank i's column block j into rank j's column block i;
gather(tile, src_view, source_rank, ctx) returns another rank's tile, 0 outside the matrix.

001  Matrices, tiles, strides and numbers of programs of any kind.
002  all_gather by columns, in a kernel specialized on a total number of columns that 16 divides, although 16 does not
     divide one rank's columns. With an odd number of ranks no such number exists: 16 then divides both.
"""

import math
from dataclasses import replace

from conformance.x.cases import TileCase
from conformance.x.operations import has_methods, names
from conformance.x.tiles import moves, run
from fixtures.requirement import requirement


def cases(ranks, op):
    from conformance.x.strategies import tile_collectives

    return tile_collectives(ranks, op)


@requirement("X-MOVE-001", moves=moves, cases=cases, weight=2.0, op=names(lambda op: not op.sums))
def test_moving_tiles(check, case, op):
    check(run, case)


def uneven_cases(ranks):
    """Return cases in which the rows of input and output begin at multiples of 16 elements: one row, and several."""
    n = 16 + 16 // math.gcd(16, ranks)
    return [
        TileCase(
            "all_gather_columns",
            "fp16",
            m,
            n,
            16,
            128,
            4,
            methods=has_methods("all_gather_columns"),
            aligned=True,
            in_pad=-n % 16,
            out_pad=-ranks * n % 16,
        )
        for m in (1, 17)
    ]


def run_uneven(env, case):
    """Call the method on odd ranks and the function on the others. Each rank's kernel is another one anyway."""
    return run(env, replace(case, methods=case.methods and env.rank % 2 == 1))


@requirement("X-MOVE-002", cases=uneven_cases, ranks=2)
def test_uneven_shares(check, case):
    check(run_uneven, case)
