"""Matrix products in vector code against the general function: the same bits, for every kind of operand."""

import ctypes

import numpy as np
import pytest

from harness.emulator.native import record
from harness.emulator.program.compiled import products, translation
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


def different(code, registers):
    """Return how many words the two functions write differently; NaNs are equal."""
    row = Translator(decode(listing(code))).finish().code[1].copy()
    general, parameters = int(row[2 + record.GENERAL]), row[2:]
    assert general != int(row[1]) != 0
    one, other = (execute(function, parameters, registers) for function in (int(row[1]), general))
    nan = np.isnan(one.view(np.float32)) & np.isnan(other.view(np.float32))
    return int(((one != other) & ~nan).sum())


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("spread", [1, 4, 8, 14, 30, 48, 60, 100])
def test_finite_operands(code, spread):
    element = code.split()[0].rsplit("_", 1)[1]
    assert different(code, numbers(element, spread, np.random.default_rng(spread))) == 0


@pytest.mark.parametrize("middle", [-62, -56, 50, 58])
def test_small_and_large_operands(middle):
    assert different(CODES[4], numbers("bf16", 2, np.random.default_rng(1), middle)) == 0


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("seed", range(3))
def test_any_bits(code, seed):
    """Infinities, NaNs and denormals are among them."""
    words = np.random.default_rng(seed).integers(0, 1 << 32, (PAIRS, 64, 2), np.uint64)
    assert different(code, words.astype(np.uint32)) == 0


def test_a_limit_that_is_too_wide_is_found(monkeypatch):
    """Products of elements beyond it cannot be aligned by a power of two in float32."""
    monkeypatch.setattr(products, "_LIMIT", 120)
    monkeypatch.setattr(translation, "_file", lambda name: f"{name}_of_a_planted_fault")
    monkeypatch.setattr(translation, "_compiled", translation._Compiled())
    monkeypatch.setattr(products.ProductForm, "__init__", planted(products.ProductForm.__init__))
    assert different(CODES[4], numbers("bf16", 2, np.random.default_rng(1), -56))


def planted(right):
    def init(form, *arguments):
        right(form, *arguments)
        form.name += "_planted"

    return init
