"""Kernels with what engineers leave in while they look for a bug: device_print, device_assert, static checks."""

import torch
import triton
import triton.language as tl

from tests.corpus.case import case


@triton.jit
def printing(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0)
    total = tl.sum(v, axis=0)
    tl.device_print("total", total)
    tl.store(out, total)


@case()
def device_print(draw):
    x = draw.integers(-99, 99, 100)
    out = torch.zeros(1, dtype=torch.int32)
    printing[(1,)](x, out, 100, BLOCK=128, num_warps=1)
    return out, x.sum().int().view(1)


@triton.jit
def asserting(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=1)
    tl.static_assert(BLOCK >= 64)
    tl.device_assert(v > 0, "not positive")
    tl.store(out + i, 100 // v, mask=i < n)


@case()
def device_assert_that_holds(draw):
    x = draw.integers(1, 99, 100)
    out = torch.zeros_like(x)
    asserting[(1,)](x, out, 100, BLOCK=128, debug=True)
    return out, 100 // x
