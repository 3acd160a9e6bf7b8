"""Layer norm and RMS norm, forward and backward, and batch statistics by Welford's algorithm."""

import torch
import triton
import triton.language as tl

from tests.corpus.case import Within, case, half_of

_SUMS = Within("sums of a row of about 1 in fp32, each addition rounded", 1e-5, 4e-6)
M, N = 12, 200


@triton.jit
def layer_norm(x, w, b, out, mean, rstd, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    inside = j < n
    v = tl.load(x + row * n + j, mask=inside, other=0.0).to(tl.float32)
    mu = tl.sum(v, axis=0) / n
    centred = tl.where(inside, v - mu, 0.0)
    r = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / n + eps)
    y = centred * r * tl.load(w + j, mask=inside) + tl.load(b + j, mask=inside)
    tl.store(out + row * n + j, y.to(out.dtype.element_ty), mask=inside)
    tl.store(mean + row, mu)
    tl.store(rstd + row, r)


@case(
    {"dtype": torch.float32, "warps": 4, "within": _SUMS},
    {"dtype": torch.float16, "warps": 1, "within": half_of(torch.float16, 4e-6)},
    {"dtype": torch.bfloat16, "warps": 8, "within": half_of(torch.bfloat16, 4e-6)},
)
def layer_norm_forward(draw, dtype, warps):
    x, w, b = draw.normal(M, N, dtype=dtype), draw.normal(N), draw.normal(N)
    out, mean, rstd = torch.empty_like(x), torch.empty(M), torch.empty(M)
    layer_norm[(M,)](x, w, b, out, mean, rstd, N, 1e-5, BLOCK=256, num_warps=warps)
    wide = x.double()
    wanted = torch.nn.functional.layer_norm(wide, (N,), w.double(), b.double(), 1e-5)
    return [(out, wanted), (mean, wide.mean(1)), (rstd, (wide.var(1, correction=0) + 1e-5).rsqrt())]


@triton.jit
def layer_norm_dx(x, w, dy, dx, dw, db, mean, rstd, locks, n, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    """The tutorial's scheme: rows share GROUPS partial sums of dw and db, each behind a spin lock."""
    row = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    inside = j < n
    v = tl.load(x + row * n + j, mask=inside, other=0.0)
    g = tl.load(dy + row * n + j, mask=inside, other=0.0)
    scale = tl.load(w + j, mask=inside, other=0.0)
    r = tl.load(rstd + row)
    hat = tl.where(inside, (v - tl.load(mean + row)) * r, 0.0)
    wg = tl.where(inside, scale * g, 0.0)
    c1 = tl.sum(hat * wg, axis=0) / n
    c2 = tl.sum(wg, axis=0) / n
    tl.store(dx + row * n + j, (wg - (hat * c1 + c2)) * r, mask=inside)
    group = row % GROUPS
    lock = locks + group
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    to_dw = dw + group * n + j
    to_db = db + group * n + j
    tl.store(to_dw, tl.load(to_dw, mask=inside) + g * hat, mask=inside)
    tl.store(to_db, tl.load(to_db, mask=inside) + g, mask=inside)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def column_sums(parts, out, m, n, BM: tl.constexpr, BN: tl.constexpr):
    j = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, m, BM):
        i = start + tl.arange(0, BM)
        total += tl.load(parts + i[:, None] * n + j[None, :], mask=(i < m)[:, None] & (j < n)[None, :], other=0.0)
    tl.store(out + j, tl.sum(total, axis=0), mask=j < n)


@case(within=_SUMS)
def layer_norm_backward(draw):
    x, w, b, g = draw.normal(M, N), draw.normal(N), draw.normal(N), draw.normal(M, N)
    wide = [t.double().requires_grad_() for t in (x, w, b)]
    torch.nn.functional.layer_norm(wide[0], (N,), wide[1], wide[2], 1e-5).backward(g.double())
    mean, rstd = x.mean(1), (x.var(1, correction=0) + 1e-5).rsqrt()
    dx, dw, db, locks = torch.empty_like(x), torch.zeros(3, N), torch.zeros(3, N), torch.zeros(3, dtype=torch.int32)
    layer_norm_dx[(M,)](x, w, g, dx, dw, db, mean, rstd, locks, N, GROUPS=3, BLOCK=256)
    sums = torch.empty(2, N)
    column_sums[(4,)](dw, sums[0], 3, N, BM=4, BN=64)
    column_sums[(4,)](db, sums[1], 3, N, BM=4, BN=64)
    return [(dx, wide[0].grad), (sums[0], wide[1].grad), (sums[1], wide[2].grad)]


@triton.jit
def rms_norm(x, w, out, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + j, mask=j < n, other=0.0).to(tl.float32)
        total += v * v
    r = tl.rsqrt(tl.sum(total, axis=0) / n + eps)
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + j, mask=j < n, other=0.0).to(tl.float32)
        tl.store(out + row * n + j, (v * r * tl.load(w + j, mask=j < n)).to(out.dtype.element_ty), mask=j < n)


@case(
    {"dtype": torch.float32, "stages": 2, "within": _SUMS},
    {"dtype": torch.bfloat16, "stages": 3, "within": half_of(torch.bfloat16, 4e-6)},
)
def rms_norm_forward(draw, dtype, stages):
    x, w = draw.normal(M, N, dtype=dtype), draw.normal(N)
    out = torch.empty_like(x)
    rms_norm[(M,)](x, w, out, N, 1e-6, BLOCK=64, num_warps=1, num_stages=stages)
    return out, torch.nn.functional.rms_norm(x.double(), (N,), w.double(), 1e-6)


@triton.jit
def rms_norm_dx(x, w, dy, dx, dw, m, n, eps, BLOCK: tl.constexpr):
    """One program walks several rows, and adds its share of dw by atomics."""
    j = tl.arange(0, BLOCK)
    inside = j < n
    scale = tl.load(w + j, mask=inside, other=0.0)
    share = tl.zeros((BLOCK,), tl.float32)
    for row in range(tl.program_id(0), m, tl.num_programs(0)):
        v = tl.load(x + row * n + j, mask=inside, other=0.0)
        g = tl.load(dy + row * n + j, mask=inside, other=0.0)
        r = tl.rsqrt(tl.sum(v * v, axis=0) / n + eps)
        wg = g * scale
        tl.store(dx + row * n + j, r * (wg - v * r * r * tl.sum(wg * v, axis=0) / n), mask=inside)
        share += g * v * r
    tl.atomic_add(dw + j, share, mask=inside)


@case(within=_SUMS)
def rms_norm_backward(draw):
    x, w, g = draw.normal(M, N), draw.normal(N), draw.normal(M, N)
    wide = [x.double().requires_grad_(), w.double().requires_grad_()]
    torch.nn.functional.rms_norm(wide[0], (N,), wide[1], 1e-6).backward(g.double())
    dx, dw = torch.empty_like(x), torch.zeros(N)
    rms_norm_dx[(5,)](x, w, g, dx, dw, M, N, 1e-6, BLOCK=256)
    return [(dx, wide[0].grad), (dw, wide[1].grad)]


@triton.jit
def _merge(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    n = n_a + n_b
    delta = mean_b - mean_a
    share = tl.where(n == 0, 0.0, n_b / n)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * n_a * share, n


@triton.jit
def welford(x, mean, variance, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + j, mask=j < n, other=0.0)
    m, m2, count = tl.reduce((v, tl.zeros_like(v), (j < n).to(tl.float32)), 0, _merge)
    tl.store(mean + row, m)
    tl.store(variance + row, m2 / count)


@case({"warps": 1}, {"warps": 4}, within=_SUMS)
def welford_statistics(draw, warps):
    x = draw.normal(M, N)
    mean, variance = torch.empty(M), torch.empty(M)
    welford[(M,)](x, mean, variance, N, BLOCK=256, num_warps=warps)
    return [(mean, x.double().mean(1)), (variance, x.double().var(1, correction=0))]
