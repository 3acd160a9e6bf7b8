"""Scans: running sums and products, associative scans, reverse, over either axis; a selective state-space scan."""

import torch
import triton
import triton.language as tl

from tests.corpus.case import FP32, Within, case


@triton.jit
def cumulative(x, out, OP: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    v = tl.load(x + at)
    scanned = tl.cumsum(v, axis=AXIS, reverse=REVERSE) if OP == "sum" else tl.cumprod(v, axis=AXIS, reverse=REVERSE)
    tl.store(out + at, scanned)


@case(
    {"dtype": torch.int32, "axis": 0, "reverse": False, "warps": 4},
    {"dtype": torch.int32, "axis": 1, "reverse": True, "warps": 8},
    {"dtype": torch.float32, "axis": 1, "reverse": False, "warps": 1},
    {"dtype": torch.float16, "axis": 0, "reverse": True, "warps": 2},
    {"dtype": torch.int64, "axis": 1, "reverse": False, "warps": 16},
    {"dtype": torch.float64, "axis": 0, "reverse": False, "warps": 4},
)
def cumsum(draw, dtype, axis, reverse, warps):
    x = draw.integers(-5, 6, 32, 64).to(dtype)  # small integers: every partial sum is exact
    out = torch.empty_like(x)
    cumulative[(1,)](x, out, OP="sum", AXIS=axis, REVERSE=reverse, M=32, N=64, num_warps=warps)
    wanted = x.double().flip(axis).cumsum(axis).flip(axis) if reverse else x.double().cumsum(axis)
    return out, wanted.to(dtype)


@case()
def cumprod(draw):
    x = draw.integers(0, 2, 32, 64).float() * 2 - 1
    out = torch.empty_like(x)
    cumulative[(1,)](x, out, OP="product", AXIS=1, REVERSE=False, M=32, N=64)
    return out, x.cumprod(1)


@triton.jit
def _linear(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def linear_recurrence(a, b, out, T: tl.constexpr, D: tl.constexpr, REVERSE: tl.constexpr):
    """h[t] = a[t] * h[t - 1] + b[t], by an associative scan over pairs."""
    at = tl.arange(0, T)[:, None] * D + tl.arange(0, D)[None, :]
    _, h = tl.associative_scan((tl.load(a + at), tl.load(b + at)), 0, _linear, reverse=REVERSE)
    tl.store(out + at, h)


@case({"reverse": False, "warps": 4}, {"reverse": True, "warps": 1}, within=FP32)
def associative_scan(draw, reverse, warps):
    a, b = torch.sigmoid(draw.normal(64, 8)), draw.normal(64, 8)
    out = torch.empty_like(b)
    linear_recurrence[(1,)](a, b, out, T=64, D=8, REVERSE=reverse, num_warps=warps)
    h, wanted = torch.zeros(8, dtype=torch.float64), torch.empty(64, 8, dtype=torch.float64)
    for t in reversed(range(64)) if reverse else range(64):
        wanted[t] = h = a[t].double() * h + b[t]
    return out, wanted


@triton.jit
def _maximum(a, b):
    return tl.maximum(a, b)


@triton.jit
def running_maximum(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    r = tl.associative_scan(tl.load(x + i, mask=i < n, other=-(2**31)), 0, _maximum)
    tl.store(out + i, r, mask=i < n)


@case({"warps": 1}, {"warps": 8})
def cummax(draw, warps):
    x = draw.integers(-(2**30), 2**30, 1000)
    out = torch.empty_like(x)
    running_maximum[(1,)](x, out, 1000, BLOCK=1024, num_warps=warps)
    return out, x.cummax(0).values


@triton.jit
def _segmented(f1, v1, f2, v2):
    return f1 | f2, tl.where(f2 != 0, v2, v1 + v2)


@triton.jit
def segmented_scan(flags, x, out, BLOCK: tl.constexpr):
    """A running sum that starts again at each flag."""
    i = tl.arange(0, BLOCK)
    _, r = tl.associative_scan((tl.load(flags + i), tl.load(x + i)), 0, _segmented)
    tl.store(out + i, r)


@case()
def segmented_cumsum(draw):
    x, flags = draw.integers(-9, 10, 256), draw.mask(256).int()
    out = torch.empty_like(x)
    segmented_scan[(1,)](flags, x, out, BLOCK=256)
    total, wanted = 0, []
    for flag, value in zip(flags.tolist(), x.tolist(), strict=True):
        total = value if flag else total + value
        wanted.append(total)
    return out, torch.tensor(wanted, dtype=torch.int32)


@triton.jit
def selective_scan(x, dt, a, b, c, d, out, T, D, BD: tl.constexpr, S: tl.constexpr):
    """Mamba's recurrence by steps: h = exp(dt a) h + dt b x, y = c h + d x. One program: BD channels of a batch."""
    batch = tl.program_id(1)
    j = tl.program_id(0) * BD + tl.arange(0, BD)
    s = tl.arange(0, S)
    decay = tl.load(a + j[:, None] * S + s[None, :])
    skip = tl.load(d + j)
    h = tl.zeros((BD, S), tl.float32)
    for t in range(T):
        row = batch * T + t
        step = tl.load(dt + row * D + j)
        step = tl.where(step > 20, step, tl.log(1 + tl.exp(step)))
        v = tl.load(x + row * D + j)
        h = tl.exp(step[:, None] * decay) * h + (step * v)[:, None] * tl.load(b + row * S + s)[None, :]
        tl.store(out + row * D + j, tl.sum(h * tl.load(c + row * S + s)[None, :], axis=1) + skip * v)


@case(within=Within("a recurrence of 12 fp32 steps", 1e-5, 1e-5))
def mamba_scan(draw):
    batch, t, dim, states = 2, 12, 32, 16
    x, dt = draw.normal(batch, t, dim), draw.normal(batch, t, dim)
    a, b, c, d = (
        -draw.normal(dim, states).exp(),
        draw.normal(batch, t, states),
        draw.normal(batch, t, states),
        draw.normal(dim),
    )
    out = torch.empty_like(x)
    selective_scan[(2, batch)](x, dt, a, b, c, d, out, t, dim, BD=16, S=states)
    h, wanted = torch.zeros(batch, dim, states, dtype=torch.float64), torch.empty(batch, t, dim, dtype=torch.float64)
    for i in range(t):
        step = torch.nn.functional.softplus(dt[:, i].double())[:, :, None]
        h = (step * a).exp() * h + step * x[:, i, :, None] * b[:, i, None, :]
        wanted[:, i] = (h * c[:, i, None, :]).sum(2) + d * x[:, i]
    return out, wanted
