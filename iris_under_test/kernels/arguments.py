"""Parameters of the bodies of kernels: the group, a matrix, the tiles into which it is divided.

A kernel's entry point creates them from its own parameters. So Triton keeps its knowledge of those (a stride that is 1,
a pointer that 16 divides), and the compiled code is that of a body with all of them as parameters.
"""

# No postponed annotations here: Triton 3.6's aggregate reads the annotations as classes.
import triton
import triton.language as tl
from triton.language.core import _aggregate as aggregate

from iris_under_test.device.signals import behind, first_turn, signal, wait
from iris_under_test.device.triton.address import translate

from .tiles import grouped_tile, spread_over_xcds

__all__ = ["Group", "Matrix", "Tiling", "tiled"]

_NUMBER = (tl.tensor, tl.constexpr)
"""Type of a field that holds a value, or a constant if the compiler knows it (such as an argument that is 1)."""


@triton.constexpr_function
def _number(value):
    return value if isinstance(value, tl.tensor) else tl.constexpr(value)


@aggregate
class Group:
    """Members of a collective, from the point of view of one of them.

    ``context``: the context tensor. ``pads``: see ``device.signals``. ``member``: the place of this member. ``SIZE``:
    number of members.
    """

    context: tl.tensor
    pads: tl.tensor
    member: _NUMBER
    SIZE: tl.constexpr

    # A plain function here compiles on some Triton versions only.
    @triton.constexpr_function
    def __init__(self, context, pads, member, SIZE):
        self.context = context
        self.pads = pads
        self.member = _number(member)
        self.SIZE = tl.constexpr(SIZE)

    @triton.jit
    def first_turn(self, program):
        """See ``device.signals.first_turn``."""
        return first_turn(self.pads, self.member, self.SIZE, program)

    @triton.jit
    def signal(self, program, turn):
        """See ``device.signals.signal``."""
        signal(self.pads, self.member, self.SIZE, program, turn)

    @triton.jit
    def wait(self, program, turn):
        """See ``device.signals.wait``."""
        wait(self.pads, self.SIZE, program, turn)

    @triton.jit
    def behind(self, step):
        """Return the member ``step`` places after this one, round the group."""
        return behind(self.member, step, self.SIZE)

    @triton.jit
    def translate(self, pointer, peer, alignment: tl.constexpr):
        """Return ``pointer`` moved to the heap of ``peer``; it is aligned to ``alignment`` bytes."""
        return translate(pointer, self.context + 2, self.member, peer, alignment)


@aggregate
class Matrix:
    """Two-dimensional tensor in memory: its first element, and strides in elements.

    ``step``: elements from one member's part to the next one's, 0 if there are no parts. ``ALIGNMENT``: number of bytes
    that divides the address, on every member. WIDE: each 4 bytes of a row are adjacent elements, all within the row,
    that start at a multiple of 4 bytes.
    """

    ptr: tl.tensor
    stride_m: _NUMBER
    stride_n: _NUMBER
    step: _NUMBER
    ALIGNMENT: tl.constexpr
    WIDE: tl.constexpr

    @triton.constexpr_function
    def __init__(self, ptr, stride_m, stride_n, step=0, ALIGNMENT=1, WIDE=False):
        self.ptr = ptr
        self.stride_m = _number(stride_m)
        self.stride_n = _number(stride_n)
        self.step = _number(step)
        self.ALIGNMENT = tl.constexpr(ALIGNMENT)
        self.WIDE = tl.constexpr(WIDE)

    @triton.jit
    def offsets(self, rows, columns):
        """Return the elements from the first one to those in ``rows`` and ``columns``."""
        return rows * self.stride_m + columns * self.stride_n


@aggregate
class Tiling:
    """(M, N) elements in ``tiles_m`` x ``tiles_n`` tiles of BLOCK_M x BLOCK_N, numbered in grouped order.

    ``lanes``: 0 to the elements of a block - 1, in the layout of the kernel; the fastest index runs along N. NUM_XCDS
    and CHUNK: see ``tiles.spread_over_xcds``.
    """

    M: _NUMBER
    N: _NUMBER
    tiles_m: _NUMBER
    tiles_n: _NUMBER
    lanes: tl.tensor
    BLOCK_M: tl.constexpr
    BLOCK_N: tl.constexpr
    GROUP_M: tl.constexpr
    NUM_XCDS: tl.constexpr
    CHUNK: tl.constexpr

    @triton.constexpr_function
    def __init__(self, M, N, tiles_m, tiles_n, lanes, BLOCK_M, BLOCK_N, GROUP_M, NUM_XCDS=1, CHUNK=1):
        self.M = _number(M)
        self.N = _number(N)
        self.tiles_m = _number(tiles_m)
        self.tiles_n = _number(tiles_n)
        self.lanes = lanes
        self.BLOCK_M = tl.constexpr(BLOCK_M)
        self.BLOCK_N = tl.constexpr(BLOCK_N)
        self.GROUP_M = tl.constexpr(GROUP_M)
        self.NUM_XCDS = tl.constexpr(NUM_XCDS)
        self.CHUNK = tl.constexpr(CHUNK)

    @triton.jit
    def first(self, program, programs):
        """Return the first tile of a program, which then takes every ``programs``-th one."""
        return spread_over_xcds(program, programs, self.NUM_XCDS, self.CHUNK)

    @triton.jit
    def place(self, tile):
        """Return (tile_m, tile_n) of a tile number."""
        return grouped_tile(tile, self.tiles_m, self.tiles_n, self.GROUP_M)

    @triton.jit
    def elements(self, tile):
        """Return rows and columns (int64) of a tile, and a mask of valid elements: all false after the last tile."""
        tile_m, tile_n = self.place(tl.minimum(tile, self.tiles_m * self.tiles_n - 1))
        rows = tile_m.to(tl.int64) * self.BLOCK_M + self.lanes // self.BLOCK_N
        columns = tile_n.to(tl.int64) * self.BLOCK_N + self.lanes % self.BLOCK_N
        there = tile < self.tiles_m * self.tiles_n
        return rows, columns, (rows < self.M) & (columns < self.N) & there


@triton.jit
def tiled(
    M, N, lanes, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr,
    NUM_XCDS: tl.constexpr = 1, CHUNK: tl.constexpr = 1,
):  # fmt: skip
    """Return the ``Tiling`` of (M, N) elements; the last tile of a row or column may extend beyond them."""
    return Tiling(
        M, N, tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), lanes, BLOCK_M, BLOCK_N, GROUP_M, NUM_XCDS, CHUNK
    )  # fmt: skip
