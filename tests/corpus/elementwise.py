"""Element-wise kernels: arithmetic, activations, libdevice functions, dropout, casts."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from tests.corpus.case import EXACT, FP32, Within, case, half_of

N = 1000  # no multiple of the block: the tail is masked


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


@case(
    *({"dtype": t} for t in (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int64)),
)
def vector_add(draw, dtype):
    if dtype.is_floating_point:
        x, y = draw.normal(N, dtype=dtype), draw.normal(N, dtype=dtype)
    else:
        x, y = draw.integers(-128, 128, N, dtype=dtype), draw.integers(-128, 128, N, dtype=dtype)
    out = torch.empty_like(x)
    add[(4,)](x, y, out, N, BLOCK=256, num_warps=4)
    return out, x + y


@case(*({"warps": warps} for warps in (1, 2, 8, 16)))
def vector_add_by_warps(draw, warps):
    x, y = draw.normal(5000), draw.normal(5000)
    out = torch.empty_like(x)
    add[(triton.cdiv(5000, 2048),)](x, y, out, 5000, BLOCK=2048, num_warps=warps)
    return out, x + y


@triton.jit
def gelu(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n).to(tl.float32)
    tl.store(out + i, (0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))).to(out.dtype.element_ty), mask=i < n)


@case({"dtype": torch.float32, "within": Within("erf of the device library is good to 16 ulp", 2e-5, 2e-6)})
@case({"dtype": torch.bfloat16, "within": half_of(torch.bfloat16, 1e-6)})
def gelu_erf(draw, dtype):
    x = draw.normal(N, dtype=dtype)
    out = torch.empty_like(x)
    gelu[(2,)](x, out, N, BLOCK=512)
    return out, torch.nn.functional.gelu(x.double())


@triton.jit
def gelu_tanh(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n).to(tl.float32)
    inner = 0.7978845608028654 * (v + 0.044715 * v * v * v)
    tl.store(out + i, 0.5 * v * (1 + libdevice.tanh(inner)), mask=i < n)


@case(within=Within("1 + tanh cancels for negative inputs", 4e-6, 1e-6))
def gelu_by_tanh(draw):
    x = draw.normal(N)
    out = torch.empty_like(x)
    gelu_tanh[(2,)](x, out, N, BLOCK=512)
    return out, torch.nn.functional.gelu(x.double(), approximate="tanh")


@triton.jit
def swiglu(gate, up, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gate + i, mask=i < n).to(tl.float32)
    u = tl.load(up + i, mask=i < n).to(tl.float32)
    tl.store(out + i, (g * tl.sigmoid(g) * u).to(tl.float16), mask=i < n)


@case(within=half_of(torch.float16, 1e-7))
def swiglu_fp16(draw):
    g, u = draw.normal(N, dtype=torch.float16), draw.normal(N, dtype=torch.float16)
    out = torch.empty_like(g)
    swiglu[(4,)](g, u, out, N, BLOCK=256)
    return out, torch.nn.functional.silu(g.double()) * u.double()


@triton.jit
def functions(x, out, n, OP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=1.0)
    if OP == "exp":
        r = tl.exp(v)
    elif OP == "exp2":
        r = tl.exp2(v)
    elif OP == "log":
        r = tl.log(v)
    elif OP == "log2":
        r = tl.log2(v)
    elif OP == "sin":
        r = tl.sin(v)
    elif OP == "cos":
        r = tl.cos(v)
    elif OP == "sqrt":
        r = tl.sqrt(v)
    elif OP == "rsqrt":
        r = tl.rsqrt(v)
    elif OP == "floor":
        r = tl.floor(v)
    elif OP == "ceil":
        r = tl.ceil(v)
    elif OP == "round":
        r = libdevice.nearbyint(v)
    elif OP == "tan":
        r = libdevice.tan(v)
    elif OP == "atan":
        r = libdevice.atan(v)
    elif OP == "log1p":
        r = libdevice.log1p(v)
    elif OP == "expm1":
        r = libdevice.expm1(v)
    elif OP == "pow":
        r = libdevice.pow(v, 2.5)
    elif OP == "trunc":
        r = libdevice.trunc(v)
    elif OP == "asin":
        r = libdevice.asin(v)
    elif OP == "cosh":
        r = libdevice.cosh(v)
    elif OP == "ldexp":
        r = libdevice.ldexp(v, 3)
    else:
        tl.static_assert(False, "unknown function")
    tl.store(out + i, r, mask=i < n)


_LIBRARY = Within("the device library's functions are good to a few ulp", 2e-6, 1e-6)


@case(
    *({"op": op, "within": _LIBRARY} for op in ("exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt")),
    *({"op": op, "within": _LIBRARY} for op in ("tan", "atan", "log1p", "expm1", "pow", "asin", "cosh")),
    *({"op": op} for op in ("floor", "ceil", "round", "trunc", "ldexp")),
)
def function_fp32(draw, op):
    x = draw.normal(N)
    if op in {"log", "log2", "sqrt", "rsqrt", "log1p", "pow"}:
        x = x.abs() + 0.01
    elif op == "asin":
        x = x.clamp(-1, 1)
    elif op in {"floor", "ceil", "round", "trunc"}:
        x = torch.cat([x[:-4] * 10, torch.tensor([0.5, 1.5, -2.5, 1e30])])
    out = torch.empty_like(x)
    functions[(1,)](x, out, N, OP=op, BLOCK=1024)
    wide = x.double()
    if op == "pow":
        return out, wide**2.5
    return out, wide * 8 if op == "ldexp" else getattr(torch, op)(wide)


@case(
    *({"op": op} for op in ("exp", "log", "sin", "sqrt", "floor")), within=Within("fp64 library, few ulp", 1e-14, 1e-15)
)
def function_fp64(draw, op):
    x = draw.normal(N, dtype=torch.float64)
    x = x.abs() + 0.01 if op in {"log", "sqrt"} else x
    out = torch.empty_like(x)
    functions[(1,)](x, out, N, OP=op, BLOCK=1024)
    return out, getattr(torch, op)(x)


@triton.jit
def dropout(x, out, kept, n, p, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = tl.rand(seed, i) > p
    v = tl.load(x + i, mask=i < n)
    tl.store(out + i, tl.where(keep, v / (1 - p), 0.0), mask=i < n)
    tl.store(kept + i, keep, mask=i < n)


@case(within=Within("one division, approximate in fp32 by default", 3e-7))
def seeded_dropout(draw):
    x = draw.normal(N)
    out, kept = torch.empty_like(x), torch.zeros(N, dtype=torch.bool)
    dropout[(4,)](x, out, kept, N, 0.25, 123, BLOCK=256)
    keep = torch.from_numpy(_uniform(123, N) > 0.25)
    return [(kept, keep), (out, torch.where(keep, x.double() / 0.75, 0.0))]


def _uniform(seed, n):
    """Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"), as tl.rand maps it to [0, 1)."""
    import numpy as np

    c = [np.arange(n, dtype=np.uint64), *(np.zeros(n, np.uint64) for _ in range(3))]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [b >> np.uint64(32) ^ c[1] ^ np.uint64(k0), b & low, a >> np.uint64(32) ^ c[3] ^ np.uint64(k1), a & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    signed = c[0].astype(np.uint32).view(np.int32).astype(np.int64)
    positive = np.where(signed < 0, -signed - 1, signed)
    return positive.astype(np.float32) * np.float32(4.6566127342e-10)


@triton.jit
def cast(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n).to(out.dtype.element_ty), mask=i < n)


_F = {"fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_I = {
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "u16": torch.uint16,
}
_CASTS = (
    ("fp32", "fp16"), ("fp32", "bf16"), ("fp16", "fp32"), ("bf16", "fp32"), ("fp64", "fp32"), ("fp32", "fp64"),
    ("fp64", "fp16"), ("bf16", "fp16"), ("fp32", "i32"), ("fp32", "i8"), ("fp16", "i16"), ("fp64", "i64"),
    ("fp32", "i64"), ("fp32", "u8"), ("bf16", "i32"), ("i32", "fp32"), ("i64", "fp32"), ("i64", "fp64"),
    ("i8", "fp16"), ("u8", "fp32"), ("u16", "bf16"), ("i32", "i8"), ("i8", "i64"), ("u8", "i32"), ("i64", "i16"),
    ("i16", "fp64"),
)  # fmt: skip


@case(*({"source": a, "target": b} for a, b in _CASTS))
def casts(draw, source, target):
    dtypes = _F | _I
    if source in _F:
        low = 0 if target == "u8" else -100
        x = (draw.normal(N) * 20).clamp(low, 100).to(dtypes[source])
    else:
        info = torch.iinfo(dtypes[source])
        x = draw.integers(info.min, info.max, N, dtype=dtypes[source])
    out = torch.empty(N, dtype=dtypes[target])
    cast[(2,)](x, out, N, BLOCK=512, num_warps=2)
    return out, x.to(dtypes[target])


@triton.jit
def integer_ops(x, y, out, n, OP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i, mask=i < n, other=1)
    b = tl.load(y + i, mask=i < n, other=1)
    if OP == "umulhi":
        r = tl.umulhi(a, b)
    elif OP == "div":
        r = a // b
    elif OP == "mod":
        r = a % b
    elif OP == "shift":
        r = (a << (b & 7)) ^ (a >> (b & 7))
    elif OP == "bits":
        r = (a & b) | (~a ^ b)
    elif OP == "clz":
        r = libdevice.clz(a)
    elif OP == "popc":
        r = libdevice.popc(a)
    else:
        r = tl.minimum(tl.maximum(a, b), a * b + 3)
    tl.store(out + i, r, mask=i < n)


@case(
    *({"op": op, "dtype": t} for op in ("div", "mod", "shift", "bits", "minmax") for t in (torch.int32, torch.int64)),
    {"op": "div", "dtype": torch.uint8},
    {"op": "mod", "dtype": torch.int16},
    {"op": "umulhi", "dtype": torch.uint32},
    within=EXACT,
)
def integers(draw, op, dtype):
    info = torch.iinfo(dtype)
    x = draw.integers(max(info.min, -(2**62)), min(info.max, 2**62), N, dtype=dtype)
    y = draw.integers(1, min(info.max, 2**40), N, dtype=dtype)
    out = torch.empty_like(x)
    integer_ops[(1,)](x, y, out, N, OP=op, BLOCK=1024)
    a, b = x, y
    if op == "umulhi":
        wanted = torch.tensor([p * q >> 32 for p, q in zip(x.tolist(), y.tolist(), strict=True)]).to(dtype)
    elif op == "div":
        wanted = torch.div(a, b, rounding_mode="trunc")
    elif op == "mod":
        wanted = torch.fmod(a, b)
    elif op == "shift":
        wanted = (a << (b & 7)) ^ (a >> (b & 7))
    elif op == "bits":
        wanted = (a & b) | (~a ^ b)
    else:
        wanted = torch.minimum(torch.maximum(a, b), a * b + 3)
    return out, wanted


@triton.jit
def broadcast_add(x, row, column, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    at = i[:, None] * N + j[None, :]
    inside = (i[:, None] < M) & (j[None, :] < N)
    v = tl.load(x + at, mask=inside) * tl.load(row + j, mask=j < N)[None, :] + tl.load(column + i, mask=i < M)[:, None]
    tl.store(out + at, tl.maximum(v, 0), mask=inside)


@case(within=FP32)
def scale_shift_relu_2d(draw):
    x, row, column = draw.normal(50, 70), draw.normal(70), draw.normal(50)
    out = torch.empty_like(x)
    broadcast_add[(2, 3)](x, row, column, out, 50, 70, BM=32, BN=32)
    return out, (x.double() * row + column[:, None]).relu()
