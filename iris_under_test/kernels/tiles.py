"""Assignment of tiles to programs: grouped tile order, and the order of programs over compute dies.

For Triton and Gluon kernels alike.
"""

import triton
import triton.language as tl

from iris_under_test.device.signals import behind

__all__ = ["grouped_tile", "share_of", "spread_over_xcds"]


@triton.jit
def grouped_tile(tile_id, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """Return (tile_m, tile_n) of a tile number: down columns of GROUP_M tile rows, so that neighbours share rows.

    Example: 3 x 2 tiles, GROUP_M 2: tiles 0..5 are (0,0) (1,0) (0,1) (1,1) (2,0) (2,1).
    """
    tiles_per_group = GROUP_M * tiles_n
    first_m = tile_id // tiles_per_group * GROUP_M
    rows = tiles_m - first_m
    if rows > GROUP_M:
        rows = rows * 0 + GROUP_M
    inside = tile_id % tiles_per_group
    return first_m + inside % rows, inside // rows


@triton.jit
def spread_over_xcds(pid, num_programs, NUM_XCDS: tl.constexpr, CHUNK: tl.constexpr):
    """Return the place of a program in a permutation that gives each compute die runs of CHUNK consecutive numbers.

    Hardware assigns programs to dies round-robin. Programs of an incomplete last round of chunks keep their number.

    Example: 10 programs, 2 dies, chunk 2: 0..9 become 0 2 1 3 4 6 5 7 8 9; die 0 runs 0 1 4 5, die 1 runs 2 3 6 7.
    """
    round_size: tl.constexpr = NUM_XCDS * CHUNK
    xcd = pid % NUM_XCDS
    local = pid // NUM_XCDS
    spread = local // CHUNK * round_size + xcd * CHUNK + local % CHUNK
    if pid >= num_programs // round_size * round_size:
        spread = pid
    return spread


@triton.jit
def share_of(tiles, member, root, SHARED: tl.constexpr, STRIDING: tl.constexpr, SIZE: tl.constexpr):
    """Return (first, count, stride) of the tiles that a member moves. STRIDING: every stride-th tile, else a run of
    tiles.

    SHARED: "none", every member moves all tiles; "root", only the root moves them; "all", the members divide them;
    "others", all members but the root divide them.

    Example: 7 tiles shared by 3 members: (0, 3, 1) (3, 3, 1) (6, 1, 1); striding (0, 3, 3) (1, 2, 3) (2, 2, 3).
    """
    first, count, stride = tiles * 0, tiles, 1
    if SHARED == "root":
        count = tiles * (member == root)
    elif SHARED != "none":
        sharers: tl.constexpr = SIZE if SHARED == "all" else SIZE - 1
        place = member if SHARED == "all" else behind(member, SIZE - root - 1, SIZE)
        if STRIDING:
            first, stride = tiles * 0 + place, sharers
            count = (tiles - place + sharers - 1) // sharers
        else:
            share = (tiles + sharers - 1) // sharers
            first = share * place
            count = tiles - first
            if count > share:
                count = share
        if SHARED == "others":
            count = count * (place < SIZE - 1)
        if count < 0:
            count = tiles * 0
    return first, count, stride
