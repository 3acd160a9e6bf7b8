"""Tiles of two-dimensional views, for Triton kernels: the part of a tensor that a program works on.

    view = make_tensor_view(pointer, M, N, stride_m, stride_n)
    tile = TileView(pid_m, pid_n, BLOCK_M, BLOCK_N)
    pointers, mask = view.tile_ptr(tile)
    data = tl.load(pointers, mask=mask)

Sizes and strides count elements; all arithmetic is 64-bit, so views may hold more than 2^31 elements. Triton's
knowledge of pointer, sizes and strides is preserved: accesses are 16 bytes wide if rows are contiguous (``stride_n`` is
an argument that is 1) and the pointer's address, ``stride_m``, ``N`` and ``BLOCK_N`` are known to divide by 16.

Example: M 3, N 5, strides 5 and 1, tile (1, 1) of 2 x 4 elements: rows 2 3, columns 4 5 6 7; only (2, 4), at element
14, is in the view.
"""

# No postponed annotations here: Triton 3.6's aggregate reads the annotations as classes.
import triton
import triton.language as tl
from triton.language.core import _aggregate as aggregate

from iris_under_test.device.cache_key import SourceHash

NUMBER = (tl.tensor, tl.constexpr)
"""Type of a field that holds a value, or a constant if the compiler knows it (such as an argument that is 1)."""

__all__ = ["TensorView", "Tile", "TileView", "make_tensor_view", "offset_ptr", "tile_layout", "tile_ptr"]


@triton.constexpr_function
def _number(value):
    return value if isinstance(value, tl.tensor) else tl.constexpr(value)


@triton.jit
def tile_layout(pid_m, pid_n, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return (rows, columns, mask) of tile (pid_m, pid_n): int64 blocks of BLOCK_M and BLOCK_N, and whether each
    element is in (M, N).
    """
    rows = tl.cast(pid_m, tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.cast(pid_n, tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    return rows, columns, (rows < M)[:, None] & (columns < N)[None, :]


@triton.jit
def offset_ptr(ptr, stride_m, stride_n, offset_m, offset_n):
    """Return ``ptr`` moved by ``offset_m`` rows and ``offset_n`` columns, scalars or blocks; computed in 64 bits."""
    return ptr + (tl.cast(offset_m, tl.int64) * stride_m + tl.cast(offset_n, tl.int64) * stride_n)


@triton.jit
def tile_ptr(ptr, M, N, stride_m, stride_n, pid_m, pid_n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return (pointers, mask) of tile (pid_m, pid_n) of the (M, N) view at ``ptr``, blocks of BLOCK_M x BLOCK_N."""
    rows, columns, mask = tile_layout(pid_m, pid_n, M, N, BLOCK_M, BLOCK_N)
    return offset_ptr(ptr, stride_m, stride_n, rows[:, None], columns[None, :]), mask


@aggregate
class TileView:
    """Place of a tile: its number along each dimension, and its size, constexpr powers of two."""

    pid_m: NUMBER
    pid_n: NUMBER
    block_m: tl.constexpr
    block_n: tl.constexpr

    # A plain function here compiles on some Triton versions only.
    @triton.constexpr_function
    def __init__(self, pid_m, pid_n, block_m, block_n):
        self.pid_m = _number(pid_m)
        self.pid_n = _number(pid_n)
        self.block_m = tl.constexpr(block_m)
        self.block_n = tl.constexpr(block_n)

    @triton.jit
    def indices(self):
        """Return (rows, columns): int64 blocks of ``block_m`` and ``block_n``."""
        rows, columns, _ = tile_layout(self.pid_m, self.pid_n, 0, 0, self.block_m, self.block_n)
        return rows, columns

    @triton.jit
    def layout(self, M, N):
        """Return (rows, columns, mask): as ``indices``, and whether each element is within (M, N)."""
        return tile_layout(self.pid_m, self.pid_n, M, N, self.block_m, self.block_n)


@aggregate
class Tile:
    """``TileView`` with the tile's elements: ``data`` is a block of ``block_m`` x ``block_n``."""

    pid_m: NUMBER
    pid_n: NUMBER
    block_m: tl.constexpr
    block_n: tl.constexpr
    data: tl.tensor

    @triton.constexpr_function
    def __init__(self, pid_m, pid_n, block_m, block_n, data):
        self.pid_m = _number(pid_m)
        self.pid_n = _number(pid_n)
        self.block_m = tl.constexpr(block_m)
        self.block_n = tl.constexpr(block_n)
        self.data = data

    @triton.jit
    def indices(self):
        """See ``TileView.indices``."""
        rows, columns, _ = tile_layout(self.pid_m, self.pid_n, 0, 0, self.block_m, self.block_n)
        return rows, columns

    @triton.jit
    def layout(self, M, N):
        """See ``TileView.layout``."""
        return tile_layout(self.pid_m, self.pid_n, M, N, self.block_m, self.block_n)


@aggregate
class TensorView:
    """(M, N) tensor in memory: ``ptr`` to its first element, strides in elements. ``make_tensor_view`` creates it."""

    ptr: tl.tensor
    M: NUMBER
    N: NUMBER
    stride_m: NUMBER
    stride_n: NUMBER

    @triton.constexpr_function
    def __init__(self, ptr, M, N, stride_m, stride_n):
        self.ptr = ptr
        self.M = _number(M)
        self.N = _number(N)
        self.stride_m = _number(stride_m)
        self.stride_n = _number(stride_n)

    @triton.jit
    def tile_ptr(self, tile):
        """Return (pointers, mask) of ``tile``, a Tile or TileView; elements outside the view are masked off."""
        rows, columns, mask = tile.layout(self.M, self.N)
        return offset_ptr(self.ptr, self.stride_m, self.stride_n, rows[:, None], columns[None, :]), mask

    @triton.jit
    def offset_tile_ptr(self, tile, offset_m=0, offset_n=0, src_mask=None):
        """Return (pointers, mask) of ``tile``, shifted by ``offset_m`` rows and ``offset_n`` columns.

        The mask is true where the shifted element is in the view and ``src_mask``, if passed, is true. Offsets must
        not be negative.
        """
        rows, columns = tile.indices()
        return self.tile_ptr_from_indices(rows + offset_m, columns + offset_n, src_mask)

    @triton.jit
    def tile_ptr_from_indices(self, rows, columns, src_mask=None):
        """Return (pointers, mask) of the elements in these rows and columns, one-dimensional blocks."""
        mask = (rows < self.M)[:, None] & (columns < self.N)[None, :]
        if src_mask is not None:
            mask = mask & src_mask
        return offset_ptr(self.ptr, self.stride_m, self.stride_n, rows[:, None], columns[None, :]), mask

    @triton.jit
    def offset(self, offset_m, offset_n):
        """Return the view that starts ``offset_m`` rows and ``offset_n`` columns after the start of this one."""
        ptr = offset_ptr(self.ptr, self.stride_m, self.stride_n, offset_m, offset_n)
        M, N = tl.cast(self.M, tl.int64) - offset_m, tl.cast(self.N, tl.int64) - offset_n
        return TensorView(ptr, M, N, self.stride_m, self.stride_n)

    @triton.jit
    def number_of_tiles(self, block_m, block_n):
        """Return the number of tiles of that size that cover the view; the last of a row or column may extend beyond
        it.
        """
        return tl.cdiv(tl.cast(self.M, tl.int64), block_m) * tl.cdiv(tl.cast(self.N, tl.int64), block_n)


@triton.jit
def make_tensor_view(ptr, M, N, stride_m, stride_n):
    """Return the (M, N) view at ``ptr``. Strides in elements; strides and sizes may be constants or values."""
    return TensorView(ptr, M, N, stride_m, stride_n)


for _kind in (TileView, Tile, TensorView):
    _kind.cache_key = SourceHash()
