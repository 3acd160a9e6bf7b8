"""Matrix products in Triton and Gluon, importable by spawned processes."""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@triton.jit
def matmul(
    a,
    b,
    c,
    m,
    n,
    k,
    a_row,
    a_column,
    b_row,
    b_column,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    PRECISION: tl.constexpr,
    ACC: tl.constexpr,
):
    """c[m, n] = a[m, k] @ b[k, n], with sides of any size; ACC is the type of the sums and of c."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    total = tl.zeros((M, N), ACC)
    for start in range(0, k, K):
        x = tl.load(
            a + rows[:, None] * a_row + (start + inner)[None, :] * a_column,
            mask=(rows[:, None] < m) & ((start + inner)[None, :] < k),
            other=0.0,
        )
        y = tl.load(
            b + (start + inner)[:, None] * b_row + columns[None, :] * b_column,
            mask=((start + inner)[:, None] < k) & (columns[None, :] < n),
            other=0.0,
        )
        total = tl.dot(x, y, total, input_precision=PRECISION, out_dtype=ACC)
    tl.store(c + rows[:, None] * n + columns[None, :], total, mask=(rows[:, None] < m) & (columns[None, :] < n))


@gluon.jit
def indices(SIDE: gl.constexpr, K: gl.constexpr, LAYOUT: gl.constexpr):
    """Return rows as [SIDE, 1] and columns as [1, K], in a layout of two dimensions."""
    i = gl.arange(0, SIDE, layout=gl.SliceLayout(1, LAYOUT))
    k = gl.arange(0, K, layout=gl.SliceLayout(0, LAYOUT))
    return i[:, None], k[None, :]


@gluon.jit
def gluon_mfma(
    a, b, c, d, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr, LAYOUT: gl.constexpr, WIDTH: gl.constexpr
):
    """d[M, N] = a[M, K] @ b[K, N] + c[M, N] by the MFMA that LAYOUT names.

    Each lane loads the elements that it holds: WIDTH successive k.
    """
    i, k = indices(M, K, gl.DotOperandLayout(0, LAYOUT, WIDTH))
    x = gl.load(a + i * K + k)
    k, j = indices(K, N, gl.DotOperandLayout(1, LAYOUT, WIDTH))
    y = gl.load(b + k * N + j)
    i, j = indices(M, N, LAYOUT)
    gl.store(d + i * N + j, gl.amd.cdna3.mfma(x, y, gl.load(c + i * N + j)))


@gluon.jit
def gluon_mfma_scaled(
    a,
    a_scale,
    b,
    b_scale,
    d,
    M: gl.constexpr,
    N: gl.constexpr,
    K: gl.constexpr,
    LAYOUT: gl.constexpr,
    A: gl.constexpr,
    B: gl.constexpr,
    A_PACK: gl.constexpr,
    B_PACK: gl.constexpr,
):
    """Compute ``scaled_matmul``; each lane loads the elements and the scales that it holds."""
    LEFT: gl.constexpr = gl.DotOperandLayout(0, LAYOUT, 16)
    RIGHT: gl.constexpr = gl.DotOperandLayout(1, LAYOUT, 16)
    i, k = indices(M, K // A_PACK, LEFT)
    x = gl.load(a + i * (K // A_PACK) + k)
    k, j = indices(K // B_PACK, N, RIGHT)
    y = gl.load(b + k * N + j)
    i, s = indices(M, K // 32, gl.amd.cdna4.get_mfma_scale_layout(LEFT, [M, K // 32]))
    x_scale = gl.load(a_scale + i * (K // 32) + s)
    j, s = indices(N, K // 32, gl.amd.cdna4.get_mfma_scale_layout(RIGHT, [N, K // 32]))
    y_scale = gl.load(b_scale + j * (K // 32) + s)
    i, j = indices(M, N, LAYOUT)
    zero = gl.zeros((M, N), gl.float32, LAYOUT)
    gl.store(d + i * N + j, gl.amd.cdna4.mfma_scaled(x, x_scale, A, y, y_scale, B, zero))


@triton.jit
def scaled_matmul(
    a,
    a_scale,
    b,
    b_scale,
    c,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    A: tl.constexpr,
    B: tl.constexpr,
    A_PACK: tl.constexpr,
    B_PACK: tl.constexpr,
    SCALE_A: tl.constexpr,
    SCALE_B: tl.constexpr,
):
    """c[M, N] = (a * 2**(a_scale - 127)) @ (b * 2**(b_scale - 127)), one scale per 32 k; two e2m1 share a byte."""
    i, j = tl.arange(0, M), tl.arange(0, N)
    ka, kb, s = tl.arange(0, K // A_PACK), tl.arange(0, K // B_PACK), tl.arange(0, K // 32)
    x = tl.load(a + i[:, None] * (K // A_PACK) + ka[None, :])
    y = tl.load(b + kb[:, None] * N + j[None, :])
    x_scale = None
    y_scale = None
    if SCALE_A:
        x_scale = tl.load(a_scale + i[:, None] * (K // 32) + s[None, :])
    if SCALE_B:
        y_scale = tl.load(b_scale + j[:, None] * (K // 32) + s[None, :])
    tl.store(c + i[:, None] * N + j[None, :], tl.dot_scaled(x, x_scale, A, y, y_scale, B))
