"""Indexed memory: gather, scatter, embedding with its gradient, transposes, join and split, strided windows."""

import torch
import triton
import triton.language as tl

from tests.corpus.case import case


@triton.jit
def embedding(table, index, out, D, BLOCK: tl.constexpr):
    row = tl.load(index + tl.program_id(0))
    j = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * D + j, tl.load(table + row * D + j, mask=j < D), mask=j < D)


@case({"dtype": torch.float16}, {"dtype": torch.float32})
def embedding_lookup(draw, dtype):
    table, index = draw.normal(40, 100, dtype=dtype), draw.integers(0, 40, 9, dtype=torch.int64)
    out = torch.empty(9, 100, dtype=dtype)
    embedding[(9,)](table, index, out, 100, BLOCK=128)
    return out, table[index]


@triton.jit
def embedding_gradient(index, dy, table, D, BLOCK: tl.constexpr):
    row = tl.load(index + tl.program_id(0))
    j = tl.arange(0, BLOCK)
    tl.atomic_add(table + row * D + j, tl.load(dy + tl.program_id(0) * D + j, mask=j < D), mask=j < D)


@case({"dtype": torch.float32}, {"dtype": torch.bfloat16}, {"dtype": torch.float16})
def embedding_backward(draw, dtype):
    index, dy = draw.integers(0, 6, 20, dtype=torch.int64), draw.integers(-5, 6, 20, 30).to(dtype)
    table = torch.zeros(6, 30, dtype=dtype)
    embedding_gradient[(20,)](index, dy, table, 30, BLOCK=32)
    return table, torch.zeros(6, 30, dtype=dtype).index_add_(0, index, dy)


@triton.jit
def scatter(x, index, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + tl.load(index + i, mask=i < n, other=0), tl.load(x + i, mask=i < n), mask=i < n)


@case(*({"dtype": t} for t in (torch.int8, torch.int16, torch.float32, torch.float64)))
def scatter_permutation(draw, dtype):
    x, index = draw.integers(-128, 128, 500).to(dtype), draw.permutation(500)
    out, wanted = torch.zeros(500, dtype=dtype), torch.zeros(500, dtype=dtype)
    scatter[(2,)](x, index, out, 500, BLOCK=256)
    wanted[index] = x
    return out, wanted


@triton.jit
def gather_tile(x, index, out, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + at, tl.gather(tl.load(x + at), tl.load(index + at), AXIS))


@case({"axis": 0, "warps": 4}, {"axis": 1, "warps": 1}, {"axis": 1, "warps": 4})
def gather_in_registers(draw, axis, warps):
    x = draw.integers(-9999, 9999, 32, 64)
    index = draw.integers(0, x.shape[axis], 32, 64)
    out = torch.empty_like(x)
    gather_tile[(1,)](x, index, out, M=32, N=64, AXIS=axis, num_warps=warps)
    return out, x.gather(axis, index.long())


@triton.jit
def transpose(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    tile = tl.load(x + i[:, None] * N + j[None, :], mask=(i < M)[:, None] & (j < N)[None, :])
    tl.store(out + j[:, None] * M + i[None, :], tl.trans(tile), mask=(j < N)[:, None] & (i < M)[None, :])


@case(*({"dtype": t} for t in (torch.int8, torch.float16, torch.float32, torch.float64)))
def transpose_matrix(draw, dtype):
    x = draw.integers(-100, 100, 70, 50).to(dtype)
    out = torch.empty(50, 70, dtype=dtype)
    transpose[(3, 1)](x, out, 70, 50, BM=32, BN=64)
    return out, x.T


@triton.jit
def permute_3d(x, out, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    a, b, c = tl.arange(0, A), tl.arange(0, B), tl.arange(0, C)
    v = tl.load(x + (a[:, None, None] * B + b[None, :, None]) * C + c[None, None, :])
    tl.store(out + (c[:, None, None] * A + a[None, :, None]) * B + b[None, None, :], tl.permute(v, (2, 0, 1)))


@case({"warps": 1}, {"warps": 4})
def permute_three_dimensions(draw, warps):
    x = draw.integers(-9999, 9999, 8, 16, 4)
    out = torch.empty(4, 8, 16, dtype=torch.int32)
    permute_3d[(1,)](x, out, A=8, B=16, C=4, num_warps=warps)
    return out, x.permute(2, 0, 1)


@triton.jit
def split_and_join(x, interleaved, swapped, reshaped, N: tl.constexpr):
    """De-interleave, and put together again in three ways."""
    i = tl.arange(0, 2 * N)
    even, odd = tl.split(tl.reshape(tl.load(x + i), (N, 2)))
    tl.store(interleaved + i, tl.interleave(even, odd))
    tl.store(swapped + i, tl.reshape(tl.join(odd, even), (2 * N,)))
    tl.store(reshaped + i, tl.reshape(tl.trans(tl.reshape(tl.load(x + i), (N // 4, 8))), (2 * N,)))


@case({"dtype": torch.int32}, {"dtype": torch.float16}, {"dtype": torch.int64})
def join_split_interleave(draw, dtype):
    x = draw.integers(-999, 999, 512).to(dtype)
    a, b, c = (torch.empty_like(x) for _ in "abc")
    split_and_join[(1,)](x, a, b, c, N=256)
    return [(a, x), (b, x.view(-1, 2).flip(1).reshape(-1)), (c, x.view(64, 8).T.reshape(-1))]


@triton.jit
def flip(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.flip(tl.load(x + i), dim=0))


@case()
def flip_vector(draw):
    x = draw.integers(-999, 999, 128)
    out = torch.empty_like(x)
    flip[(1,)](x, out, N=128)
    return out, x.flip(0)


@triton.jit
def descriptor_copy(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Tensor descriptors made on the device."""
    source = tl.make_tensor_descriptor(x, (M, N), (N, 1), (BM, BN))
    target = tl.make_tensor_descriptor(out, (M, N), (N, 1), (BM, BN))
    at = [tl.program_id(0) * BM, tl.program_id(1) * BN]
    target.store(at, source.load(at) * 2)


@case()
def tiles_by_descriptor(draw):
    x = draw.normal(50, 72)
    out = torch.zeros_like(x)
    descriptor_copy[(2, 3)](x, out, 50, 72, BM=32, BN=32)
    return out, x * 2


@triton.jit
def convolution(
    x, w, out, C: tl.constexpr, H, W, OUT: tl.constexpr, R: tl.constexpr, KP: tl.constexpr, BM: tl.constexpr
):
    """Image to columns on the fly: a product of [positions, C R R] and [C R R, OUT], padding 1."""
    p = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1)
    k = tl.arange(0, KP)
    c, r, s = k // (R * R), k // R % R, k % R
    row, column = (p // W)[:, None] + r[None, :] - 1, (p % W)[:, None] + s[None, :] - 1
    inside = (row >= 0) & (row < H) & (column >= 0) & (column < W) & (k < C * R * R)[None, :] & (p < H * W)[:, None]
    columns = tl.load(x + ((n * C + c[None, :]) * H + row) * W + column, mask=inside, other=0.0)
    o = tl.arange(0, OUT)
    weights = tl.load(w + o[None, :] * (C * R * R) + k[:, None], mask=(k < C * R * R)[:, None], other=0.0)
    tl.store(out + (n * OUT + o[None, :]) * H * W + p[:, None], tl.dot(columns, weights), mask=(p < H * W)[:, None])


@case()
def convolution_im2col(draw):
    x, w = draw.integers(-4, 5, 2, 5, 9, 10).half(), draw.integers(-4, 5, 16, 5, 3, 3).half()
    out = torch.empty(2, 16, 9, 10)
    convolution[(3, 2)](x, w, out, C=5, H=9, W=10, OUT=16, R=3, KP=64, BM=32)
    return out, torch.nn.functional.conv2d(x.double(), w.double(), padding=1)


@triton.jit
def max_pool(x, out, H, W, BLOCK: tl.constexpr):
    """2x2, stride 2, channels in the second and images in the third dimension of the grid."""
    plane = tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < (H // 2) * (W // 2)
    corner = x + plane * H * W + i // (W // 2) * 2 * W + i % (W // 2) * 2
    upper = tl.maximum(tl.load(corner, mask=inside), tl.load(corner + 1, mask=inside))
    lower = tl.maximum(tl.load(corner + W, mask=inside), tl.load(corner + W + 1, mask=inside))
    tl.store(out + plane * (H // 2) * (W // 2) + i, tl.maximum(upper, lower), mask=inside)


@case()
def max_pool_3d_grid(draw):
    x = draw.normal(2, 3, 12, 14)
    out = torch.empty(2, 3, 6, 7)
    max_pool[(2, 3, 2)](x, out, 12, 14, BLOCK=32, num_warps=1)
    return out, torch.nn.functional.max_pool2d(x, 2)
