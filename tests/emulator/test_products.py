"""Matrix products in vector code against the general function: the same bits, for every kind of operand."""

import ctypes

import numpy as np
import pytest

from harness.emulator.native import record
from harness.emulator.program.compiled import near_products, products, translation
from harness.emulator.program.compiled.translation import Translator
from harness.emulator.program.decode import decode
from tests.emulator.single import listing

PAIRS = 64
CODES = (
    "v_mfma_f32_32x32x8_f16 v[0:15], v[38:39], v[62:63], v[0:15]",
    "v_mfma_f32_16x16x16_f16 v[0:3], v[38:39], v[62:63], v[4:7]",
    "v_mfma_f32_32x32x4_2b_f16 v[0:31], v[38:39], v[62:63], v[0:31] cbsz:1 abid:1",
    "v_mfma_f32_16x16x16_bf16 v[0:3], v[38:39], v[62:63], 1.0",
    "v_mfma_f32_32x32x8_bf16 v[0:15], v[38:39], v[62:63], v[16:31]",
    "v_mfma_f32_16x16x8_xf32 v[0:3], v[38:39], v[62:63], v[0:3]",
)
GFX950 = (
    "v_mfma_f32_16x16x32_f16 v[0:3], v[38:41], v[60:63], v[4:7]",
    "v_mfma_f32_32x32x16_bf16 v[0:15], v[38:41], v[60:63], v[16:31]",
)
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


def numbers(element, spread, some, middle=0):
    """Return registers uint32[PAIRS, 64, 2] full of numbers of the exponents ``middle`` +- ``spread``; some are 0."""
    shape = (PAIRS, 64, 2 if element == "xf32" else 4)
    values = (
        some.uniform(1, 2, shape)
        * some.choice([-1, 1], shape)
        * np.exp2(some.uniform(middle - spread, middle + spread, shape))
    )
    values[some.random(shape) < 0.2] = 0
    with np.errstate(over="ignore", under="ignore"):
        if element == "f16":
            return values.astype(np.float16).view(np.uint32)
        words = values.astype(np.float32).view(np.uint32)
    return words if element == "xf32" else (words >> 16).astype(np.uint16).view(np.uint32)


def execute(function, parameters, registers):
    memory = np.zeros(record.private_offset(PAIRS) + 64, np.uint8)
    wave = memory[-memory.ctypes.data % 64 :]
    vectors = wave[record.VECTORS :][: PAIRS * record.PAIR_BYTES].view(np.uint32)
    vectors[:] = registers.reshape(-1)
    assert FUNCTION(function)(wave.ctypes.data, parameters.ctypes.data) == 0
    return vectors.copy()


def program(code):
    return decode(listing(code, arch="gfx950" if code in GFX950 else "gfx942"))


def different(code, registers):
    """Return how many words the two functions write differently; NaNs are equal."""
    translated = Translator(program(code)).finish()  # holds the arrays whose addresses are parameters
    row = translated.code[1].copy()
    general, parameters = int(row[2 + record.GENERAL]), row[2:]
    assert general not in (0, int(row[1]))
    one, other = (execute(function, parameters, registers) for function in (int(row[1]), general))
    nan = np.isnan(one.view(np.float32)) & np.isnan(other.view(np.float32))
    return int(((one != other) & ~nan).sum())


@pytest.mark.parametrize("code", CODES + GFX950)
@pytest.mark.parametrize("spread", [1, 4, 8, 14, 30, 48, 60, 100])
def test_finite_operands(code, spread):
    element = code.split()[0].rsplit("_", 1)[1]
    assert different(code, numbers(element, spread, np.random.default_rng(spread))) == 0


@pytest.mark.parametrize("middle", [-62, -56, -42, -37, 37, 50, 58])
def test_small_and_large_operands(middle):
    assert different(CODES[4], numbers("bf16", 2, np.random.default_rng(1), middle)) == 0


@pytest.mark.parametrize("code", CODES + GFX950)
@pytest.mark.parametrize("seed", range(3))
def test_any_bits(code, seed):
    """Infinities, NaNs and denormals are among them."""
    words = np.random.default_rng(seed).integers(0, 1 << 32, (PAIRS, 64, 2), np.uint64)
    assert different(code, words.astype(np.uint32)) == 0


@pytest.mark.parametrize("exponent", [-126, -110, -84, -82, -81, -60, 60, 120, 127])
@pytest.mark.parametrize("zeros", [0.2, 0.9])
@pytest.mark.parametrize("code", [CODES[1], CODES[4]])
def test_addends_beside_products_of_any_size(code, zeros, exponent):
    assert different(code, beside(code, zeros, exponent)) == 0


def beside(code, zeros, exponent):
    """Return operands near the least direct exponents, some 0, and addends of one exponent, float32."""
    some = np.random.default_rng(exponent % 100)
    element = code.split()[0].rsplit("_", 1)[1]
    registers = numbers(element, 1, some, -12 if element == "f16" else -37)
    registers[some.random(registers.shape) < zeros] = 0
    words = some.uniform(1, 2, registers.shape).astype(np.float32) * some.choice([-1, 1], registers.shape)
    words = np.ldexp(words.astype(np.float32), exponent)
    words[some.random(words.shape) < 0.1] = 0
    addends = slice(2, 4) if "16x16" in code else slice(8, 16)
    registers[addends] = words[addends].view(np.uint32)
    return registers


@pytest.mark.parametrize(("limit", "middle"), [(("LOW", -120), -56), (("HIGH", 120), 40)])
def test_a_limit_that_is_too_wide_is_found(monkeypatch, limit, middle):
    """Products of elements beyond it cannot be aligned by a power of two in float32."""
    plant(monkeypatch, *limit)
    registers = numbers("bf16", 2, np.random.default_rng(1), middle)
    registers[8:16] = 0
    assert different(CODES[4], registers)


def test_a_least_exponent_that_is_too_low_is_found(monkeypatch):
    """An addend cannot be aligned by a power of two in float32, and a product of zero becomes a number."""
    plant(monkeypatch, "LEAST", -126)
    assert different(CODES[4], beside(CODES[4], 0.9, -110))


def plant(monkeypatch, name, value):
    monkeypatch.setattr(near_products, name, value)
    monkeypatch.setattr(translation, "_file", lambda name: f"{name}_of_a_planted_fault")
    monkeypatch.setattr(translation, "_compiled", translation._Compiled())
    monkeypatch.setattr(products.ProductForm, "__init__", planted(products.ProductForm.__init__, f"{name}{value}"))


def planted(right, salt):
    def init(form, *arguments):
        right(form, *arguments)
        form.name += f"_planted{salt}"

    return init
