"""Vector comparisons: one result bit per lane in VCC or a scalar pair. Arrays of shape [W, 64].

Source: AMD "CDNA3 ISA", chapter VOPC. ``v_cmpx`` writes EXEC as well. Of the float comparisons, the ``n`` forms are
true when the plain form is false, so also when an operand is NaN; ``lg`` is "less or greater", false on NaN; ``o`` and
``u`` are ordered and unordered.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.emulator.operations.table import EQUALITY, vector


def _not(compare: Callable) -> Callable:
    return lambda a, b: ~compare(a, b)


def _less_or_greater(a, b):
    return (a < b) | (a > b)


def _ordered(a, b):
    return (a == a) & (b == b)


_INTEGER: dict[str, Callable] = {
    "eq": np.equal, "ne": np.not_equal, "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal,
    "f": lambda a, b: np.zeros(np.broadcast_shapes(np.shape(a), np.shape(b)), bool),
    "t": lambda a, b: np.ones(np.broadcast_shapes(np.shape(a), np.shape(b)), bool),
}  # fmt: skip
_FLOAT: dict[str, Callable] = {
    "eq": np.equal,
    "lg": _less_or_greater,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
    "o": _ordered,
    "u": _not(_ordered),
    "neq": np.not_equal,
    "nlg": _not(_less_or_greater),
    "ngt": _not(np.greater),
    "nge": _not(np.greater_equal),
    "nlt": _not(np.less),
    "nle": _not(np.less_equal),
    "f": _INTEGER["f"],
    "tru": _INTEGER["t"],
}


def _both(compare: Callable) -> Callable:
    def with_exec(a, b):
        result = compare(a, b)
        return result, result

    return with_exec


def _classes(bits: int, mantissa: int) -> Callable:
    """Return v_cmp_class: true if the value belongs to one of the classes whose bits the mask sets.

    From bit 0: signalling NaN, quiet NaN, -inf, -normal, -denormal, -0, +0, +denormal, +normal, +inf.
    """
    word = np.dtype(f"u{bits // 8}").type
    exponent_ones = word((1 << bits - 1 - mantissa) - 1)

    def test(a, mask):
        raw = a.view(word)
        negative = raw >> word(bits - 1) != 0
        exponent = raw >> word(mantissa) & exponent_ones
        fraction = raw & word((1 << mantissa) - 1)
        special, tiny = exponent == exponent_ones, exponent == 0
        quiet = fraction >> word(mantissa - 1) != 0
        magnitude = np.where(special, 0, np.where(~tiny, 1, np.where(fraction != 0, 2, 3)))
        index = np.where(negative, 2 + magnitude, 9 - magnitude)
        index = np.where(special & (fraction != 0), quiet.astype(index.dtype), index)
        return mask.astype(np.int64) >> index & 1 != 0

    return test


for _name, _compare in _INTEGER.items():
    for _type in ("u16", "i16", "u32", "i32", "u64", "i64"):
        vector(
            f"v_cmp_{_name}_{_type}", f"mask = {_type} {_type}", undefined=EQUALITY if _name in ("eq", "ne") else None
        )(_compare)
        vector(
            f"v_cmpx_{_name}_{_type}",
            f"mask exec = {_type} {_type}",
            undefined=EQUALITY if _name in ("eq", "ne") else None,
        )(_both(_compare))
for _name, _compare in _FLOAT.items():
    for _type in ("f16", "f32", "f64"):
        vector(f"v_cmp_{_name}_{_type}", f"mask = {_type} {_type}")(_compare)
        vector(f"v_cmpx_{_name}_{_type}", f"mask exec = {_type} {_type}")(_both(_compare))
for _type, _mask, _bits, _mantissa in (("f16", "u16", 16, 10), ("f32", "u32", 32, 23), ("f64", "u32", 64, 52)):
    _properties = {"keeps_denormals": True, "constants": "- f16" if _type == "f16" else ""}
    vector(f"v_cmp_class_{_type}", f"mask = {_type} {_mask}", **_properties)(_classes(_bits, _mantissa))
    vector(f"v_cmpx_class_{_type}", f"mask exec = {_type} {_mask}", **_properties)(_both(_classes(_bits, _mantissa)))
