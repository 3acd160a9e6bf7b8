"""Kernels with features that ordinary ones lack: spills, 3-D grids, large work-groups, asynchronous copies."""

import triton
import triton.language as tl


@triton.jit
def running_sum(a, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(a + i)
    tl.store(out + i, tl.cumsum(x, 0) * tl.flip(x, 0) + x)


@triton.jit
def product(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x, y = tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :])
    tl.store(c + m[:, None] * N + n[None, :], tl.dot(x, y))


@triton.jit
def pipelined(a, b, c, K, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, STEP)
    total = tl.zeros((M, N), tl.float32)
    for start in tl.range(0, K, STEP, num_stages=2):
        x = tl.load(a + m[:, None] * K + (start + k)[None, :])
        y = tl.load(b + (start + k)[:, None] * N + n[None, :])
        total = tl.dot(x, y, total)
    tl.store(c + m[:, None] * N + n[None, :], total)


@triton.jit
def where_am_i(out, BLOCK: tl.constexpr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    number = (z * tl.num_programs(1) + y) * tl.num_programs(0) + x
    i = tl.arange(0, BLOCK)
    tl.store(out + number * BLOCK + i, number * BLOCK + i)


@triton.jit
def total(a, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.sum(tl.load(a + i), 0) + i)
