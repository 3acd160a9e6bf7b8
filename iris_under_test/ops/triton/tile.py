"""What the fused kernels share: which tile is where, and the product of one tile.

Symbols: C (M, N) = A (M, K) @ B (K, N). Tiles of C have BLOCK_M x BLOCK_N elements and are numbered in the grouped
order of ``ccl.tiles``. Sums are kept in float32.
"""

import triton
import triton.language as tl

from iris_under_test.ccl.tiles import triton_grouped_tile
from iris_under_test.device.signals import behind
from iris_under_test.device.triton import translate

__all__ = ["add_product", "everywhere", "panel_of_tile", "place_of_tile", "tiles_of"]


@triton.jit
def tiles_of(M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """How many tiles C has."""
    return tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)


@triton.jit
def panel_of_tile(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """The row of tiles that tile number ``tile`` stands in."""
    tile_m, _ = triton_grouped_tile(tile, tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    return tile_m


@triton.jit
def place_of_tile(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Rows (BLOCK_M, 1) and columns (1, BLOCK_N) of tile number ``tile``, int64; some may lie beyond M and N."""
    tile_m, tile_n = triton_grouped_tile(tile, tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    return rows.to(tl.int64)[:, None], columns.to(tl.int64)[None, :]


@triton.jit
def add_product(
    total, a, b, rows, columns, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr, CACHE_A: tl.constexpr, CACHE_B: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """``total`` (BLOCK_M, BLOCK_N) float32 plus the product of rows of ``a`` and columns of ``b``, K from 0 upwards.

    EVEN_K: K is a multiple of BLOCK_K.

    Example: K 40, BLOCK_K 16: three steps, of which the last has 8 of its 16 columns masked.
    """
    depth = tl.arange(0, BLOCK_K)
    a_places = a + rows * stride_am + depth.to(tl.int64)[None, :] * stride_ak
    b_places = b + depth.to(tl.int64)[:, None] * stride_bk + columns * stride_bn
    block = tl.full((), BLOCK_K, tl.int64)
    a_step, b_step = block * stride_ak, block * stride_bk
    for start in range(0, K, BLOCK_K):
        a_mask, b_mask = rows < M, columns < N
        if not EVEN_K:
            a_mask = a_mask & (depth[None, :] < K - start)
            b_mask = b_mask & (depth[:, None] < K - start)
        left = tl.load(a_places, mask=a_mask, other=0.0, cache_modifier=CACHE_A)
        right = tl.load(b_places, mask=b_mask, other=0.0, cache_modifier=CACHE_B)
        total = tl.dot(left, right, total, input_precision=PRECISION)
        a_places += a_step
        b_places += b_step
    return total


@triton.jit
def everywhere(context_tensor, pointer, member, SIZE: tl.constexpr, ALIGNMENT: tl.constexpr):
    """``pointer`` as each member has it, starting with the own one: writers do not all begin with member 0."""
    pointers = ()
    for step in tl.static_range(SIZE):
        pointers += (translate(pointer, context_tensor + 2, member, behind(member, step, SIZE), ALIGNMENT),)
    return pointers
