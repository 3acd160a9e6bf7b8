"""Parts of a transformer other than matmul, attention and norms: cross entropy, rotary embedding, quantisation,
experts."""

import torch
import triton
import triton.language as tl

from tests.corpus.case import EXACT, FP32, Within, case


@triton.jit
def cross_entropy(logits, labels, loss, gradient, n, BLOCK: tl.constexpr):
    """Loss of a row by two online passes over blocks, and the gradient; label -100 is ignored."""
    row = tl.program_id(0)
    base = logits + row * n
    label = tl.load(labels + row)
    if label == -100:
        tl.store(loss + row, 0.0)
        return
    top = -float("inf")
    total = 0.0
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        v = tl.load(base + j, mask=j < n, other=-float("inf")).to(tl.float32)
        new = tl.maximum(top, tl.max(v, axis=0))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(v - new), axis=0)
        top = new
    norm = top + tl.log(total)
    tl.store(loss + row, norm - tl.load(base + label).to(tl.float32))
    for start in range(0, n, BLOCK):
        j = start + tl.arange(0, BLOCK)
        v = tl.load(base + j, mask=j < n).to(tl.float32)
        tl.store(gradient + row * n + j, tl.exp(v - norm) - tl.where(j == label, 1.0, 0.0), mask=j < n)


@case({"dtype": torch.float32}, {"dtype": torch.bfloat16}, within=FP32)
def cross_entropy_with_gradient(draw, dtype):
    x, labels = draw.normal(6, 300, dtype=dtype), draw.integers(0, 300, 6, dtype=torch.int64)
    labels[2] = -100
    loss, gradient = torch.empty(6), torch.zeros(6, 300)
    cross_entropy[(6,)](x, labels, loss, gradient, 300, BLOCK=128)
    wide = x.double().requires_grad_()
    wanted = torch.nn.functional.cross_entropy(wide, labels, reduction="none")
    wanted.sum().backward()
    return [(loss, wanted.detach()), (gradient, wide.grad)]


@triton.jit
def rotary(x, cosines, sines, out, T, HALF: tl.constexpr, INTERLEAVED: tl.constexpr):
    """x: [T, heads, 2 HALF]; halves rotate against each other, or neighbours do."""
    t, head = tl.program_id(0), tl.program_id(1)
    base = (t * tl.num_programs(1) + head) * 2 * HALF
    i = tl.arange(0, HALF)
    c, s = tl.load(cosines + t * HALF + i), tl.load(sines + t * HALF + i)
    if INTERLEAVED:
        both = base + tl.arange(0, 2 * HALF)
        a, b = tl.split(tl.reshape(tl.load(x + both), (HALF, 2)))
        tl.store(out + both, tl.interleave(a * c - b * s, b * c + a * s))
    else:
        a, b = tl.load(x + base + i), tl.load(x + base + HALF + i)
        tl.store(out + base + i, a * c - b * s)
        tl.store(out + base + HALF + i, b * c + a * s)


@case({"interleaved": False}, {"interleaved": True}, within=FP32)
def rotary_embedding(draw, interleaved):
    t, heads, half = 5, 3, 32
    x, angle = draw.normal(t, heads, 2 * half), draw.normal(t, half)
    out = torch.empty_like(x)
    rotary[(t, heads)](x, angle.cos(), angle.sin(), out, t, HALF=half, INTERLEAVED=interleaved, num_warps=1)
    c, s = (f.double()[:, None] for f in (angle.cos(), angle.sin()))
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else x.double().chunk(2, -1)
    first, second = a * c - b * s, b * c + a * s
    return out, torch.stack([first, second], -1).flatten(-2) if interleaved else torch.cat([first, second], -1)


@triton.jit
def quantise(x, q, scales, n, TOP: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + j, mask=j < n, other=0.0)
    scale = tl.max(tl.abs(v), axis=0) / TOP
    scaled = v / scale
    if q.dtype.element_ty == tl.int8:
        scaled = tl.floor(scaled + 0.5)
    tl.store(q + row * n + j, scaled.to(q.dtype.element_ty), mask=j < n)
    tl.store(scales + row, scale)


@triton.jit
def dequantise(q, scales, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    v = tl.load(q + row * n + j, mask=j < n).to(tl.float32) * tl.load(scales + row)
    tl.store(out + row * n + j, v.to(out.dtype.element_ty), mask=j < n)


@case({"dtype": torch.int8, "top": 127, "within": Within("a quotient close to .5 may be rounded either way", 0.0, 1.0)})
@case({"dtype": torch.float8_e5m2, "top": 57344.0, "within": Within("e5m2 has 2 mantissa bits", 0.25, 1e-4)})
def quantise_rows(draw, dtype, top):
    x = draw.normal(4, 100)
    q, scales = torch.zeros(4, 100, dtype=dtype), torch.empty(4)
    quantise[(4,)](x, q, scales, 100, TOP=top, BLOCK=128)
    wanted = x.double() / (x.double().abs().amax(1, keepdim=True) / top)
    return [(q.double(), (wanted + 0.5).floor() if dtype == torch.int8 else wanted)]


_CODES = (torch.int8, torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)


def _every_code(draw, dtype):
    """All 256 bytes; as floats without the codes for NaN, which conversions may treat differently."""
    codes = torch.arange(-128, 128).to(torch.int8).view(dtype)
    finite = codes[codes.float().isfinite()]
    return finite[draw.integers(0, len(finite), 256, dtype=torch.int64)].view(1, 256)


@case(
    *({"dtype": t, "target": torch.float32} for t in (torch.int8, torch.float8_e5m2)),
    {"dtype": torch.float8_e5m2, "target": torch.float16},
    {"dtype": torch.float8_e5m2, "target": torch.bfloat16},
)
@case({"dtype": torch.float8_e4m3fnuz, "target": torch.float32}, archs=("gfx942",))
@case({"dtype": torch.float8_e5m2fnuz, "target": torch.float16}, archs=("gfx942",))
@case({"dtype": torch.float8_e4m3fn, "target": torch.float32}, archs=("gfx950",))
@case({"dtype": torch.float8_e4m3fn, "target": torch.bfloat16}, archs=("gfx950",))
def dequantise_codes(draw, dtype, target):
    q = _every_code(draw, dtype)
    out = torch.empty(1, 256, dtype=target)
    dequantise[(1,)](q, torch.ones(1), out, 256, BLOCK=256)
    return out, q.to(target)


@triton.jit
def to_fp8(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n).to(out.dtype.element_ty), mask=i < n)


@case(*({"source": s, "dtype": torch.float8_e5m2} for s in (torch.float32, torch.float16, torch.bfloat16)))
@case(*({"source": s, "dtype": torch.float8_e4m3fnuz} for s in (torch.float32, torch.float16)), archs=("gfx942",))
@case(*({"source": s, "dtype": torch.float8_e4m3fn} for s in (torch.float32, torch.bfloat16)), archs=("gfx950",))
def cast_to_fp8(draw, source, dtype):
    x = (draw.normal(500) * 4).to(source)
    out = torch.zeros(500, dtype=dtype)
    to_fp8[(1,)](x, out, 500, BLOCK=512)
    return out.float(), x.float().to(dtype).float()


@triton.jit
def unpack_int4(packed, scales, out, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    """Two unsigned codes a byte with a zero point of 8 and a scale for each group, as in weight-only quantisation."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    byte = tl.load(packed + i)
    low, high = (byte & 15).to(tl.float16) - 8, (byte >> 4).to(tl.float16) - 8
    scale = tl.load(scales + i * 2 // GROUP)
    tl.store(out + tl.program_id(0) * 2 * BLOCK + tl.arange(0, 2 * BLOCK), tl.interleave(low * scale, high * scale))


@case(within=EXACT)
def dequantise_int4(draw):
    packed, scales = draw.integers(0, 256, 512).to(torch.uint8), draw.normal(32, dtype=torch.float16)
    out = torch.empty(1024, dtype=torch.float16)
    unpack_int4[(4,)](packed, scales, out, GROUP=32, BLOCK=128)
    codes = torch.stack([packed & 15, packed >> 4], 1).reshape(-1).half() - 8
    return out, codes * scales.repeat_interleave(32)


@triton.jit
def matmul_int4(a, packed, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """fp16 times weights that are unpacked on the way into dot."""
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    byte = tl.load(packed + (k // 2)[:, None] * N + j[None, :])
    w = ((byte >> ((k % 2) * 4).to(tl.uint8)[:, None]) & 15).to(tl.float16) - 8
    tl.store(out + i[:, None] * N + j[None, :], tl.dot(tl.load(a + i[:, None] * K + k[None, :]), w))


@case()
def matmul_weight_only_int4(draw):
    a, packed = draw.integers(-4, 5, 32, 64).half(), draw.integers(0, 256, 32, 32).to(torch.uint8)
    out = torch.empty(32, 32)
    matmul_int4[(1,)](a, packed, out, M=32, N=32, K=64)
    w = torch.stack([packed & 15, packed >> 4], 1).reshape(64, 32).double() - 8
    return out, a.double() @ w


@triton.jit
def adam(p, g, m, v, n, lr, step, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    gradient = tl.load(g + i, mask=inside).to(tl.float32)
    first = 0.9 * tl.load(m + i, mask=inside) + 0.1 * gradient
    second = 0.999 * tl.load(v + i, mask=inside) + 0.001 * gradient * gradient
    tl.store(m + i, first, mask=inside)
    tl.store(v + i, second, mask=inside)
    correction = tl.sqrt(1 - tl.exp2(step * -0.0014434168696687174))
    update = lr * first / (tl.sqrt(second) / correction + 1e-8) / (1 - tl.exp2(step * -0.15200309344504995))
    tl.store(p + i, tl.load(p + i, mask=inside) - update, mask=inside)


@case(within=Within("the bias correction 1 - 0.999^step cancels three digits in fp32", 2e-5, 1e-5))
def adam_step(draw):
    p, g, m, v = draw.normal(500), draw.normal(500, dtype=torch.bfloat16), draw.normal(500), draw.normal(500) ** 2
    wide = [t.double() for t in (p, g, m, v)]
    adam[(2,)](p, g, m, v, 500, 0.01, 3, BLOCK=256)
    first, second = 0.9 * wide[2] + 0.1 * wide[1], 0.999 * wide[3] + 0.001 * wide[1] ** 2
    update = 0.01 * first / (1 - 0.9**3) / ((second / (1 - 0.999**3)).sqrt() + 1e-8)
    return [(m, first), (v, second), (p, wide[0] - update)]


@triton.jit
def mixture_of_experts(x, weights, experts, out, D: tl.constexpr, BN: tl.constexpr, K: tl.constexpr):
    """Each token's top expert, chosen by id: a loop-free gather of weight matrices and a product by sums."""
    token = tl.program_id(0)
    expert = tl.load(experts + token)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, K)
    w = tl.load(weights + (expert * K + k[:, None]) * D + j[None, :])
    tl.store(out + token * D + j, tl.sum(tl.load(x + token * K + k)[:, None] * w, axis=0))


@case()
def expert_products(draw):
    x, weights = draw.integers(-4, 5, 6, 32).float(), draw.integers(-4, 5, 3, 32, 64).float()
    experts = draw.integers(0, 3, 6)
    out = torch.empty(6, 64)
    mixture_of_experts[(6, 2)](x, weights, experts, out, D=64, BN=32, K=32)
    return out, torch.einsum("tk,tkd->td", x, weights[experts.long()])
