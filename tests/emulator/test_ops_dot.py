"""v_dot*: sums of products within a lane, against Python integers and fractions."""

import random

import pytest

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.operations import TABLE
from tests.emulator import edges
from tests.emulator.covering import covers
from tests.emulator.ieee import F16, F32, Format, add, convert, fma, mul
from tests.emulator.semantics import clamp, signed, wrap
from tests.emulator.single import execute

NAMES = sorted(name for name in TABLE if name.startswith("v_dot"))
MASK = 0x00FF_F0F0_1234_8001
BF16 = Format(16, 7)


def integers(name, a, b, c, saturate):
    kind = name.rpartition("_")[2]
    bits = int(kind[1:])
    read = signed if kind[0] == "i" else wrap
    total = read(c, 32) + sum(read(a >> n, bits) * read(b >> n, bits) for n in range(0, 32, bits))
    low, high = (-(1 << 31), (1 << 31) - 1) if kind[0] == "i" else (0, (1 << 32) - 1)
    return wrap(clamp(total, low, high) if saturate else total)


def floats(name, a, b, c):
    """Compute a float dot product: for float16 a denormal addend or result is 0; v_dot2_f32_bf16 adds C last."""
    f = BF16 if name.endswith("bf16") else F16
    if name == "v_dot2_f32_bf16":
        pairs = [[convert(f, F32, word >> shift & 0xFFFF) for word in (a, b)] for shift in (0, 16)]
        return add(F32, fma(F32, *pairs[1], mul(F32, *pairs[0])), c)
    c = 0 if f is F16 and F32.is_denormal(c) else c
    for shift in (0, 16):
        c = fma(F32, *(convert(f, F32, word >> shift & 0xFFFF) for word in (a, b)), c)
    return 0 if f is F16 and F32.is_denormal(c) else c


def words(name, some):
    if "f32" not in name:
        corners = [0, 0xFFFFFFFF, 0x80808080, 0x7F7F7F7F, 0x80008000, 0x7FFF7FFF, 0x88888888]
        return [some.choice(corners) if some.random() < 0.5 else some.getrandbits(32) for _ in range(256)]
    halves = edges.floats("f16") if name.endswith("_f16") else [word >> 16 for word in edges.floats("f32")]
    return [some.choice(halves) | some.choice(halves) << 16 for _ in range(256)]


@covers(*NAMES)
@pytest.mark.parametrize("name", NAMES)
def test_every_dot_product(name):
    name, _, arch = name.partition("@")
    some = random.Random(name)
    a, b = words(name, some), words(name, some)
    c = [some.choice(edges.floats("f32")) if "f32" in name else some.getrandbits(32) for _ in range(256)]
    accumulates = "c_" in name
    for saturate in (False, True) if "f32" not in name else (False,):
        text = f"{name}{'_e64' if accumulates and saturate else ''} v0, v1, v2"
        text += ("" if accumulates else ", v3") + (" clamp" if saturate else "")
        result = execute(text, v={0: c, 1: a, 2: b, 3: c}, waves=4, exec=MASK, arch=arch or "gfx942").v(0)
        for lane, got in enumerate(result):
            case = a[lane], b[lane], c[lane]
            if not MASK >> lane % 64 & 1:
                wanted = c[lane]
            else:
                wanted = floats(name, *case) if "f32" in name else integers(name, *case, saturate)
            nans = "f32" in name and F32.is_nan(got) and F32.is_nan(wanted)
            assert got == wanted or nans, f"{text} {list(map(hex, case))}: {got:#x}, not {wanted:#x}"


def test_scalar_and_constant_operands():
    assert execute("v_dot4_i32_i8 v0, v1, s2, 5", v={1: 0x01020304}, s={2: 0x01010101}).v(0)[0] == 15
    assert execute("v_dot2_f32_f16 v0, v1, v2, 1.0", v={1: 0x3C003C00, 2: 0x40003C00}).v(0)[0] == 0x40800000


@pytest.mark.parametrize(
    "text",
    [
        "v_dot2_f32_f16 v0, 1.0, v2, v3",
        "v_dot2_f32_f16 v0, v1, v2, v3 neg_lo:[1,0,0]",
        "v_dot2c_f32_f16_e64 v0, -v1, v2",
    ],
)
def test_forms_that_are_refused(text):
    with pytest.raises(UnimplementedInstruction):
        execute(text)
