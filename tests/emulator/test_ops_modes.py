"""The float modes of MODE and of the kernel descriptor: denormal numbers, overflow of float16, IEEE, clamped NaN."""

import random
import struct
from fractions import Fraction

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from harness import emulator
from harness.emulator.execution.allocations import Allocations
from harness.emulator.execution.launch import Launch
from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.program.decode import decode
from tests.emulator.ieee import F16, F32, F64, FORMATS, Format
from tests.emulator.single import execute, listing


def f32(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def set_mode(offset: int, width: int, value: int) -> str:
    return f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, {offset}, {width}), {value}"


# -- rounding ----------------------------------------------------------------------------------------------------------


def directed(f: Format, value: Fraction, to: int, zero: int = 0) -> int:
    """Return the pattern of a value: with 1 the next above, with 2 the next below, with 3 the next toward zero."""
    if value == 0:
        return zero
    inward = f.round(value, toward_zero=True)
    outward = value > 0 if to == 1 else value < 0 if to == 2 else False
    return inward + (outward and f.value(inward) != value)


EXACT = {
    "add": lambda a, b, c: a + b, "mul": lambda a, b, c: a * b, "fma": lambda a, b, c: a * b + c,
}  # fmt: skip


@pytest.mark.parametrize("to", [0, 1, 2, 3])
@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
@pytest.mark.parametrize("name", EXACT)
def test_rounding(name, kind, to):
    f, some = FORMATS[kind], random.Random(name + kind)
    wide, offset = kind == "f64", 0 if kind == "f32" else 2
    near = f.bias << f.mantissa
    cases = [[near + some.randrange(-(8 << f.mantissa), 8 << f.mantissa) | some.choice((0, f.sign)) for _ in range(3)]
             for _ in range(60)]  # fmt: skip
    cases += [[f.inf - 1, f.inf - 1, f.inf - 1], [1, 1, 1], [f.sign | 1, 1, 1], [f.inf - 1, near, f.sign | 1]]
    v = {}
    for i in range(3):
        column = [case[i] for case in cases]
        v[2 + 2 * i] = [word & 0xFFFFFFFF for word in column]
        v[3 + 2 * i] = [word >> 32 for word in column]
    count = 3 if name == "fma" else 2
    operands = [f"v[{2 * i}:{2 * i + 1}]" if wide else f"v{2 * i}" for i in range(count + 1)]
    result = execute(set_mode(offset, 2, to), f"v_{name}_{kind} {', '.join(operands)}", v=v)
    for case, got in zip(cases, result.v64(0) if wide else result.v(0), strict=True):
        value = EXACT[name](*map(f.value, case))
        wanted = directed(f, value, to) if to else f.round(value)
        assert got & (f.sign | f.sign - 1) == wanted or value == 0, (list(map(hex, case)), hex(got), hex(wanted))


@pytest.mark.parametrize("to", [1, 2, 3])
def test_rounding_of_conversions(to):
    words = [f32(x) for x in (1 + 2.0**-11, -1 - 2.0**-11, 65519.0, -65519.0, 1e6, -1e6, 2.0**-25, -(2.0**-25))] * 8
    got = execute(set_mode(2, 2, to), "v_cvt_f16_f32_e32 v0, v1", v={1: words}).v(0)
    assert got == [directed(F16, F32.value(word), to) for word in words]
    numbers = [(1 << 24) + 1, (1 << 32) - 1, 3, 0x80000001] * 16
    assert execute(set_mode(0, 2, to), "v_cvt_f32_u32_e32 v0, v1", v={1: numbers}).v(0) == [
        directed(F32, Fraction(n), to) for n in numbers
    ]
    double = struct.unpack("<Q", struct.pack("<d", -1.0 - 2.0**-40))[0]
    v = {2: double & 0xFFFFFFFF, 3: double >> 32}
    narrowed = execute(set_mode(0, 2, to), "v_cvt_f32_f64_e32 v0, v[2:3]", v=v).v(0)[0]
    assert narrowed == directed(F32, F64.value(double), to)


def test_the_descriptor_asks_for_a_rounding():
    text = listing("v_add_f32_e32 v0, 1.0, v1").replace(
        "\t.end_amdhsa_kernel", "\t\t.amdhsa_float_round_mode_32 1\n\t.end_amdhsa_kernel"
    )
    code = decode(text)
    wf = Launch(code, (1, 1, 1), 1, 0, np.zeros(8, np.uint8), Allocations()).start(0, 1).wavefronts
    wf.v[0, :, :, 1] = 1
    for step in code.blocks[0].segments[0].steps:
        step(wf)
    assert (wf.v[0, :, :, 0] == f32(1.0) + 1).all()
    # The host rounds to nearest again.
    assert np.float32(1.0) + np.float32(1e-30) == 1.0


def test_steps_that_need_the_nearest_number_are_refused():
    with pytest.raises(UnimplementedInstruction, match="v_ldexp_f32 with rounding mode 1"):
        execute(set_mode(0, 2, 1), "v_ldexp_f32 v0, v1, v2")
    assert execute(set_mode(0, 2, 1), "v_floor_f32_e32 v0, v1", v={1: f32(-0.5)}).v(0)[0] == f32(-1.0)


# -- denormal numbers --------------------------------------------------------------------------------------------------

SMALL = 0x00000123
TINY = f32(2.0**-126)


@pytest.mark.parametrize(
    ("mode", "sources", "results"), [(0, True, True), (1, False, True), (2, True, False), (3, False, False)]
)
def test_denormals_by_mode(mode, sources, results):
    by = set_mode(4, 2, mode)
    add = execute(by, "v_add_f32_e32 v0, v1, v2", v={1: SMALL, 2: f32(0.0)}).v(0)[0]
    assert add == (0 if sources or results else SMALL)
    halved = execute(by, "v_mul_f32_e32 v0, v1, v2", v={1: TINY | 1 << 31, 2: f32(0.5)}).v(0)[0]
    assert halved == (1 << 31 if results else f32(-(2.0**-127)))
    scaled = execute(by, "v_mul_f32_e32 v0, v1, v2", v={1: SMALL, 2: f32(2.0**30)}).v(0)[0]
    assert (scaled == 0) == sources
    equal = execute(by, "v_cmp_eq_f32_e32 vcc, v1, v2", v={1: SMALL, 2: 0})
    assert (equal.vcc[0] != 0) == sources


def test_moves_and_doubles_are_not_flushed():
    by = set_mode(4, 2, 0)
    assert execute(by, "v_mov_b32_e32 v0, v1", v={1: SMALL}).v(0)[0] == SMALL
    assert execute(by, "v_add_f64 v[0:1], v[2:3], v[4:5]", v={2: 5, 3: 0, 4: 0, 5: 0}).v64(0)[0] == 5


@pytest.mark.parametrize(
    ("mode", "sources", "results"), [(0, True, True), (1, False, True), (2, True, False), (3, False, False)]
)
def test_denormals_of_16_and_64_bits(mode, sources, results):
    by = set_mode(6, 2, mode)
    assert execute(by, "v_add_f64 v[0:1], v[2:3], v[4:5]", v={2: 5, 3: 0, 4: 0, 5: 0}).v64(0)[0] == (
        0 if sources or results else 5
    )
    assert execute(by, "v_cvt_f32_f16_e32 v0, v1", v={1: 0x8001}).v(0)[0] == (1 << 31 if sources else f32(-(2.0**-24)))
    assert execute(by, "v_cvt_f16_f32_e32 v0, v1", v={1: f32(-(2.0**-24))}).v(0)[0] == (0x8000 if results else 0x8001)
    halves = execute(by, "v_pk_mul_f16 v0, v1, v2", v={1: 0x04000001, 2: 0x38003C00}).v(0)[0]
    assert halves == (0 if results else 0x02000000) | (0 if sources or results else 1)
    assert execute(by, "v_mul_f32_e32 v0, v1, v2", v={1: SMALL, 2: f32(1.0)}).v(0)[0] == SMALL


def test_classes_and_the_last_step_of_a_division_see_denormal_sources():
    by = set_mode(4, 2, 0)
    denormal = execute(by, "v_cmp_class_f32_e64 vcc, v1, v2", v={1: SMALL, 2: 1 << 7})
    assert denormal.vcc[0] == (1 << 64) - 1
    # VCC scales by 2**-64 or, where the addend's exponent is large, by 2**64; its result is flushed as others are.
    text = "v_div_fmas_f32 v0, v1, v2, v3"
    assert execute(by, text, v={1: SMALL, 2: f32(2.0**60), 3: 0}, vcc=0).v(0)[0] == f32(0x123 * 2.0**-89)
    assert execute(by, text, v={1: SMALL, 2: f32(1.0), 3: 0}, vcc=0).v(0)[0] == 0


def test_what_a_mode_is_not_applied_to_is_refused():
    with pytest.raises(UnimplementedInstruction, match="ds_add_f32"):
        execute(set_mode(4, 2, 0), "ds_add_f32 v0, v1", lds=64)
    some = "s_setreg_b32 hwreg(HW_REG_MODE, 4, 2), s5"
    with pytest.raises(UnimplementedInstruction, match="different float modes"):
        execute(some, "v_add_f32_e32 v0, v1, v2", s={5: [0, 3]}, waves=2, native=False)


def test_a_kernel_turns_denormals_on_for_itself():
    code = (set_mode(4, 2, 0), "v_add_f32_e32 v0, v1, v2", set_mode(4, 2, 3), "v_add_f32_e32 v3, v1, v2")
    result = execute(*code, v={1: SMALL, 2: 0})
    assert (result.v(0)[0], result.v(3)[0]) == (0, SMALL)


@triton.jit
def double(x, y, z, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    a = tl.load(x + offsets)
    tl.store(y + offsets, a + a)
    tl.store(z + offsets, a / 3.0)


@pytest.mark.parametrize("flush", [False, True])
def test_triton_asks_for_it(flush):
    emulator.activate()
    x = torch.tensor([1e-40, -1e-40, 1.0, 2.0**-126] * 16)
    y, z = torch.zeros(64), torch.zeros(64)
    double[(1,)](x, y, z, 64, num_warps=1, allow_flush_denorm=flush)
    emulator.deactivate()
    wanted = torch.where(x.abs() < 2.0**-126, torch.copysign(torch.zeros(64), x), x) if flush else x
    assert torch.equal((wanted + wanted).view(torch.int32), y.view(torch.int32))
    third = wanted / 3.0
    assert torch.equal(z[2::4], third[2::4])
    assert bool((z[::4] == 0).all()) == flush


# -- float16 that overflows, NaN ---------------------------------------------------------------------------------------

LARGEST, INFINITY = 0x7BFF, 0x7C00


def test_float16_overflow_becomes_the_largest_and_infinities_stay():
    on = set_mode(23, 1, 1)
    for by, large in (((on,), LARGEST), ((), INFINITY)):
        convert = "v_cvt_f16_f32_e32 v0, v1"
        assert execute(*by, convert, v={1: f32(-1e6)}).v(0)[0] == 0x8000 | large
        assert execute(*by, convert, v={1: f32(float("inf"))}).v(0)[0] == INFINITY
        assert execute(*by, "v_mul_f16_e32 v0, v1, v2", v={1: LARGEST, 2: 0xC000}).v(0)[0] == 0x8000 | large
        assert execute(*by, "v_add_f16_e32 v0, v1, v2", v={1: INFINITY, 2: 0xC000}).v(0)[0] == INFINITY
        assert execute(*by, "v_rcp_f16_e32 v0, v1", v={1: 0}).v(0)[0] == large
        assert execute(*by, "v_pk_add_f16 v0, v1, v1", v={1: LARGEST << 16 | 0x3C00}).v(0)[0] == large << 16 | 0x4000
        packed = execute(*by, "v_cvt_pk_f16_f32 v0, v1, v2", v={1: f32(1e6), 2: f32(float("-inf"))}, arch="gfx950")
        assert packed.v(0)[0] == 0xFC00 << 16 | large
    assert execute(on, "v_add_f32_e32 v0, v1, v1", v={1: f32(3e38)}).v(0)[0] == f32(float("inf"))


@pytest.mark.parametrize("name", ["min", "max"])
def test_without_ieee_any_nan_loses(name):
    """IEEE mode quiets a signalling NaN; without it a signalling NaN equals a quiet one."""
    quieted, one = 0x7FC00001, f32(1.0)
    for text in (f"v_{name}_f32_e32 v0, v1, v2", f"v_{name}3_f32 v0, v2, v2, v1", "v_med3_f32 v0, v2, v2, v1"):
        v = {1: 0x7F800001, 2: one}
        assert execute(text, v=v).v(0)[0] == quieted
        assert execute(set_mode(9, 1, 0), text, v=v).v(0)[0] == one


def test_a_clamped_nan_is_zero_unless_dx10_clamp_is_off():
    text, v = "v_add_f32_e64 v0, v1, v1 clamp", {1: 0x7FC00000}
    assert execute(text, v=v).v(0)[0] == 0
    assert execute(set_mode(8, 1, 0), text, v=v).v(0)[0] & 0x7FFFFFFF > 0x7F800000
