"""8-bit floats: every code, every half, the edges of each format, against torch's own formats."""

import math
import struct

import pytest
import torch
import triton
import triton.language as tl

from harness import emulator
from tests.emulator.covering import covers
from tests.emulator.single import execute

TORCH = {
    ("fp8", "gfx942"): torch.float8_e4m3fnuz,
    ("bf8", "gfx942"): torch.float8_e5m2fnuz,
    ("fp8", "gfx950"): torch.float8_e4m3fn,
    ("bf8", "gfx950"): torch.float8_e5m2,
}
NAMES = [pytest.param(name, arch, id=f"{name}-{arch}") for name, arch in TORCH]
SATURATE = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1"
BYTES = list(range(256))


def words(values) -> list[int]:
    return [w & 0xFFFFFFFF for w in torch.as_tensor(values, dtype=torch.float32).view(torch.int32).tolist()]


def floats(words_) -> torch.Tensor:
    return torch.tensor([w - (w >> 31 << 32) for w in words_], dtype=torch.int32).view(torch.float32)


def decoded(name, arch, codes=BYTES) -> torch.Tensor:
    return torch.tensor(codes, dtype=torch.uint8).view(TORCH[name, arch]).float()


def equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Compare bits, with all NaN equal."""
    return bool((a.view(torch.int32) == b.view(torch.int32)).logical_or(a.isnan() & b.isnan()).all())


def samples(name, arch) -> torch.Tensor:
    """Return every value of the format, the points halfway between neighbours and next to them, and overflows."""
    values = decoded(name, arch)
    finite = values[values.isfinite()].unique()
    halfway = (finite[1:].double() + finite[:-1].double()).div(2).float()
    near = [
        halfway,
        torch.nextafter(halfway, torch.tensor(math.inf)),
        torch.nextafter(halfway, torch.tensor(-math.inf)),
    ]
    large = finite.max() * torch.tensor([1.03, 1.0625, 1.07, 1.2, 2.0, 1e9])
    odd = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-45, -1e-30])
    every = torch.cat([finite, *near, large, -large, odd])
    return torch.cat([every, torch.zeros(-len(every) % 64)])


# The smallest magnitude that overflows: halfway to the value after the largest. That value has an even code, except for
# fp8 of gfx950, where the tie is rounded down.
OVERFLOWS = {
    ("fp8", "gfx942"): 248.0,
    ("bf8", "gfx942"): 61440.0,
    ("fp8", "gfx950"): math.nextafter(464.0, math.inf),
    ("bf8", "gfx950"): 61440.0,
}


def encoded(name, arch, x: torch.Tensor, saturate: bool) -> torch.Tensor:
    """Return the expected codes: inside the format's range torch rounds alike; beyond it, infinity or NaN."""
    largest = decoded(name, arch)[decoded(name, arch).isfinite()].max()
    codes = x.clamp(-largest, largest).to(TORCH[name, arch]).view(torch.uint8).int()
    if saturate:
        return codes
    beyond = {"gfx942": 0x80, "gfx950": 0x7F if name == "fp8" else 0x7C}[arch]
    return torch.where(x.abs().double() >= OVERFLOWS[name, arch], beyond | codes & 0x80, codes)


def same_codes(name, arch, got, wanted) -> bool:
    values = decoded(name, arch)
    nan = values[got.long()].isnan() & values[wanted.long()].isnan()
    return bool(((got == wanted) | nan).all())


# -- from 8 bits -------------------------------------------------------------------------------------------------------


@covers(*(f"v_cvt_f32_{name}@{arch}" for name, arch in TORCH))
@pytest.mark.parametrize(("name", "arch"), NAMES)
@pytest.mark.parametrize("byte", range(4))
def test_one_value(name, arch, byte):
    codes = [code << 8 * byte | (0x5A5A5A5A & ~(0xFF << 8 * byte)) for code in BYTES]
    form = "e32 v0, v1" if byte == 0 else f"sdwa v0, v1 src0_sel:BYTE_{byte}"
    got = [
        w
        for i in range(0, 256, 64)
        for w in execute(f"v_cvt_f32_{name}_{form}", v={1: codes[i : i + 64]}, arch=arch).v(0)
    ]
    assert equal(floats(got), decoded(name, arch))


@covers(*(f"v_cvt_pk_f32_{name}@{arch}" for name, arch in TORCH))
@pytest.mark.parametrize(("name", "arch"), NAMES)
@pytest.mark.parametrize("word", [0, 1])
def test_two_values(name, arch, word):
    form = "e32 v[2:3], v1" if word == 0 else "sdwa v[2:3], v1 src0_sel:WORD_1"
    for i in range(0, 256, 64):
        low, high = BYTES[i : i + 64], [255 - b for b in BYTES[i : i + 64]]
        pairs = [(a | b << 8) << 16 * word | 0x77 << (24 if word == 0 else 0) for a, b in zip(low, high, strict=True)]
        result = execute(f"v_cvt_pk_f32_{name}_{form}", v={1: pairs}, arch=arch)
        assert equal(floats(result.v(2)), decoded(name, arch, low))
        assert equal(floats(result.v(3)), decoded(name, arch, high))


# -- to 8 bits ---------------------------------------------------------------------------------------------------------


@covers(*(f"v_cvt_pk_{name}_f32@{arch}" for name, arch in TORCH))
@pytest.mark.parametrize(("name", "arch"), NAMES)
@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("high", [False, True])
def test_two_values_packed(name, arch, saturate, high):
    x = samples(name, arch)
    other = x.flip(0)
    code = [SATURATE] * saturate + [f"v_cvt_pk_{name}_f32 v0, v1, v2{' op_sel:[0,0,1]' if high else ''}"]
    for part in range(0, len(x), 64):
        a, b = x[part : part + 64], other[part : part + 64]
        got = torch.tensor(execute(*code, v={0: 0xAAAABBBB, 1: words(a), 2: words(b)}, arch=arch).v(0))
        kept, packed = (got & 0xFFFF, got >> 16) if high else (got >> 16, got & 0xFFFF)
        assert (kept == (0xBBBB if high else 0xAAAA)).all()
        assert same_codes(name, arch, packed & 0xFF, encoded(name, arch, a, saturate))
        assert same_codes(name, arch, packed >> 8, encoded(name, arch, b, saturate))


def test_examples_by_hand():
    """e4m3 OCP: 1.0 is 0x38, 460 rounds to 448, 470 overflows; FNUZ has the bias 8 and no negative zero."""
    x = [1.0, 460.0, 470.0, -0.0] * 16
    assert execute("v_cvt_pk_fp8_f32 v0, v1, v1", v={1: words(x)}, arch="gfx950").v(0)[:4] == [
        0x3838,
        0x7E7E,
        0x7F7F,
        0x8080,
    ]
    assert execute(SATURATE, "v_cvt_pk_fp8_f32 v0, v1, v1", v={1: words(x)}, arch="gfx950").v(0)[2] == 0x7E7E
    assert execute("v_cvt_pk_fp8_f32 v0, v1, v1", v={1: words(x)}).v(0)[:4] == [0x4040, 0x8080, 0x8080, 0]


# -- gfx950: 16-bit pairs ----------------------------------------------------------------------------------------------


@covers("v_cvt_pk_bf16_f32@gfx950 v_cvt_pk_f16_f32@gfx950")
@pytest.mark.parametrize(("name", "dtype"), [("bf16", torch.bfloat16), ("f16", torch.float16)])
def test_two_halves(name, dtype):
    edges = [0.0, -0.0, math.inf, math.nan, 65504.0, 65519.0, 65520.0, 1e-8, 3.0e38, 1.00390625, 1.01171875, 6.1e-5]
    x = torch.cat([torch.tensor(edges), torch.randn(52, generator=torch.Generator().manual_seed(1))])
    got = torch.tensor(execute(f"v_cvt_pk_{name}_f32 v0, v1, v2", v={1: words(x), 2: words(-x)}, arch="gfx950").v(0))
    for half, source in ((got & 0xFFFF, x), (got >> 16, -x)):
        value = (half - (half >> 15 << 16)).to(torch.int16).view(dtype)
        assert equal(value.float(), source.to(dtype).float())


# -- kernels -----------------------------------------------------------------------------------------------------------


@triton.jit
def cast(x, y, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offsets, tl.load(x + offsets).to(y.dtype.element_ty))


# Triton 3.6 converts some in software, and converts infinities and NaN to bfloat16 (triton #11784) and float16 just
# above 464 to fp8 wrongly.
OLD = triton.__version__ < "3.7"


@pytest.mark.parametrize("wide", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("name", "arch"), NAMES)
def test_casts_of_triton(name, arch, wide):
    """Downcasts of Triton saturate; up and down again is the identity."""
    dtype = TORCH[name, arch]
    emulator.activate(arch)
    try:
        codes = torch.tensor(BYTES, dtype=torch.uint8)
        up = torch.empty(256, dtype=wide)
        cast[(1,)](codes.view(dtype), up, 256)
        wanted = codes.view(dtype).to(wide).float()
        sound = wanted.isfinite() if OLD and wide == torch.bfloat16 else torch.full((256,), True)
        assert equal(up.float()[sound], wanted[sound])
        x = samples(name, arch)
        x = x[x.isfinite() & ((x.abs() <= 464.0) | torch.tensor(not OLD))].to(wide)
        x = torch.cat([x, torch.zeros(-len(x) % 256, dtype=wide)])
        down = torch.empty(len(x), dtype=dtype)
        cast[(len(x) // 256,)](x, down, 256)
        assert same_codes(name, arch, down.view(torch.uint8).int(), encoded(name, arch, x.float(), True))
    finally:
        emulator.deactivate()


def test_packing_follows_struct():
    assert words([-1.0]) == [struct.unpack("<I", struct.pack("<f", -1.0))[0]]


@covers("v_cvt_f32_bf16@gfx950")
def test_bf16_up():
    words = [0, 0x8000, 0x3F80, 0x7F80, 0xFF81, 1] * 11
    for form, shift in (("e32 v0, v1", 0), ("sdwa v0, v1 src0_sel:WORD_1", 16)):
        v = {1: [w << shift | 0x5555 << 16 - shift for w in words[:64]]}
        assert execute(f"v_cvt_f32_bf16_{form}", v=v, arch="gfx950").v(0) == [w << 16 for w in words[:64]]
