"""IEEE binary formats in exact arithmetic, the expected values of float tests.

Bit patterns are converted to fractions and back, rounded once to nearest even.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Format:
    bits: int
    mantissa: int

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def ones(self) -> int:
        """The exponent field of infinities and NaN."""
        return (1 << (self.bits - 1 - self.mantissa)) - 1

    @property
    def bias(self) -> int:
        return self.ones >> 1

    @property
    def inf(self) -> int:
        return self.ones << self.mantissa

    @property
    def quiet(self) -> int:
        return 1 << (self.mantissa - 1)

    @property
    def nan(self) -> int:
        return self.inf | self.quiet

    def exponent(self, word: int) -> int:
        return word >> self.mantissa & self.ones

    def negative(self, word: int) -> bool:
        return bool(word & self.sign)

    def is_nan(self, word: int) -> bool:
        return word & ~self.sign > self.inf

    def is_signalling(self, word: int) -> bool:
        return self.is_nan(word) and not word & self.quiet

    def is_inf(self, word: int) -> bool:
        return word & ~self.sign == self.inf

    def is_zero(self, word: int) -> bool:
        return word & ~self.sign == 0

    def is_denormal(self, word: int) -> bool:
        return self.exponent(word) == 0 and not self.is_zero(word)

    def value(self, word: int) -> Fraction:
        """Return the exact value of a finite pattern."""
        fraction, exponent = word & ((1 << self.mantissa) - 1), self.exponent(word)
        scale = max(exponent, 1) - self.bias - self.mantissa
        magnitude = (fraction | (1 << self.mantissa if exponent else 0)) * Fraction(2) ** scale
        return -magnitude if self.negative(word) else magnitude

    def round(self, value: Fraction, zero: int = 0, toward_zero: bool = False) -> int:
        """Return the pattern nearest to ``value``, ties to even; ``zero`` is the pattern of an exact 0."""
        if value == 0:
            return zero
        sign, value = (self.sign, -value) if value < 0 else (0, value)
        exponent = value.numerator.bit_length() - value.denominator.bit_length()
        if Fraction(2) ** exponent > value:
            exponent -= 1
        exponent = max(exponent, 1 - self.bias)
        scaled = value / Fraction(2) ** (exponent - self.mantissa)
        whole = scaled.numerator // scaled.denominator
        rest = scaled - whole
        if not toward_zero and (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1)):
            whole += 1
        # A mantissa that overflows carries into the exponent by itself.
        word = whole + (exponent + self.bias - 1 << self.mantissa)
        if word >= self.inf:
            word = self.inf - 1 if toward_zero else self.inf
        return sign | word

    def sqrt(self, word: int) -> int:
        """Return the square root of a positive finite pattern, rounded to nearest even."""
        value = self.value(word)
        # Enough bits that the remainder only matters as a sticky bit.
        shift = 4 * self.mantissa + self.bits * 8
        numerator = (value.numerator << 2 * shift) // value.denominator
        root = math.isqrt(numerator)
        exact = root * root == numerator and (value.numerator << 2 * shift) % value.denominator == 0
        return self.round(Fraction(2 * root + (0 if exact else 1), 2 << shift))

    def ulps(self, a: int, b: int) -> int:
        """Return the number of patterns between two numbers of the same sign."""
        return abs(self.order(a) - self.order(b))

    def order(self, word: int) -> int:
        """Return an integer that sorts as the values do."""
        return -(word & ~self.sign) if self.negative(word) else word


F16, F32, F64 = Format(16, 10), Format(32, 23), Format(64, 52)
FORMATS = {"f16": F16, "f32": F32, "f64": F64}


def add(f: Format, a: int, b: int) -> int:
    return fma(f, a, f.bias << f.mantissa, b)


def mul(f: Format, a: int, b: int) -> int:
    if f.is_nan(a) or f.is_nan(b):
        return f.nan
    sign = (a ^ b) & f.sign
    if f.is_inf(a) or f.is_inf(b):
        return f.nan if f.is_zero(a) or f.is_zero(b) else sign | f.inf
    return f.round(f.value(a) * f.value(b), zero=sign)


def fma(f: Format, a: int, b: int, c: int, into: Format | None = None) -> int:
    """Return a * b + c with one rounding, into the format itself or a narrower one."""
    g = into or f
    if f.is_nan(a) or f.is_nan(b) or f.is_nan(c):
        return g.nan
    sign = bool((a ^ b) & f.sign)
    if f.is_inf(a) or f.is_inf(b):
        if f.is_zero(a) or f.is_zero(b) or (f.is_inf(c) and f.negative(c) != sign):
            return g.nan
        return g.inf | (g.sign if sign else 0)
    if f.is_inf(c):
        return g.inf | (g.sign if f.negative(c) else 0)
    product = f.value(a) * f.value(b)
    # An exact zero is -0 only when both terms are.
    zero = g.sign if product == 0 and f.is_zero(c) and sign and f.negative(c) else 0
    return g.round(product + f.value(c), zero=zero)


def convert(source: Format, target: Format, word: int) -> int:
    if source.is_nan(word):
        return target.nan
    sign = target.sign if source.negative(word) else 0
    return sign | target.inf if source.is_inf(word) else target.round(source.value(word), zero=sign)
