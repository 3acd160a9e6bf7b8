"""Order: sort, top-k, argmax and argmin with ties, histogram, unique counts."""

import torch
import triton
import triton.language as tl

from tests.corpus.case import case


@triton.jit
def sort_rows(x, out, M: tl.constexpr, N: tl.constexpr, DESCENDING: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + at, tl.sort(tl.load(x + at), descending=DESCENDING))


@case(
    {"dtype": torch.float32, "descending": True, "warps": 1},
    {"dtype": torch.float16, "descending": False, "warps": 2},
    {"dtype": torch.int64, "descending": True, "warps": 4},
    {"dtype": torch.uint8, "descending": False, "warps": 4},
)
def sort(draw, dtype, descending, warps):
    x = draw.integers(0, 200, 4, 64).to(dtype)
    out = torch.empty_like(x)
    sort_rows[(1,)](x, out, M=4, N=64, DESCENDING=descending, num_warps=warps)
    return out, x.sort(1, descending=descending).values


@triton.jit
def top_k_rows(x, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    best = tl.topk(tl.load(x + i[:, None] * N + j[None, :]), K)
    tl.store(out + i[:, None] * K + tl.arange(0, K)[None, :], best)


@case({"dtype": torch.float32, "k": 8}, {"dtype": torch.int16, "k": 2})
def top_k(draw, dtype, k):
    x = draw.integers(-1000, 1000, 8, 64).to(dtype)
    out = torch.empty(8, k, dtype=dtype)
    top_k_rows[(1,)](x, out, M=8, N=64, K=k)
    return out, x.topk(k, 1).values


@triton.jit
def extremes(x, values, indices, n, MAX: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + j, mask=j < n, other=-float("inf") if MAX else float("inf"))
    if MAX:
        best, where = tl.max(v, axis=0, return_indices=True)
    else:
        best, where = tl.min(v, axis=0, return_indices=True)
    tl.store(values + row, best)
    tl.store(indices + row, where)


@case(*({"largest": m, "n": n, "warps": w} for m, n, w in ((True, 200, 4), (False, 200, 1), (True, 1000, 8))))
def argmax_argmin(draw, largest, n, warps):
    x = draw.integers(-50, 51, 5, n).float()  # ties: the first index wins
    values, indices = torch.empty(5), torch.empty(5, dtype=torch.int32)
    extremes[(5,)](x, values, indices, n, MAX=largest, BLOCK=triton.next_power_of_2(n), num_warps=warps)
    best = x.amax(1) if largest else x.amin(1)
    first = (x == best[:, None]).int().argmax(1).int()
    return [(values, best), (indices, first)]


@triton.jit
def reductions(x, out, n, AXIS: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    """Six reductions of a tile, and their results one after the other."""
    v = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    length: tl.constexpr = N if AXIS == 0 else M
    at = out + tl.arange(0, length)
    tl.store(at, tl.sum(v, axis=AXIS))
    tl.store(at + length, tl.max(v, axis=AXIS))
    tl.store(at + 2 * length, tl.min(v, axis=AXIS))
    tl.store(at + 3 * length, tl.xor_sum(v, axis=AXIS))
    tl.store(at + 4 * length, tl.argmax(v, axis=AXIS))
    tl.store(at + 5 * length, tl.reduce_or(v, axis=AXIS))


@case({"axis": 0, "warps": 1}, {"axis": 1, "warps": 1}, {"axis": 0, "warps": 8}, {"axis": 1, "warps": 4})
def reduce_tile(draw, axis, warps):
    m, n = 32, 64
    x = draw.integers(-100, 100, m, n)
    length = n if axis == 0 else m
    out = torch.empty(6, length, dtype=torch.int32)
    reductions[(1,)](x, out, n, AXIS=axis, M=m, N=n, num_warps=warps)
    top = x.amax(axis)
    first = (x == top.unsqueeze(axis)).int().argmax(axis)
    xor, either = torch.zeros(length, dtype=torch.int32), torch.zeros(length, dtype=torch.int32)
    for row in x if axis == 0 else x.T:
        xor, either = xor ^ row, either | row
    return out, torch.stack([t.int() for t in (x.sum(axis), top, x.amin(axis), xor, first, either)])


@triton.jit
def count(x, out, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    h = tl.histogram(tl.load(x + i, mask=i < n, other=0), BINS, mask=i < n)
    tl.atomic_add(out + tl.arange(0, BINS), h)


@case({"bins": 16, "warps": 4}, {"bins": 128, "warps": 2})
def histogram(draw, bins, warps):
    x = draw.integers(0, bins, 900)
    out = torch.zeros(bins, dtype=torch.int32)
    count[(2,)](x, out, 900, BINS=bins, BLOCK=512, num_warps=warps)
    return out, torch.bincount(x, minlength=bins).int()
