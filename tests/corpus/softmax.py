"""Softmax over rows: a row in one block, and a row in several (online), with its backward."""

import torch
import triton
import triton.language as tl

from tests.corpus.case import FP32, case, half_of


@triton.jit
def softmax_row(x, out, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + j, mask=j < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * stride + j, (e / tl.sum(e, axis=0)).to(out.dtype.element_ty), mask=j < n)


@case(
    {"dtype": torch.float32, "n": 200, "warps": 4, "within": FP32},
    {"dtype": torch.float32, "n": 1000, "warps": 16, "within": FP32},
    {"dtype": torch.float16, "n": 64, "warps": 1, "within": half_of(torch.float16, 1e-7)},
    {"dtype": torch.bfloat16, "n": 300, "warps": 2, "within": half_of(torch.bfloat16, 1e-7)},
)
def softmax_one_pass(draw, dtype, n, warps):
    x = draw.normal(5, n, dtype=dtype)
    out = torch.empty_like(x)
    softmax_row[(5,)](x, out, x.stride(0), n, BLOCK=triton.next_power_of_2(n), num_warps=warps)
    return out, x.double().softmax(1)


@triton.jit
def softmax_online(x, out, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0) * stride
    top = -float("inf")
    total = 0.0
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        v = tl.load(x + row + j, mask=j < n, other=-float("inf"))
        new = tl.maximum(top, tl.max(v, axis=0))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(v - new), axis=0)
        top = new
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        v = tl.load(x + row + j, mask=j < n)
        tl.store(out + row + j, tl.exp(v - top) / total, mask=j < n)


@case({"stages": 1}, {"stages": 3}, within=FP32)
def softmax_several_blocks(draw, stages):
    x = draw.normal(4, 700)
    out = torch.empty_like(x)
    softmax_online[(4,)](x, out, x.stride(0), 700, BLOCK=128, num_warps=2, num_stages=stages)
    return out, x.double().softmax(1)


@triton.jit
def softmax_tile(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.arange(0, BN)
    at = i[:, None] * N + j[None, :]
    inside = (i < M)[:, None] & (j < N)[None, :]
    v = tl.load(x + at, mask=inside, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=1, keep_dims=True))
    tl.store(out + at, e / tl.sum(e, axis=1, keep_dims=True), mask=inside)


@case(within=FP32)
def softmax_of_tile(draw):
    x = draw.normal(20, 60)
    out = torch.empty_like(x)
    softmax_tile[(2,)](x, out, 20, 60, BM=16, BN=64)
    return out, x.double().softmax(1)


@triton.jit
def softmax_backward(y, dy, dx, n, BLOCK: tl.constexpr):
    row = tl.program_id(0) * n
    j = tl.arange(0, BLOCK)
    p = tl.load(y + row + j, mask=j < n, other=0.0)
    g = tl.load(dy + row + j, mask=j < n, other=0.0)
    tl.store(dx + row + j, p * (g - tl.sum(p * g, axis=0)), mask=j < n)


@case(within=FP32)
def softmax_gradient(draw):
    x, g = draw.normal(6, 100).requires_grad_(), draw.normal(6, 100)
    y = x.softmax(1)
    y.backward(g)
    dx = torch.empty_like(g)
    softmax_backward[(6,)](y.detach(), g, dx, 100, BLOCK=128)
    return dx, x.grad
