"""Kernels with planted bugs for mode ``check``, and clean ones, in Triton and Gluon."""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@triton.jit
def put(src, dst, loaded, stored, BLOCK: tl.constexpr):
    """dst = src; ``loaded`` and ``stored`` are the numbers of elements loaded and stored."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dst + offsets, tl.load(src + offsets, mask=offsets < loaded), mask=offsets < stored)


@triton.jit
def by_index(src, indices, dst, n, BLOCK: tl.constexpr):
    """dst[i] = src[indices[i]]: loaded data is used as an address."""
    offsets = tl.arange(0, BLOCK)
    where = tl.load(indices + offsets, mask=offsets < n)
    tl.store(dst + offsets, tl.load(src + where, mask=offsets < n), mask=offsets < n)


@triton.jit
def if_flag(flag, dst):
    """dst[0] = 1 if the flag is set: loaded data decides a branch."""
    if tl.load(flag) > 0:
        tl.store(dst, 1)


@gluon.jit
def hinted_put(src, dst, ALIGNED: gl.constexpr):
    """Store 16 bytes per lane, if the caller promises that the addresses are aligned."""
    offsets = gl.arange(0, 512, layout=gl.BlockedLayout([8], [64], [1], [0]))
    if ALIGNED:
        src = gl.multiple_of(src, 16)
        dst = gl.multiple_of(dst, 16)
    gl.store(dst + offsets, gl.load(src + offsets))


@gluon.jit
def turn_through_lds(src, dst, WARPS: gl.constexpr):
    """dst = src transposed, 64 x 64, through local memory: its barriers are Triton's own."""
    rows: gl.constexpr = gl.BlockedLayout([1, 4], [4, 16], [WARPS, 1], [1, 0])
    columns: gl.constexpr = gl.BlockedLayout([4, 1], [16, 4], [1, WARPS], [0, 1])
    i = gl.arange(0, 64, layout=gl.SliceLayout(1, rows))
    j = gl.arange(0, 64, layout=gl.SliceLayout(0, rows))
    tile = gl.load(src + i[:, None] * 64 + j[None, :])
    tile = gl.convert_layout(tile, columns)
    i = gl.arange(0, 64, layout=gl.SliceLayout(1, columns))
    j = gl.arange(0, 64, layout=gl.SliceLayout(0, columns))
    gl.store(dst + j[None, :] * 64 + i[:, None], tile)


@triton.jit
def row_shares(src, dst, columns, BLOCK: tl.constexpr):
    """dst = src divided by the sum of its row: DPP within a wavefront, LDS between them; all need the sum."""
    start = tl.program_id(0) * columns
    offsets = tl.arange(0, BLOCK)
    values = tl.load(src + start + offsets, mask=offsets < columns, other=0.0)
    tl.store(dst + start + offsets, values / tl.sum(values), mask=offsets < columns)


@gluon.jit
def wait_for(flag, dst):
    """Spin until flag[0] is 1, then dst[0] = 7."""
    while gl.atomic_add(flag, 0, sem="acquire", scope="gpu") != 1:
        pass
    gl.store(dst, 7)


@triton.jit
def product(a, b, c, SIZE: tl.constexpr, K: tl.constexpr):
    """c = a @ b, SIZE x K times K x SIZE, by MFMA."""
    i = tl.arange(0, SIZE)
    k = tl.arange(0, K)
    x = tl.load(a + i[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * SIZE + i[None, :])
    tl.store(c + i[:, None] * SIZE + i[None, :], tl.dot(x, y))
