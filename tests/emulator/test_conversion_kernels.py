"""Casts of Triton between all integer and float types, on both archs, against torch: one type to all others per kernel.

Casts of 8-bit floats are tested in ``test_fp8_kernels``.
"""

import math

import pytest
import torch
import triton
import triton.language as tl

from harness import emulator
from tests.emulator.data import DTYPES

N = 512
FLOATS = {"fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
INTEGERS = {
    "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
    "u8": torch.uint8, "u16": torch.uint16, "u32": torch.uint32, "u64": torch.uint64,
}  # fmt: skip
TYPES = FLOATS | INTEGERS


# Each cast to an integer type has a source of its own: values out of the integer's range are undefined, and compiled
# code lets them affect their neighbours.
@triton.jit
def to_all(
    x, fp64, fp32, fp16, bf16, x0, i8, x1, i16, x2, i32, x3, i64, x4, u8, x5, u16, x6, u32, x7, u64, B: tl.constexpr
):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    tl.store(fp64 + i, a.to(tl.float64))
    tl.store(fp32 + i, a.to(tl.float32))
    tl.store(fp16 + i, a.to(tl.float16))
    tl.store(bf16 + i, a.to(tl.bfloat16))
    tl.store(i8 + i, tl.load(x0 + i).to(tl.int8))
    tl.store(i16 + i, tl.load(x1 + i).to(tl.int16))
    tl.store(i32 + i, tl.load(x2 + i).to(tl.int32))
    tl.store(i64 + i, tl.load(x3 + i).to(tl.int64))
    tl.store(u8 + i, tl.load(x4 + i).to(tl.uint8))
    tl.store(u16 + i, tl.load(x5 + i).to(tl.uint16))
    tl.store(u32 + i, tl.load(x6 + i).to(tl.uint32))
    tl.store(u64 + i, tl.load(x7 + i).to(tl.uint64))


def values(name: str) -> torch.Tensor:
    """Return edges of the type, and numbers of every size."""
    some = torch.Generator().manual_seed(7)
    if name in INTEGERS:
        info = torch.iinfo(INTEGERS[name])
        edges = [info.min, info.max, 0, 1, info.max - 1, info.max // 2 + 1, 0x7F, 100]
        if info.bits > 32:
            # Halfway between two float32, float16, bfloat16 and float64, and next to that.
            edges += [(1 << 40) + (1 << 16) + d for d in (-1, 0, 1)] + [(1 << 60) + (1 << 7) + d for d in (-1, 0, 1)]
        if info.bits > 16:
            edges += [(1 << 24) + 1, (1 << 24) + 3, 65519, 65520, 0x1010000 + (1 << 16), 2049, 2051, 257, 259]
        bits = torch.randint(0, 1 << 62, (N - len(edges),), generator=some) * 2 + 1
        bits = bits >> torch.randint(0, 62, bits.shape, generator=some)
        return torch.cat([torch.tensor(edges, dtype=INTEGERS[name]), bits.to(INTEGERS[name])])
    dtype = FLOATS[name]
    info = torch.finfo(dtype)
    edges = [
        0.0,
        -0.0,
        math.inf,
        -math.inf,
        math.nan,
        info.max,
        -info.max,
        info.tiny,
        info.smallest_normal / 2,
        0.5,
        1.5,
    ]
    edges += [65519.0, 65520.0, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 2.0**-25, 3 * 2.0**-25]
    edges += [
        1 + 2.0**-24 + 2.0**-50,
        127.9,
        -128.9,
        255.99,
        32767.5,
        2.0**31 - 0.5,
        -(2.0**31),
        2.0**32 - 1,
        2.0**52 + 1,
    ]
    random = torch.randn(N - len(edges), dtype=torch.float64, generator=some)
    spread = torch.randint(-30, 62, random.shape, generator=some).double()
    return torch.cat([torch.tensor(edges, dtype=torch.float64), random * 2.0**spread]).to(dtype)


def in_range(x: torch.Tensor, to: torch.dtype) -> torch.Tensor:
    """Return the numbers whose integral part fits the integer type, and 0 in place of the others."""
    if not x.dtype.is_floating_point:
        return x
    whole, info = x.double().trunc(), torch.iinfo(to)
    return torch.where((whole >= info.min) & (whole < float(info.max) + 1), x, torch.zeros_like(x))


def wanted(x: torch.Tensor, name: str) -> torch.Tensor:
    to = TYPES[name]
    if name in INTEGERS:
        bits = torch.iinfo(to).bits
        low = [int(v) & (1 << bits) - 1 for v in x.tolist()]
        return torch.tensor(low, dtype=getattr(torch, f"uint{bits}")).view(to)
    if x.dtype.is_floating_point:
        return (x.float() if name == "bf16" else x).to(to)
    # Through float32 to 16 bits, as Triton does.
    wide = torch.tensor([rounded_once(int(v)) for v in x.tolist()], dtype=torch.float32)
    return (x.double() if name == "fp64" else wide).to(to)


def rounded_once(value: int) -> float:
    """Round an integer to the nearest float32, ties to even."""
    magnitude, excess = abs(value), max(abs(value).bit_length() - 24, 0)
    kept, rest = magnitude >> excess, magnitude & (1 << excess) - 1
    kept += 2 * rest > 1 << excess or (2 * rest == 1 << excess and excess > 0 and kept & 1)
    return math.copysign(float(kept) * 2.0**excess, value)


def test_the_reference_rounds_once():
    assert rounded_once((1 << 40) + (1 << 16)) == 2.0**40
    assert rounded_once((1 << 40) + (1 << 16) + 1) == 2.0**40 + 2.0**17
    assert rounded_once(-(1 << 24) - 3) == -(2.0**24) - 4


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("source", TYPES)
def test_casts(source, arch):
    sources = {name: in_range(values(source), TYPES[name]) if name in INTEGERS else values(source) for name in TYPES}
    outs = {name: torch.zeros(N, dtype=dtype) for name, dtype in TYPES.items()}
    arguments = [sources["fp32"], *(outs[name] for name in FLOATS)]
    for name in INTEGERS:
        arguments += [sources[name], outs[name]]
    emulator.activate(arch)
    try:
        to_all[(1,)](*arguments, N, num_warps=1)
    finally:
        emulator.deactivate()
    for name, got in outs.items():
        x, expected = sources[name], wanted(sources[name], name)
        equal = got.view(torch.uint8).view(N, -1).eq(expected.view(torch.uint8).view(N, -1)).all(dim=1)
        if name in FLOATS:
            equal |= got.isnan() & expected.isnan()
        wrong = (~equal).nonzero().flatten().tolist()
        assert not wrong, (source, name, [(x[i].item(), got[i].item(), expected[i].item()) for i in wrong[:3]])


@triton.jit
def round_toward_zero(x, fp16, bf16, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i)
    tl.store(fp16 + i, a.to(tl.float16, fp_downcast_rounding="rtz"))
    tl.store(bf16 + i, a.to(tl.bfloat16, fp_downcast_rounding="rtz"))


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_casts_toward_zero(arch):
    x = values("fp32")
    outs = [torch.zeros(N, dtype=dtype) for dtype in (torch.float16, torch.bfloat16)]
    emulator.activate(arch)
    try:
        round_toward_zero[(1,)](x, *outs, N, num_warps=1)
    finally:
        emulator.deactivate()
    for got in outs:
        back = got.float()
        finite = x.isfinite()
        assert (back[finite].abs() <= x[finite].abs()).all()
        # The next number away from zero would be beyond.
        beyond = (got[finite].view(torch.int16) + 1).view(got.dtype).float().abs()
        assert ((beyond > x[finite].abs()) | (beyond.isnan())).all()
        assert torch.equal(back[finite].signbit(), x[finite].signbit())
        assert torch.equal(back[x.isinf()], x[x.isinf()])
        assert back[x.isnan()].isnan().all()


def test_every_type_is_known():
    assert set(DTYPES) <= set(TYPES)
