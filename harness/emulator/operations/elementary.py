"""exp2, log2 and the sine of a quarter turn in float64, from operations that can be compiled.

Within a few units of the last place of float64, so the float32 and float16 results that are rounded from them are the
exact function's, rounded to nearest, except where that lies within 2**-50 of the middle between two numbers. Not the
host's library: translated code and the interpreter compute the same bits, on every host.
"""

from __future__ import annotations

import math
from functools import reduce

import numpy as np

# Of the Taylor series on [-1/2, 1/2], [-0.172, 0.172] and [-pi/2, pi/2], the highest power first: the next term is
# below 2**-56 of the result.
_EXP2 = [math.log(2) ** n / math.factorial(n) for n in range(14, -1, -1)]
_LOG2 = [2 / math.log(2) / n for n in range(21, -1, -2)]
_SIN = [(-1) ** (n // 2) / math.factorial(n) for n in range(23, 0, -2)]


def _polynomial(coefficients, x):
    return reduce(lambda sum_, c: sum_ * x + c, coefficients[1:], coefficients[0])


def exp2(x):
    """Return 2**x of float64."""
    within = np.clip(np.where(np.isnan(x), np.float64(0), x), np.float64(-1100), np.float64(1100))
    whole = np.rint(within)
    result = np.ldexp(_polynomial(_EXP2, within - whole), whole.astype(np.int32))
    return np.where(np.isnan(x), x, result)


def log2(x):
    """Return the binary logarithm of float64: -inf of zeros, NaN of negative numbers."""
    mantissa, exponent = np.frexp(x)
    low = mantissa < np.float64(math.sqrt(0.5))
    mantissa = np.where(low, mantissa * np.float64(2), mantissa)
    exponent = exponent.astype(np.float64) - np.where(low, np.float64(1), np.float64(0))
    ratio = (mantissa - np.float64(1)) / (mantissa + np.float64(1))
    result = exponent + ratio * _polynomial(_LOG2, ratio * ratio)
    result = np.where(np.isinf(x), x, np.where(x == 0, np.float64(-np.inf), result))
    return np.where(x < 0, np.float64(np.nan), np.where(np.isnan(x), x, result))


def sin_turns(turns):
    """Return the sine of an angle in turns, from -1/4 to 1/4."""
    angle = turns * np.float64(2 * math.pi)
    return angle * _polynomial(_SIN, angle * angle)
