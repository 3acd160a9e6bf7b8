"""Floating-point opcodes in exact arithmetic; see ``semantics`` and ``ieee``."""

import functools
import math
from fractions import Fraction

from tests.emulator.ieee import F16, F32, F64, FORMATS, add, convert, fma, mul
from tests.emulator.semantics import clamp, means, signed, wrap


def sub(f, a, b):
    return add(f, a, b ^ f.sign if not f.is_nan(b) else b)


def least(f, a, b):
    """v_min in IEEE mode, step by step as in the manual."""
    if f.is_signalling(a):
        return a | f.quiet
    if f.is_signalling(b):
        return b | f.quiet
    if f.is_nan(a):
        return b
    if f.is_nan(b):
        return a
    if f.is_zero(a) and f.is_zero(b):
        return a | b
    return a if f.order(a) < f.order(b) else b


def greatest(f, a, b):
    if f.is_nan(a) or f.is_nan(b):
        return least(f, a, b)
    if f.is_zero(a) and f.is_zero(b):
        return a & b
    return a if f.order(a) > f.order(b) else b


def middle(f, a, b, c):
    if f.is_nan(a) or f.is_nan(b) or f.is_nan(c):
        return least(f, least(f, a, b), c)
    # Zeros of both signs are equal when the largest is selected, so only values are compared.
    return sorted((a, b, c), key=f.order)[1]


def rounded(f, a, rounding):
    """Round to an integral value; the sign of a zero is the operand's."""
    if f.is_nan(a) or f.is_inf(a):
        return f.nan if f.is_nan(a) else a
    return f.round(Fraction(rounding(f.value(a))), zero=a & f.sign)


def fraction(f, a):
    if f.is_nan(a) or f.is_inf(a):
        return f.nan
    value = f.value(a)
    result = f.round(value - math.floor(value))
    one = f.bias << f.mantissa
    return min(result, one - 1)


def mantissa(f, a):
    if f.is_nan(a) or f.is_inf(a) or f.is_zero(a):
        return a
    value = abs(f.value(a))
    while value >= 1:
        value /= 2
    while value < Fraction(1, 2):
        value *= 2
    return f.round(value) | a & f.sign


def exponent(f, a):
    if f.is_nan(a) or f.is_inf(a) or f.is_zero(a):
        return 0
    value, n = abs(f.value(a)), 0
    while value >= 1:
        value, n = value / 2, n + 1
    while value < Fraction(1, 2):
        value, n = value * 2, n - 1
    return n


def scaled(f, a, n):
    if f.is_nan(a) or f.is_inf(a) or f.is_zero(a):
        return a
    return f.round(f.value(a) * Fraction(2) ** clamp(n, -3000, 3000), zero=a & f.sign)


for kind, f in FORMATS.items():
    two, three, h = f"{kind} = {kind} {kind}", f"{kind} = {kind} {kind} {kind}", kind == "f16"
    means(f"v_add_{kind}", two, lambda a, b, f=f: add(f, a, b))
    means(f"v_mul_{kind}", two, lambda a, b, f=f: mul(f, a, b))
    means(f"v_min_{kind}", two, lambda a, b, f=f: least(f, a, b), exact_nan=True)
    means(f"v_max_{kind}", two, lambda a, b, f=f: greatest(f, a, b), exact_nan=True)
    means(f"v_fma_{kind}", three, lambda a, b, c, f=f: fma(f, a, b, c), keeps_high=h)
    if kind != "f16":
        means(f"v_fmac_{kind}", f"{kind} = {kind} {kind} @{kind}", lambda a, b, c, f=f: fma(f, a, b, c))
    for name, rounding in (("floor", math.floor), ("ceil", math.ceil), ("trunc", math.trunc), ("rndne", round)):
        means(f"v_{name}_{kind}", f"{kind} = {kind}", lambda a, f=f, r=rounding: rounded(f, a, r))
    means(f"v_fract_{kind}", f"{kind} = {kind}", lambda a, f=f: fraction(f, a))
    means(f"v_frexp_mant_{kind}", f"{kind} = {kind}", lambda a, f=f: mantissa(f, a))
    bits = 16 if h else 32
    means(f"v_frexp_exp_i{bits}_{kind}", f"i{bits} = {kind}", lambda a, f=f, n=bits: wrap(exponent(f, a), n))
    means(f"v_ldexp_{kind}", f"{kind} = {kind} i{bits}", lambda a, e, f=f, n=bits: scaled(f, a, signed(e, n)))
    if kind != "f64":
        means(f"v_sub_{kind}", two, lambda a, b, f=f: sub(f, a, b))
        means(f"v_subrev_{kind}", two, lambda a, b, f=f: sub(f, b, a))
        means(f"v_min3_{kind}", three, lambda a, b, c, f=f: least(f, least(f, a, b), c))
        means(f"v_max3_{kind}", three, lambda a, b, c, f=f: greatest(f, greatest(f, a, b), c))
        means(f"v_med3_{kind}", three, lambda a, b, c, f=f: middle(f, a, b, c))


def multiply_then_add(a, b, c):
    return add(F16, mul(F16, a, b), c)


means("v_mad_f16", "f16 = f16 f16 f16", multiply_then_add, keeps_high=True)
means("v_mad_legacy_f16 v_madmk_f16 v_madak_f16", "f16 = f16 f16 f16", multiply_then_add)
means("v_mac_f16", "f16 = f16 f16 @f16", multiply_then_add)
means("v_fmamk_f32 v_fmaak_f32", "f32 = f32 f32 f32", lambda a, b, c: fma(F32, a, b, c))

# -- approximations: float32 without denormals -------------------------------------------------------------------------


def flush(f, a):
    return a & f.sign if f is F32 and f.is_denormal(a) else a


def reciprocal(f, a):
    a = flush(f, a)
    if f.is_nan(a):
        return f.nan
    if f.is_inf(a):
        return a & f.sign
    if f.is_zero(a):
        return f.inf | a
    return flush(f, f.round(1 / f.value(a)))


def root(f, a):
    a = flush(f, a)
    if f.is_zero(a):
        return a
    if f.is_nan(a) or f.negative(a):
        return f.nan
    return a if f.is_inf(a) else f.sqrt(a)


def reciprocal_root(f, a):
    a = flush(f, a)
    if f.is_zero(a):
        return f.inf | a & f.sign
    if f.is_nan(a) or f.negative(a):
        return f.nan
    if f.is_inf(a):
        return 0
    return f.round(1 / F64.value(F64.sqrt(convert(f, F64, a))))


def by_math(function, flushes):
    """Return a function of the math module on the value, with the format's special values first.

    ``flushes``: float32 denormals become 0.
    """

    def apply(f, a):
        a = flush(f, a) if flushes else a
        value = (
            math.nan
            if f.is_nan(a)
            else math.copysign(math.inf if f.is_inf(a) else float(f.value(a)), -1 if f.negative(a) else 1)
        )
        result = function(value)
        if math.isnan(result):
            return f.nan
        sign = f.sign if math.copysign(1, result) < 0 else 0
        word = sign | f.inf if math.isinf(result) else f.round(Fraction(result), zero=sign)
        return flush(f, word) if flushes else word

    return apply


def exp2(x):
    return math.inf if x > 1100 else 0.0 if x < -1200 else math.nan if math.isnan(x) else 2.0**x


def log2(x):
    return math.nan if x < 0 or math.isnan(x) else -math.inf if x == 0 else math.log2(x) if math.isfinite(x) else x


def sine(x):
    """Return the sine of turns: the angle is reduced exactly to the first quadrant."""
    if not math.isfinite(x):
        return math.nan
    rest = Fraction(x) % 1
    sign = -1 if rest > Fraction(1, 2) or (rest == 0 and math.copysign(1, x) < 0) else 1
    rest %= Fraction(1, 2)
    return sign * math.sin(2 * math.pi * float(min(rest, Fraction(1, 2) - rest)))


def cosine(x):
    if not math.isfinite(x):
        return math.nan
    rest = abs(Fraction(x) - round(Fraction(x)))
    return math.copysign(math.sin(2 * math.pi * abs(float(Fraction(1, 4) - rest))), Fraction(1, 4) - rest)


for kind, f in FORMATS.items():
    one = f"{kind} = {kind}"
    means(f"v_rcp_{kind}", one, lambda a, f=f: reciprocal(f, a))
    means(f"v_sqrt_{kind}", one, lambda a, f=f: root(f, a))
    means(f"v_rsq_{kind}", one, lambda a, f=f: reciprocal_root(f, a), ulps=1)
    if kind != "f64":
        for name, function in (("exp", exp2), ("log", log2), ("sin", sine), ("cos", cosine)):
            flushes = name in ("exp", "log")
            means(f"v_{name}_{kind}", one, functools.partial(by_math(function, flushes), f), ulps=1)
means("v_rcp_iflag_f32", "f32 = f32", lambda a: reciprocal(F32, a))


# -- division: the steps of the manual ---------------------------------------------------------------------------------


def div_scale(f, value, denominator, numerator, far, tiny, step):
    if f.is_zero(numerator) or f.is_zero(denominator):
        return f.nan, False
    up = scaled(f, value, step)
    inverse = f.nan if f.is_nan(denominator) else f.round(1 / f.value(denominator)) if not f.is_inf(denominator) else 0
    special = f.is_nan(numerator) or f.is_nan(denominator) or f.is_inf(numerator) or f.is_inf(denominator)
    quotient = f.nan if special else f.round(f.value(numerator) / f.value(denominator))
    if f.exponent(numerator) - f.exponent(denominator) >= far:
        return (up if value == denominator else value), True
    if f.is_denormal(denominator):
        return up, False
    if f.is_denormal(inverse) and f.is_denormal(quotient):
        return (scaled(f, value, -step) if value == denominator else value), True
    if f.is_denormal(inverse):
        return scaled(f, value, -step), False
    if f.is_denormal(quotient):
        return (up if value == numerator else value), True
    if f.exponent(numerator) <= tiny:
        return up, False
    return value, False


def div_fmas(f, a, b, c, vcc, step):
    result = fma(f, a, b, c)
    if not vcc or f.is_nan(result) or f.is_inf(result) or any(map(f.is_inf, (a, b, c))):
        return result
    exact = f.value(a) * f.value(b) + f.value(c)
    return f.round(exact * Fraction(2) ** (step if f.exponent(c) > f.bias else -step), zero=result)


def div_fixup(f, quotient, denominator, numerator, far):
    sign = (denominator ^ numerator) & f.sign
    if f.is_nan(numerator):
        return numerator | f.quiet
    if f.is_nan(denominator):
        return denominator | f.quiet
    if (f.is_zero(denominator) and f.is_zero(numerator)) or (f.is_inf(denominator) and f.is_inf(numerator)):
        return f.nan
    if f.is_zero(denominator) or f.is_inf(numerator):
        return sign | f.inf
    if f.is_inf(denominator) or f.is_zero(numerator):
        return sign
    if f.exponent(numerator) - f.exponent(denominator) < far:
        return sign
    return sign | (f.inf if f.is_nan(quotient) else quotient & ~f.sign)


for kind, f, far, tiny, step, low in (("f32", F32, 96, 23, 64, -150), ("f64", F64, 768, 53, 128, -1075)):
    three = f"{kind} = {kind} {kind} {kind}"
    means(
        f"v_div_scale_{kind}",
        f"{kind} mask = {kind} {kind} {kind}",
        lambda *x, f=f, p=(far, tiny, step): div_scale(f, *x, *p),
    )
    means(f"v_div_fmas_{kind}", f"{three} vcc", lambda *x, f=f, n=step: div_fmas(f, *x, n))
    means(f"v_div_fixup_{kind}", three, lambda *x, f=f, low=low: div_fixup(f, *x, low))
means("v_div_fixup_f16", "f16 = f16 f16 f16", lambda *x: div_fixup(F16, *x, -1000), keeps_high=True)

# -- comparisons -------------------------------------------------------------------------------------------------------


def relation(f, a, b):
    if f.is_nan(a) or f.is_nan(b):
        return "u"
    if f.is_zero(a) and f.is_zero(b):
        return "="
    return "<" if f.order(a) < f.order(b) else ">" if f.order(a) > f.order(b) else "="


TRUE_FOR = {
    "f": "",
    "lt": "<",
    "eq": "=",
    "le": "<=",
    "gt": ">",
    "lg": "<>",
    "ge": ">=",
    "o": "<=>",
    "u": "u",
    "nge": "<u",
    "nlg": "=u",
    "ngt": "<=u",
    "nle": ">u",
    "neq": "<>u",
    "nlt": ">=u",
    "tru": "<=>u",
}


def class_of(f, a):
    if f.is_nan(a):
        return 0 if f.is_signalling(a) else 1
    rank = 0 if f.is_inf(a) else 3 if f.is_zero(a) else 2 if f.is_denormal(a) else 1
    return 2 + rank if f.negative(a) else 9 - rank


for kind, f in FORMATS.items():
    for name, relations in TRUE_FOR.items():

        def outcome(a, b, f=f, relations=relations):
            return relation(f, a, b) in relations

        means(f"v_cmp_{name}_{kind}", f"mask = {kind} {kind}", outcome)
        means(f"v_cmpx_{name}_{kind}", f"mask exec = {kind} {kind}", lambda a, b, o=outcome: (o(a, b),) * 2)
    mask = "u16" if kind == "f16" else "u32"
    means(f"v_cmp_class_{kind}", f"mask = {kind} {mask}", lambda a, m, f=f: bool(m >> class_of(f, a) & 1))
    means(f"v_cmpx_class_{kind}", f"mask exec = {kind} {mask}", lambda a, m, f=f: (bool(m >> class_of(f, a) & 1),) * 2)

# -- conversions -------------------------------------------------------------------------------------------------------


def to_integer(f, a, bits, is_signed, rounding=math.trunc):
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed else (0, (1 << bits) - 1)
    if f.is_nan(a):
        return 0
    if f.is_inf(a):
        return wrap(low if f.negative(a) else high, bits)
    return wrap(clamp(rounding(f.value(a)), low, high), bits)


for kind in ("f32", "f64"):
    f = FORMATS[kind]
    means(f"v_cvt_{kind}_u32", f"{kind} = u32", lambda a, f=f: f.round(Fraction(a)))
    means(f"v_cvt_{kind}_i32", f"{kind} = i32", lambda a, f=f: f.round(Fraction(signed(a))))
    means(f"v_cvt_u32_{kind}", f"u32 = {kind}", lambda a, f=f: to_integer(f, a, 32, False))
    means(f"v_cvt_i32_{kind}", f"i32 = {kind}", lambda a, f=f: to_integer(f, a, 32, True))
means("v_cvt_f16_u16", "f16 = u16", lambda a: F16.round(Fraction(a)))
means("v_cvt_f16_i16", "f16 = i16", lambda a: F16.round(Fraction(signed(a, 16))))
means("v_cvt_u16_f16", "u16 = f16", lambda a: to_integer(F16, a, 16, False))
means("v_cvt_i16_f16", "i16 = f16", lambda a: to_integer(F16, a, 16, True))
means("v_cvt_f16_f32", "f16 = f32", lambda a: convert(F32, F16, a))
means("v_cvt_f32_f16", "f32 = f16", lambda a: convert(F16, F32, a))
means("v_cvt_f64_f32", "f64 = f32", lambda a: convert(F32, F64, a))
means("v_cvt_f32_f64", "f32 = f64", lambda a: convert(F64, F32, a))
means(
    "v_cvt_rpi_i32_f32", "i32 = f32", lambda a: to_integer(F32, a, 32, True, lambda x: math.floor(x + Fraction(1, 2)))
)
means("v_cvt_flr_i32_f32", "i32 = f32", lambda a: to_integer(F32, a, 32, True, math.floor))
for i in range(4):
    means(f"v_cvt_f32_ubyte{i}", "f32 = u32", lambda a, i=i: F32.round(Fraction(a >> 8 * i & 255)))


def truncated(a):
    if F32.is_nan(a):
        return F16.nan
    sign = F16.sign if F32.negative(a) else 0
    return sign | F16.inf if F32.is_inf(a) else F16.round(F32.value(a), zero=sign, toward_zero=True)


means("v_cvt_pkrtz_f16_f32", "f16x2 = f32 f32", lambda a, b: truncated(b) << 16 | truncated(a))
