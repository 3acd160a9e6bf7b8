"""Tiles of C and the product of one tile, which the fused kernels share.

Symbols: C (M, N) = A (M, K) @ B (K, N). Tiles of C have BLOCK_M x BLOCK_N elements and are numbered in the grouped
order of ``kernels.tiles``. Sums are kept in float32.
"""

# No postponed annotations here: Triton 3.6's aggregate reads the annotations as classes.
import triton
import triton.language as tl
from triton.language.core import _aggregate as aggregate

from iris_under_test.device.signals import behind
from iris_under_test.device.triton.address import translate

from .tiles import grouped_tile

__all__ = ["Inner", "add_product", "everywhere", "panel_of_tile", "place_of_tile", "tiles_of", "wide_product"]


@triton.jit
def tiles_of(M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return the number of tiles of C."""
    return tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)


@triton.jit
def wide_product(number, size):
    """Return ``number * size`` as int64: what lies before the block of that number, of blocks of ``size`` elements or
    rows. ``number``: a value of any integer type.
    """
    return number.to(tl.int64) * size


@triton.jit
def panel_of_tile(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Return the row of tiles that contains tile number ``tile``."""
    tile_m, _ = grouped_tile(tile, tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    return tile_m


@triton.jit
def place_of_tile(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Return rows (BLOCK_M, 1) and columns (1, BLOCK_N) of tile number ``tile``, int64; some may be beyond M and N."""
    tile_m, tile_n = grouped_tile(tile, tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP_M)
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    return rows.to(tl.int64)[:, None], columns.to(tl.int64)[None, :]


@aggregate
class Inner:
    """Inner loop of a product: BLOCK_K of K at a time. EVEN_K: K is a multiple of BLOCK_K. CACHE_A, CACHE_B: modifiers
    of the loads. PRECISION: ``input_precision`` of ``tl.dot``.
    """

    BLOCK_K: tl.constexpr
    EVEN_K: tl.constexpr
    CACHE_A: tl.constexpr
    CACHE_B: tl.constexpr
    PRECISION: tl.constexpr

    # A plain function here compiles on some Triton versions only.
    @triton.constexpr_function
    def __init__(self, BLOCK_K, EVEN_K, CACHE_A, CACHE_B, PRECISION):
        self.BLOCK_K = tl.constexpr(BLOCK_K)
        self.EVEN_K = tl.constexpr(EVEN_K)
        self.CACHE_A = tl.constexpr(CACHE_A)
        self.CACHE_B = tl.constexpr(CACHE_B)
        self.PRECISION = tl.constexpr(PRECISION)


@triton.jit
def add_product(total, a, b, rows, columns, M, N, K, inner):
    """Return ``total`` (BLOCK_M, BLOCK_N) float32 plus the product of rows of ``a`` and columns of ``b``, K from 0
    upwards.

    ``a`` and ``b``: ``Matrix``. ``inner``: ``Inner``.

    Example: K 40, BLOCK_K 16: three steps, of which the last has 8 of its 16 columns masked.
    """
    BLOCK_K: tl.constexpr = inner.BLOCK_K
    depth = tl.arange(0, BLOCK_K)
    a_places = a.ptr + rows * a.stride_m + depth.to(tl.int64)[None, :] * a.stride_n
    b_places = b.ptr + depth.to(tl.int64)[:, None] * b.stride_m + columns * b.stride_n
    block = tl.full((), BLOCK_K, tl.int64)
    a_step, b_step = block * a.stride_n, block * b.stride_m
    for start in range(0, K, BLOCK_K):
        a_mask, b_mask = rows < M, columns < N
        if not inner.EVEN_K:
            a_mask = a_mask & (depth[None, :] < K - start)
            b_mask = b_mask & (depth[:, None] < K - start)
        left = tl.load(a_places, mask=a_mask, other=0.0, cache_modifier=inner.CACHE_A)
        right = tl.load(b_places, mask=b_mask, other=0.0, cache_modifier=inner.CACHE_B)
        total = tl.dot(left, right, total, input_precision=inner.PRECISION)
        a_places += a_step
        b_places += b_step
    return total


@triton.jit
def everywhere(context_tensor, pointer, member, SIZE: tl.constexpr, ALIGNMENT: tl.constexpr):
    """Return ``pointer`` in each member's heap, starting with the caller's, so that not all writers begin with member
    0.
    """
    pointers = ()
    for step in tl.static_range(SIZE):
        pointers += (translate(pointer, context_tensor + 2, member, behind(member, step, SIZE), ALIGNMENT),)
    return pointers
