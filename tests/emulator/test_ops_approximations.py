"""Instructions that the hardware only approximates: within the bounds of the manual, and its examples.

Source: AMD "CDNA4 ISA" (CDNA3 alike), VOP1: V_RCP, V_RSQ, V_SQRT, V_EXP, V_LOG of 16 and 32 bits have "1ULP
accuracy", those of 64 bits "(2**29)ULP accuracy"; 32-bit ones flush denormal numbers, the others support them. V_SIN
and V_COS take turns, support denormal numbers and the "full range", and have no stated bound: 1 ulp is the emulator's
own.
"""

import math
from fractions import Fraction

import numpy as np
import pytest

from tests.emulator.covering import covers
from tests.emulator.ieee import FORMATS
from tests.emulator.single import execute

TYPES = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
TINY = {kind: float(np.finfo(dtype).tiny) for kind, dtype in TYPES.items()}


def run(name: str, words: np.ndarray) -> np.ndarray:
    """Run ``name`` on patterns of its type, passed as uint16, uint32 or uint64; return the patterns of the results."""
    wide = words.dtype.itemsize == 8
    text = f"{name}_e32 v[2:3], v[4:5]" if wide else f"{name}_e32 v2, v4"
    lanes = words[np.arange(-(-len(words) // 64) * 64) % len(words)].astype(np.uint64)
    v = {4: lanes & 0xFFFFFFFF, 5: lanes >> np.uint64(32)} if wide else {4: lanes}
    result = execute(text, v=v, waves=len(lanes) // 64)
    return np.array(result.v64(2) if wide else result.v(2), np.uint64)[: len(words)].astype(words.dtype)


def patterns(kind: str) -> np.ndarray:
    """Return every float16; of wider types random patterns, the edges of each exponent, and values around 1."""
    dtype = np.dtype(TYPES[kind])
    word = np.dtype(f"u{dtype.itemsize}")
    if kind == "f16":
        return np.arange(1 << 16).astype(word)
    bits, mantissa = 8 * dtype.itemsize, FORMATS[kind].mantissa
    drawn = np.random.default_rng(4).integers(0, 1 << bits, 6000, dtype=word)
    powers = np.arange(1 << bits - 1 - mantissa, dtype=word) << word.type(mantissa)
    one = np.array(1.0, dtype).view(word)
    near = one + np.arange(-500, 500).astype(word)
    return np.concatenate([drawn, powers, powers + word.type(1), powers - word.type(1), near]).astype(word)


def exact(name: str, x: np.ndarray) -> np.ndarray:
    """Compute the function in long double, 64 bits of mantissa."""
    x = x.astype(np.longdouble)
    with np.errstate(all="ignore"):
        return {"rcp": lambda: 1 / x, "rsq": lambda: 1 / np.sqrt(x), "sqrt": lambda: np.sqrt(x),
                "exp": lambda: np.exp2(x), "log": lambda: np.log2(x), "sin": lambda: sine(x), "cos": lambda: cosine(x),
                }[name]()  # fmt: skip


def sine(turns: np.ndarray) -> np.ndarray:
    """Compute the sine from the angle's distance to the nearest half turn, which is exact."""
    half = np.rint(2 * turns)
    angle = 2 * np.longdouble(math.pi) * (turns - half / 2)
    return np.sin(angle) * np.where(half % 2 == 0, 1, -1)


def cosine(turns: np.ndarray) -> np.ndarray:
    return sine(np.longdouble(0.25) - np.abs(turns - np.rint(turns)))


APPROXIMATIONS = [
    (name, kind, 2**29 if kind == "f64" else 1)
    for name in ("rcp", "rsq", "sqrt", "exp", "log", "sin", "cos")
    for kind in (TYPES if name in ("rcp", "rsq", "sqrt") else ("f16", "f32"))
]


@pytest.mark.parametrize(("name", "kind", "bound"), APPROXIMATIONS)
def test_within_the_stated_error(name, kind, bound):
    words = patterns(kind)
    x = words.view(TYPES[kind])
    got = run(f"v_{name}_{kind}", words).view(TYPES[kind])
    flushes = kind == "f32" and name not in ("sin", "cos")
    with np.errstate(all="ignore"):
        x = np.where(np.abs(x) < TINY[kind], np.copysign(x.dtype.type(0), x), x) if flushes else x
        wanted = exact(name, x)
        nearest = wanted.astype(TYPES[kind])
        if flushes:
            nearest = np.where(np.abs(nearest) < TINY[kind], np.copysign(nearest.dtype.type(0), nearest), nearest)
    assert np.array_equal(np.isnan(got), np.isnan(nearest))
    finite = np.isfinite(nearest) & np.isfinite(got)
    assert np.array_equal(got[~finite & ~np.isnan(got)], nearest[~finite & ~np.isnan(got)])
    unit = np.spacing(np.abs(nearest[finite])).astype(np.longdouble)
    error = np.abs(got[finite].astype(np.longdouble) - wanted[finite]) / unit
    small = np.abs(nearest[finite]) == 0 if flushes else np.zeros(len(unit), bool)
    assert float(error[~small].max()) <= bound
    assert not np.any(got[finite][small])


@covers("v_rcp_iflag_f32")
def test_the_reciprocal_of_integer_division_is_that_of_v_rcp():
    words = patterns("f32")
    assert np.array_equal(run("v_rcp_iflag_f32", words), run("v_rcp_f32", words))


# The functional examples of the manual, bit for bit.
EXAMPLES = {
    "v_exp_f32": {0xFF800000: 0, 0x80000000: 0x3F800000, 0x7F800000: 0x7F800000},
    "v_log_f32": {0xFF800000: 0xFFC00000, 0xBF800000: 0xFFC00000, 0x80000000: 0xFF800000, 0: 0xFF800000,
                  0x3F800000: 0, 0x7F800000: 0x7F800000},
    "v_rcp_f32": {0xFF800000: 0x80000000, 0xC0000000: 0xBF000000, 0x80000000: 0xFF800000, 0: 0x7F800000,
                  0x7F800000: 0},
    "v_rsq_f32": {0xFF800000: 0xFFC00000, 0x80000000: 0xFF800000, 0: 0x7F800000, 0x40800000: 0x3F000000,
                  0x7F800000: 0},
    "v_sqrt_f32": {0xFF800000: 0xFFC00000, 0x80000000: 0x80000000, 0: 0, 0x40800000: 0x40000000,
                   0x7F800000: 0x7F800000},
    "v_sin_f32": {0xFF800000: 0xFFC00000, 0xFF7FFFFF: 0, 0x80000000: 0x80000000, 0x3E800000: 0x3F800000,
                  0x7F800000: 0xFFC00000},
    "v_cos_f32": {0xFF800000: 0xFFC00000, 0xFF7FFFFF: 0x3F800000, 0x80000000: 0x3F800000, 0x3E800000: 0,
                  0x7F800000: 0xFFC00000},
    "v_rcp_f16": {0xFC00: 0x8000, 0xC000: 0xB800, 0x8000: 0xFC00, 0: 0x7C00, 0x7C00: 0},
    "v_sqrt_f16": {0xFC00: 0xFE00, 0x8000: 0x8000, 0: 0, 0x4400: 0x4000, 0x7C00: 0x7C00},
    "v_rsq_f16": {0xFC00: 0xFE00, 0x8000: 0xFC00, 0: 0x7C00, 0x4400: 0x3800, 0x7C00: 0},
    "v_log_f16": {0xFC00: 0xFE00, 0xBC00: 0xFE00, 0x8000: 0xFC00, 0: 0xFC00, 0x3C00: 0, 0x7C00: 0x7C00},
    "v_exp_f16": {0xFC00: 0, 0x8000: 0x3C00, 0x7C00: 0x7C00},
    "v_sin_f16": {0xFC00: 0xFE00, 0xFBFF: 0, 0x8000: 0x8000, 0x3400: 0x3C00, 0x7BFF: 0, 0x7C00: 0xFE00},
    "v_cos_f16": {0xFC00: 0xFE00, 0xFBFF: 0x3C00, 0x8000: 0x3C00, 0x3400: 0, 0x7BFF: 0x3C00, 0x7C00: 0xFE00},
}  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_manuals_examples(name):
    examples = EXAMPLES[name]
    words = np.array(list(examples), np.uint16 if name.endswith("f16") else np.uint32)
    assert run(name, words).tolist() == list(examples.values())


# -- division ----------------------------------------------------------------------------------------------------------


def div_scale_of_the_manual(f, value, denominator, numerator, apart, tiny, step):
    """V_DIV_SCALE's pseudocode, with its conditions in order; None where LLVM's sequence would be wrong with it.

    For a denominator whose reciprocal is denormal, the pseudocode has two errors: it tests in 64 bits, where no
    reciprocal of a float32 is denormal, and it scales by a factor that overflows. The emulator tests the type's own
    reciprocal, and scales down.
    """
    if f.is_zero(numerator) or f.is_zero(denominator):
        return f.nan, 0
    up = f.round(f.value(value) * Fraction(2) ** step, zero=value)
    if f.exponent(numerator) - f.exponent(denominator) >= apart:
        return (up if value == denominator else value), 1
    if f.is_denormal(denominator):
        return up, 0
    if f.is_denormal(f.round(1 / f.value(denominator))):
        return None, None
    if f.is_denormal(f.round(f.value(numerator) / f.value(denominator))):
        return (up if value == numerator else value), 1
    return (up, 0) if f.exponent(numerator) <= tiny else (value, 0)


@pytest.mark.parametrize(("kind", "parameters"), [("f32", (96, 23, 64)), ("f64", (768, 53, 128))])
@pytest.mark.parametrize("which", ["denominator", "numerator"])
def test_scaling_for_a_division_follows_the_manual(kind, parameters, which):
    f, dtype = FORMATS[kind], np.dtype(TYPES[kind])
    word = np.dtype(f"u{dtype.itemsize}")
    exponents = np.unique(np.concatenate([np.arange(0, f.ones, max(f.ones // 61, 1)), [1, 2, f.ones - 2, f.ones - 1]]))
    fractions = np.random.default_rng(5).integers(1, 1 << f.mantissa, len(exponents) ** 2, dtype=word)
    pairs = [(n, d) for n in exponents.tolist() for d in exponents.tolist()]
    cases = []
    for i, (n, d) in enumerate(pairs):
        numerator = n << f.mantissa | int(fractions[i])
        denominator = d << f.mantissa | int(fractions[-1 - i]) | (f.sign if i % 3 == 0 else 0)
        value = denominator if which == "denominator" else numerator
        wanted, flag = div_scale_of_the_manual(f, value, denominator, numerator, *parameters)
        if wanted is not None:
            cases.append((value, denominator, numerator, wanted, flag))
    cases = cases[: len(cases) // 64 * 64]
    assert len(cases) > 2000
    columns = np.array(cases, np.uint64).T
    wide = kind == "f64"
    text = "v_div_scale_f64 v[2:3], vcc, v[4:5], v[6:7], v[8:9]" if wide else "v_div_scale_f32 v2, vcc, v4, v6, v8"
    v = {}
    for register, column in zip((4, 6, 8), columns[:3], strict=True):
        v[register] = column & 0xFFFFFFFF
        if wide:
            v[register + 1] = column >> np.uint64(32)
    result = execute(text, v=v, waves=len(cases) // 64)
    got = result.v64(2) if wide else result.v(2)
    assert got == columns[3].tolist()
    assert [mask >> lane & 1 for mask in result.vcc for lane in range(64)] == columns[4].tolist()
