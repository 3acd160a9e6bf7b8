"""Attention forward, flash style: blocks of keys with a running maximum, causal and not."""

import torch
import triton
import triton.language as tl

from tests.corpus.case import Within, case


@triton.jit
def attention(
    q,
    k,
    v,
    out,
    lse,
    scale,
    T,
    H: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """One program: BM queries of a head of a batch. q, k, v: [batch, heads, T, D]; lse: log of the sum, base 2."""
    base = (tl.program_id(2) * H + tl.program_id(1)) * T
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    queries = tl.load(q + (base + i[:, None]) * D + d[None, :], mask=(i < T)[:, None], other=0.0)
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    end = min((tl.program_id(0) + 1) * BM, T) if CAUSAL else T
    for start in range(0, end, BN):
        j = start + tl.arange(0, BN)
        keys = tl.load(k + (base + j[None, :]) * D + d[:, None], mask=(j < T)[None, :], other=0.0)
        s = tl.dot(queries, keys) * (scale * 1.4426950408889634)
        seen = (j < T)[None, :]
        if CAUSAL:
            seen = seen & (j[None, :] <= i[:, None])
        s = tl.where(seen, s, -1.0e6)
        new = tl.maximum(top, tl.max(s, axis=1))
        p = tl.exp2(s - new[:, None])
        shrink = tl.exp2(top - new)
        total = total * shrink + tl.sum(p, axis=1)
        values = tl.load(v + (base + j[:, None]) * D + d[None, :], mask=(j < T)[:, None], other=0.0)
        acc = tl.dot(p.to(values.dtype), values, acc * shrink[:, None])
        top = new
    result = acc / total[:, None]
    tl.store(out + (base + i[:, None]) * D + d[None, :], result.to(out.dtype.element_ty), mask=(i < T)[:, None])
    tl.store(lse + base + i, top + tl.log2(total), mask=i < T)


_PROBABILITIES = Within("probabilities and the result are rounded to fp16 (2^-11), sums to fp32", 1e-3, 2e-3)


@case(
    {"causal": False, "t": 64, "d": 32, "stages": 1, "warps": 4},
    {"causal": True, "t": 100, "d": 32, "stages": 2, "warps": 2},
    {"causal": True, "t": 64, "d": 64, "stages": 1, "warps": 1},
    within=_PROBABILITIES,
)
def attention_forward(draw, causal, t, d, stages, warps):
    batch, heads = 1, 2
    q, k, v = (draw.normal(batch, heads, t, d, dtype=torch.float16) for _ in "qkv")
    out, lse = torch.empty_like(q), torch.empty(batch, heads, t)
    attention[(triton.cdiv(t, 32), heads, batch)](
        q, k, v, out, lse, d**-0.5, t, H=heads, BM=32, BN=32, D=d, CAUSAL=causal, num_stages=stages, num_warps=warps
    )
    wide = [x.double() for x in (q, k, v)]
    scores = wide[0] @ wide[1].transpose(2, 3) * d**-0.5
    if causal:
        scores = scores.masked_fill(torch.ones(t, t).triu(1).bool(), -torch.inf)
    return [(out, scores.softmax(3) @ wide[2]), (lse, scores.logsumexp(3) * 1.4426950408889634)]


@triton.jit
def decode_part(q, k, v, part, lse, scale, T, BN: tl.constexpr, D: tl.constexpr):
    """One query against a share of the keys, without dot: flash decoding's first half."""
    j = tl.program_id(0) * BN + tl.arange(0, BN)
    d = tl.arange(0, D)
    keys = tl.load(k + j[:, None] * D + d[None, :], mask=(j < T)[:, None], other=0.0)
    s = tl.where(j < T, tl.sum(keys * tl.load(q + d)[None, :], axis=1) * scale, -float("inf"))
    top = tl.max(s, axis=0)
    p = tl.exp(s - top)
    total = tl.sum(p, axis=0)
    values = tl.load(v + j[:, None] * D + d[None, :], mask=(j < T)[:, None], other=0.0)
    tl.store(part + tl.program_id(0) * D + d, tl.sum(p[:, None] * values, axis=0) / total)
    tl.store(lse + tl.program_id(0), top + tl.log(total))


@triton.jit
def decode_merge(part, lse, out, PARTS: tl.constexpr, D: tl.constexpr):
    n, d = tl.arange(0, PARTS), tl.arange(0, D)
    weight = tl.load(lse + n)
    weight = tl.exp(weight - tl.max(weight, axis=0))
    weight = weight / tl.sum(weight, axis=0)
    tl.store(out + d, tl.sum(tl.load(part + n[:, None] * D + d[None, :]) * weight[:, None], axis=0))


@case(within=Within("sums of 100 fp32 products", 1e-5, 1e-5))
def attention_decode(draw):
    t, d = 100, 64
    q, k, v = draw.normal(d), draw.normal(t, d), draw.normal(t, d)
    part, lse, out = torch.empty(4, d), torch.empty(4), torch.empty(d)
    decode_part[(4,)](q, k, v, part, lse, d**-0.5, t, BN=32, D=d)
    decode_merge[(1,)](part, lse, out, PARTS=4, D=d)
    scores = k.double() @ q.double() * d**-0.5
    return out, scores.softmax(0) @ v.double()
