"""Which tile a program works on: grouped tile order, and the order of programs over compute dies.

The functions use no name of a language module, so that Triton and Gluon kernels share them: ``grouped_tile`` for Gluon
kernels, ``triton_grouped_tile`` for Triton's, and so on.
"""

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

__all__ = ["grouped_tile", "spread_over_xcds", "triton_grouped_tile", "triton_spread_over_xcds"]


def _grouped_tile(tile_id, tiles_m, tiles_n, GROUP_M: gl.constexpr):
    """(tile_m, tile_n) of a tile number: down columns of GROUP_M tile rows, so that neighbours share rows.

    Example: 3 x 2 tiles, GROUP_M 2: tiles 0..5 are (0,0) (1,0) (0,1) (1,1) (2,0) (2,1).
    """
    tiles_per_group = GROUP_M * tiles_n
    first_m = tile_id // tiles_per_group * GROUP_M
    rows = tiles_m - first_m
    if rows > GROUP_M:
        rows = rows * 0 + GROUP_M
    inside = tile_id % tiles_per_group
    return first_m + inside % rows, inside // rows


def _spread_over_xcds(pid, num_programs, NUM_XCDS: gl.constexpr, CHUNK: gl.constexpr):
    """A permutation of the programs that gives each compute die runs of CHUNK consecutive numbers.

    Hardware deals programs to dies round-robin. Programs of an incomplete last round of chunks keep their number.

    Example: 10 programs, 2 dies, chunk 2: 0..9 become 0 2 1 3 4 6 5 7 8 9; die 0 runs 0 1 4 5, die 1 runs 2 3 6 7.
    """
    round_size: gl.constexpr = NUM_XCDS * CHUNK
    xcd = pid % NUM_XCDS
    local = pid // NUM_XCDS
    spread = local // CHUNK * round_size + xcd * CHUNK + local % CHUNK
    if pid >= num_programs // round_size * round_size:
        spread = pid
    return spread


grouped_tile, spread_over_xcds = gluon.jit(_grouped_tile), gluon.jit(_spread_over_xcds)
triton_grouped_tile, triton_spread_over_xcds = triton.jit(_grouped_tile), triton.jit(_spread_over_xcds)
