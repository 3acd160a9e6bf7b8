"""Vector ALU, floating point: arithmetic, fused multiply-add, minima, maxima, rounding, reciprocals, division steps.

Source: AMD "CDNA3 ISA", chapters VOP1, VOP2, VOP3. The mode is the one that Triton sets (``.amdhsa_*``): round to
nearest even, denormals kept, IEEE NaN rules. The sign and payload of a NaN that arithmetic creates are the host's.

Functions that the hardware only approximates (reciprocal, square root, exponential, logarithm, sine) return the
correctly rounded value, or for ``exp``, ``log``, ``sin``, ``cos`` the float64 result rounded once: within the
hardware's 1 ulp, not bit for bit. As on the hardware, the 32-bit ones except ``sin`` and ``cos`` read a denormal
operand as 0 and return 0 for a denormal result (LLVM scales around that).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.emulator.native.fused import fma
from harness.emulator.operations import elementary
from harness.emulator.operations.table import vector
from harness.emulator.wavefront.state import DTYPES

_MANTISSA = {2: 10, 4: 23, 8: 52}


def _words(a: np.ndarray) -> np.ndarray:
    return a.view(f"u{a.dtype.itemsize}")


def _quiet(a: np.ndarray) -> np.ndarray:
    """Return the quiet form of a NaN: the highest mantissa bit set."""
    word = _words(a)
    return (word | word.dtype.type(1 << (_MANTISSA[word.dtype.itemsize] - 1))).view(a.dtype)


def _signalling(a: np.ndarray) -> np.ndarray:
    word = _words(a)
    return np.isnan(a) & (word >> word.dtype.type(_MANTISSA[word.dtype.itemsize] - 1) & word.dtype.type(1) == 0)


def _extreme(pick: Callable, join: Callable, ieee: bool = True) -> Callable:
    """Return minNum or maxNum of IEEE 754-2008.

    A number wins over a quiet NaN; a signalling NaN wins and is quieted; -0 < +0. Without MODE.IEEE a number wins over
    any NaN.
    """

    def function(a, b):
        equal = a == b
        result = pick(a, b)
        if equal.any():
            # Equal values differ at most in the sign of zero: the sign bits are joined.
            result = np.where(equal, join(_words(a), _words(b)).view(a.dtype), result)
        nan_a, nan_b = np.isnan(a), np.isnan(b)
        if nan_a.any() or nan_b.any():
            result = np.where(nan_a, b, np.where(nan_b, a, result))
            if ieee:
                result = np.where(_signalling(a), _quiet(a), np.where(_signalling(b), _quiet(b), result))
        return result

    return function


def _of_three(two: Callable) -> Callable:
    return lambda a, b, c: two(two(a, b), c)


def _median(minimum: Callable, maximum: Callable) -> Callable:
    """Return the function for the middle one of three values; their minimum if one of them is NaN."""
    minimum3, maximum3 = _of_three(minimum), _of_three(maximum)

    def function(a, b, c):
        top = maximum3(a, b, c)
        middle = np.where(top == a, maximum(b, c), np.where(top == b, maximum(a, c), maximum(a, b)))
        return np.where(np.isnan(a) | np.isnan(b) | np.isnan(c), minimum3(a, b, c), middle)

    return function


def _extremes(ieee: bool) -> tuple[Callable, ...]:
    minimum = _extreme(np.fmin, np.bitwise_or, ieee)
    maximum = _extreme(np.fmax, np.bitwise_and, ieee)
    return minimum, maximum, _of_three(minimum), _of_three(maximum), _median(minimum, maximum)


minimum, maximum, minimum3, maximum3, median = _extremes(ieee=True)
# The same functions with MODE.IEEE clear.
WITHOUT_IEEE = dict(zip((minimum, maximum, minimum3, maximum3, median), _extremes(ieee=False), strict=True))


def fract(a):
    """Return a - floor(a), which stays below 1 even if the difference rounds to 1."""
    below_one = np.nextafter(a.dtype.type(1), a.dtype.type(0))
    difference = a - np.floor(a)
    return np.where(difference > below_one, below_one, difference)


def frexp_mant(a):
    """Return the mantissa in [0.5, 1) with the sign; infinities and NaN are unchanged."""
    return np.where(np.isfinite(a), np.frexp(a)[0], a)


def frexp_exp(a):
    """Return the exponent that belongs to ``frexp_mant``; 0 for zero, infinities and NaN."""
    return np.where(np.isfinite(a), np.frexp(a)[1], 0).astype(np.int32)


def ldexp(a, exponent):
    """Return a times a power of two, rounded once.

    The exponent is limited first: beyond 2200 every format is 0 or infinite.
    """
    return np.ldexp(a, np.clip(exponent.astype(np.int32), -2200, 2200)).astype(a.dtype)


for _type in ("f16", "f32", "f64"):
    _two, _three = f"{_type} = {_type} {_type}", f"{_type} = {_type} {_type} {_type}"
    vector(f"v_add_{_type}", _two, rounds="result")(np.add)
    vector(f"v_mul_{_type}", _two, rounds="result")(np.multiply)
    vector(f"v_min_{_type}", _two)(minimum)
    vector(f"v_max_{_type}", _two)(maximum)
    vector(f"v_fma_{_type}", _three, keeps_high=_type == "f16", rounds="result")(fma)
    vector(f"v_floor_{_type}", f"{_type} = {_type}")(np.floor)
    vector(f"v_ceil_{_type}", f"{_type} = {_type}")(np.ceil)
    vector(f"v_trunc_{_type}", f"{_type} = {_type}")(np.trunc)
    vector(f"v_rndne_{_type}", f"{_type} = {_type}")(np.rint)
    vector(f"v_fract_{_type}", f"{_type} = {_type}", rounds="result")(fract)
    vector(f"v_frexp_mant_{_type}", f"{_type} = {_type}")(frexp_mant)
    if _type != "f64":
        vector(f"v_sub_{_type}", _two, rounds="result")(np.subtract)
        vector(f"v_subrev_{_type}", _two, rounds="result")(lambda a, b: b - a)
        # These clear the upper half on gfx9, and compiled code relies on it (LLVM AMDGPUISelDAGToDAG,
        # fp16SrcZerosHighBits: FMIN3, FMAX3, FMED3).
        vector(f"v_min3_{_type}", _three)(minimum3)
        vector(f"v_max3_{_type}", _three)(maximum3)
        vector(f"v_med3_{_type}", _three)(median)
# DX9 rules: 0 times anything is 0.
vector("v_mul_legacy_f32", "f32 = f32 f32", rounds="result")(
    lambda a, b: np.where((a == 0) | (b == 0), np.float32(0), a * b)
)
# The "legacy" forms clear the upper half of the destination.
vector("v_fma_legacy_f16", "f16 = f16 f16 f16", rounds="result")(fma)
vector("v_fmac_f32", "f32 = f32 f32 @f32", rounds="result")(fma)
vector("v_fmac_f64", "f64 = f64 f64 @f64", rounds="result")(fma)
# Multiply, then add: both are rounded. "mac" and the forms with a constant clear the upper half, as the manual states.
vector("v_mad_f16", "f16 = f16 f16 f16", keeps_high=True, rounds="steps")(lambda a, b, c: a * b + c)
vector("v_mad_legacy_f16 v_madmk_f16 v_madak_f16", "f16 = f16 f16 f16", rounds="steps")(lambda a, b, c: a * b + c)
vector("v_mac_f16", "f16 = f16 f16 @f16", rounds="steps")(lambda a, b, c: a * b + c)
# The constant k is written at its position in the formula: a * k + b, and a * b + k.
vector("v_fmamk_f32 v_fmaak_f32", "f32 = f32 f32 f32", rounds="result")(fma)
vector("v_frexp_exp_i32_f32", "i32 = f32")(frexp_exp)
vector("v_frexp_exp_i32_f64", "i32 = f64")(frexp_exp)
vector("v_frexp_exp_i16_f16", "i16 = f16")(lambda a: frexp_exp(a).astype(np.int16))
vector("v_ldexp_f32", "f32 = f32 i32", rounds="steps")(ldexp)
vector("v_ldexp_f64", "f64 = f64 i32", rounds="steps")(ldexp)
vector("v_ldexp_f16", "f16 = f16 i16", rounds="steps", constants="- f16")(ldexp)


# -- approximations ----------------------------------------------------------------------------------------------------


def _flush(a):
    """Replace denormal float32 values by zeros of their sign."""
    return np.where(np.abs(a) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), a), a)


def _rounded(function: Callable, kind: str, flushes: bool) -> Callable:
    """Return ``function`` computed in float64 and rounded to the type. ``flushes``: denormals become 0.

    An operand outside the function's domain returns the NaN of the manual's examples, which is negative.
    """
    dtype = DTYPES[kind]
    invalid = dtype.type(np.copysign(np.nan, -1.0))

    def approximate(a):
        result = function((_flush(a) if flushes else a).astype(np.float64)).astype(dtype)
        undefined = np.isnan(result)
        if undefined.any():
            result = np.where(undefined & ~np.isnan(a), invalid, result)
        return _flush(result) if flushes else result

    return approximate


def _reciprocal_root(x):
    return 1.0 / np.sqrt(x)


def _sine(turns):
    """Return the sine of an angle in turns: exact at the multiples of a quarter; -0 for -0."""
    rest = turns - np.rint(turns)
    rest = np.where(np.abs(rest) > 0.25, np.copysign(0.5, rest) - rest, rest)
    return np.where(turns == 0, turns, elementary.sin_turns(rest))


def _cosine(turns):
    return elementary.sin_turns(0.25 - np.abs(turns - np.rint(turns)))


for _name, _function in (
    ("rcp", np.reciprocal), ("rsq", _reciprocal_root), ("sqrt", np.sqrt), ("exp", elementary.exp2),
    ("log", elementary.log2), ("sin", _sine), ("cos", _cosine),
):  # fmt: skip
    for _type in ("f16", "f32", "f64") if _name in ("rcp", "rsq", "sqrt") else ("f16", "f32"):
        _flushes = _type == "f32" and _name not in ("sin", "cos")
        vector(f"v_{_name}_{_type}", f"{_type} = {_type}")(_rounded(_function, _type, _flushes))
vector("v_rcp_iflag_f32", "f32 = f32")(_rounded(np.reciprocal, "f32", flushes=True))
vector("v_exp_legacy_f32", "f32 = f32")(_rounded(elementary.exp2, "f32", flushes=True))
vector("v_log_legacy_f32", "f32 = f32")(_rounded(elementary.log2, "f32", flushes=True))


# -- division steps ----------------------------------------------------------------------------------------------------
#
# v_div_scale scales numerator and denominator so that no step of the Newton iteration is denormal or overflows, and
# sets VCC if the quotient is then off by a power of two. v_div_fmas, the last step, corrects that with one rounding, up
# for large and down for small estimates. The manual leaves details open; the tests check that the sequence which LLVM
# emits rounds every quotient correctly.


def _exponent(a):
    """Return the biased exponent field."""
    word = _words(a)
    mantissa = _MANTISSA[word.dtype.itemsize]
    ones = (1 << (8 * word.dtype.itemsize - 1 - mantissa)) - 1
    return (word >> word.dtype.type(mantissa)).astype(np.int64) & ones


def _denormal(a):
    return (_exponent(a) == 0) & (a != 0)


def _div_scale(far: int, tiny: int, step: int) -> Callable:
    """Return v_div_scale: the scaled operand, and whether v_div_fmas must undo the scaling.

    With the scaling all steps of the division stay normal.
    """

    def function(value, denominator, numerator):
        value, denominator, numerator = np.broadcast_arrays(value, denominator, numerator)
        with np.errstate(all="ignore"):
            inverse, quotient = 1 / denominator, numerator / denominator
            up, down = ldexp(value, np.int32(step)), ldexp(value, np.int32(-step))
        is_denominator = _words(value) == _words(denominator)
        is_numerator = _words(value) == _words(numerator)
        zero = (numerator == 0) | (denominator == 0)
        apart = _exponent(numerator) - _exponent(denominator) >= far
        cases = [
            (zero, np.full_like(value, np.nan), False),
            (apart, np.where(is_denominator, up, value), True),
            (_denormal(denominator), up, False),
            (_denormal(inverse) & _denormal(quotient), np.where(is_denominator, down, value), True),
            (_denormal(inverse), down, False),
            (_denormal(quotient), np.where(is_numerator, up, value), True),
            (_exponent(numerator) <= tiny, up, False),
        ]
        conditions = [condition for condition, _, _ in cases]
        result = np.select(conditions, [scaled for _, scaled, _ in cases], value)
        flag = np.select(conditions, [np.full(value.shape, flag) for _, _, flag in cases], False)
        return result, flag.astype(bool)

    return function


def _div_fmas(step: int) -> Callable:
    def function(a, b, c, flag):
        a, b, c = np.broadcast_arrays(a, b, c)
        result = fma(a, b, c)
        if not np.any(flag):
            return result
        bias = (1 << (8 * result.dtype.itemsize - 2 - _MANTISSA[result.dtype.itemsize])) - 1
        exponent = np.where(_exponent(c) > bias, np.int32(step), np.int32(-step))
        return np.where(flag, _scale_once(result, exponent, _fma_error(a, b, c, result)), result)

    return function


def _fma_error(a, b, c, nearest):
    """Return a * b + c minus its nearest value: the sign is exact, the size approximate."""
    product = a * b
    low = fma(a, b, -product)
    total = product + c
    part = total - product
    return (total - nearest) + (((product - (total - part)) + (c - part)) + low)


def _scale_once(nearest, exponent, error):
    """Return (nearest + error) * 2**exponent, rounded once, for an error below half an ulp of nearest.

    Scaling rounds only a denormal result, and rounding ``nearest`` is wrong only on a tie, which the error decides.
    """
    scaled = ldexp(nearest, exponent)
    rest = nearest - ldexp(scaled, -exponent)
    half = ldexp(np.full_like(nearest, np.finfo(nearest.dtype).smallest_subnormal), -exponent - 1)
    beyond = (np.abs(rest) == half) & (np.sign(error) == np.sign(rest)) & (rest != 0)
    return np.where(beyond, np.nextafter(scaled, np.copysign(nearest.dtype.type(np.inf), rest)), scaled)


def _div_fixup(far: int) -> Callable:
    """Return v_div_fixup: the quotient with the right sign, and the special cases of division."""

    def function(quotient, denominator, numerator):
        quotient, denominator, numerator = np.broadcast_arrays(quotient, denominator, numerator)
        negative = np.signbit(denominator) ^ np.signbit(numerator)
        zero, infinite = np.zeros_like(quotient), np.full_like(quotient, np.inf)
        apart = _exponent(numerator) - _exponent(denominator)
        magnitude = np.select(
            [
                (denominator == 0) | np.isinf(numerator), np.isinf(denominator) | (numerator == 0), apart < far,
            ],
            [infinite, zero, zero],
            np.where(np.isnan(quotient), infinite, np.abs(quotient)),  # steps that overflowed produce a NaN
        )  # fmt: skip
        result = np.where(negative, -magnitude, magnitude)
        undefined = ((denominator == 0) & (numerator == 0)) | (np.isinf(denominator) & np.isinf(numerator))
        result = np.where(undefined, -np.full_like(quotient, np.nan), result)
        return np.where(
            np.isnan(numerator), _quiet(numerator), np.where(np.isnan(denominator), _quiet(denominator), result)
        )

    return function


vector("v_div_scale_f32", "f32 mask = f32 f32 f32", rounds="steps")(_div_scale(96, 23, 64))
vector("v_div_scale_f64", "f64 mask = f64 f64 f64", rounds="steps")(_div_scale(768, 53, 128))
vector("v_div_fmas_f32", "f32 = f32 f32 f32 vcc", rounds="steps", keeps_denormals=True)(_div_fmas(64))
vector("v_div_fmas_f64", "f64 = f64 f64 f64 vcc", rounds="steps", keeps_denormals=True)(_div_fmas(128))
vector("v_div_fixup_f32", "f32 = f32 f32 f32")(_div_fixup(-150))
vector("v_div_fixup_f64", "f64 = f64 f64 f64")(_div_fixup(-1075))
vector("v_div_fixup_f16", "f16 = f16 f16 f16", keeps_high=True)(_div_fixup(-1000))
vector("v_div_fixup_legacy_f16", "f16 = f16 f16 f16")(_div_fixup(-1000))
