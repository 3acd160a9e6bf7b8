"""Operations of random programs: their Triton text, and their meaning in NumPy.

Every meaning is exact: integers wrap, floats are rounded once to nearest even with denormals kept, a number wins over a
NaN in minimum and maximum, where -0 is less than +0. bf16 values are float32 arrays that hold only bf16 numbers. Where
a result would be undefined (a division by zero, a conversion out of range), the Triton text and the meaning both avoid
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate

import numpy as np

from tests.emulator import ieee

SIGNED = ("i8", "i16", "i32", "i64")
UNSIGNED = ("u8", "u16", "u32", "u64")
INTEGERS = SIGNED + UNSIGNED
FLOATS = ("f16", "bf16", "f32", "f64")
NUMBERS = INTEGERS + FLOATS
MASK = "i1"
# Of the blocks on which a program computes.
SHAPES = ((64,), (256,), (1024,), (16, 16), (4, 64), (128, 2))

_PREFIXES = {"i": "int", "u": "uint", "f": "float"}
TRITON = {t: f"tl.{_PREFIXES[t[0]]}{t[1:]}" for t in NUMBERS if t != "bf16"} | {"bf16": "tl.bfloat16", MASK: "tl.int1"}
NUMPY = {t: np.dtype(_PREFIXES[t[0]] + t[1:]) for t in NUMBERS if t != "bf16"} | {
    "bf16": np.dtype(np.float32),
    MASK: np.dtype(bool),
}


def bits(dtype: str) -> int:
    return int(dtype.removeprefix("b")[1:])


@dataclass(frozen=True, eq=False)
class Operation:
    """``text`` is a template of the operands {0}, {1}, .., the result's type {t}, the block's shape {shape}, the axis
    {p} and its length {length}; ``meaning(result dtype, axis, *arrays)``. ``arguments`` defines the dtypes of the
    operands: T the result's, X any of ``others`` (one for all X), or the dtype itself.
    """

    name: str
    text: str
    meaning: Callable[..., np.ndarray]
    results: tuple[str, ...]
    arguments: tuple[str, ...]
    others: tuple[str, ...] = ()
    axis: bool = False
    shapes: tuple[tuple[int, ...], ...] = SHAPES
    # Units in the last place by which the result may be off; an inexact operation is always the last of a program.
    ulps: int = 0


def to_bf16(values: np.ndarray) -> np.ndarray:
    """Return float32 values rounded to bf16, nearest even."""
    words = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (words + (words >> 16 & 1) + 0x7FFF) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(values), np.float32(np.nan), rounded.view(np.float32))


def convert(values: np.ndarray, target: str) -> np.ndarray:
    """Convert as Triton does: to bf16, all types but float32 are converted to float32 first."""
    if target == "bf16":
        return to_bf16(values.astype(np.float32))
    return values.astype(NUMPY[target])


def _rounded(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    def meaning(dtype: str, _: int, *arrays: np.ndarray) -> np.ndarray:
        result = function(*arrays)
        return to_bf16(result) if dtype == "bf16" else result.astype(NUMPY[dtype], copy=False)

    return meaning


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the integer quotient towards zero, with the divisors 0 and -1 replaced by 3."""
    b = _divisor(b)
    quotient, rest = a // b, a % b
    return quotient + ((rest != 0) & ((a < 0) != (b < 0))).astype(a.dtype)


def _remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.fmod(a, _divisor(b))


def _divisor(b: np.ndarray) -> np.ndarray:
    minus_one = (b == -1) if b.dtype.kind == "i" else np.zeros(b.shape, bool)
    return np.where((b == 0) | minus_one, b.dtype.type(3), b)


def _shift(function: np.ufunc) -> Callable[..., np.ndarray]:
    return _rounded(lambda a, b: function(a, b & b.dtype.type(8 * b.itemsize - 1)))


def extreme(a: np.ndarray, b: np.ndarray, largest: bool) -> np.ndarray:
    """Return the minimum or maximum of numbers."""
    if a.dtype.kind != "f":
        return np.maximum(a, b) if largest else np.minimum(a, b)
    # Not np.fmax: its result for a signalling NaN differs between NumPy's versions.
    takes_b = np.isnan(a) | ((b > a) if largest else (b < a))
    takes_b |= (a == b) & (np.signbit(a) if largest else np.signbit(b))
    return np.where(takes_b, b, a)


def _fold(combine: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Return a reduction along an axis whose result is broadcast to the block again."""

    def meaning(dtype: str, axis: int, values: np.ndarray) -> np.ndarray:
        total = reduce(combine, np.moveaxis(values, axis, 0))
        return np.broadcast_to(np.expand_dims(total, axis), values.shape).astype(NUMPY[dtype], copy=False)

    return meaning


def _running(combine: Callable[..., np.ndarray], step: int = 1) -> Callable[..., np.ndarray]:
    """Return a scan along an axis, from the end if ``step`` is -1."""

    def meaning(dtype: str, axis: int, values: np.ndarray) -> np.ndarray:
        lanes = list(accumulate(np.moveaxis(values, axis, 0)[::step], combine))
        return np.moveaxis(np.stack(lanes[::step]), 0, axis).astype(NUMPY[dtype], copy=False)

    return meaning


def _index_of(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Return the function for the first index of an extreme."""

    def meaning(dtype: str, axis: int, values: np.ndarray) -> np.ndarray:
        return np.broadcast_to(np.expand_dims(function(values, axis), axis), values.shape).astype(NUMPY[dtype])

    return meaning


def _gather(dtype: str, axis: int, values: np.ndarray, index: np.ndarray) -> np.ndarray:
    return np.take_along_axis(values, (index & (values.shape[axis] - 1)).astype(np.int64), axis)


def _fma(dtype: str, _: int, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    word = np.dtype(f"u{a.itemsize}")
    words = zip(*(x.view(word).ravel().tolist() for x in map(np.ascontiguousarray, (a, b, c))), strict=True)
    results = [ieee.fma(ieee.FORMATS[dtype], *abc) for abc in words]
    return np.array(results, word).view(a.dtype).reshape(a.shape)


def _high_product(dtype: str, _: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the upper half of the unsigned product."""
    word = np.dtype(f"u{a.itemsize}")
    a, b = a.view(word).astype(object), b.view(word).astype(object)
    return (a * b >> bits(dtype)).astype(word).view(NUMPY[dtype])


def _to_integer(dtype: str, _: int, values: np.ndarray) -> np.ndarray:
    values = values.astype(np.float64)
    return np.where(_in_range(values, dtype), values, 0).astype(NUMPY[dtype])


def _in_range(values: np.ndarray, dtype: str) -> np.ndarray:
    low, high = limits(dtype)
    return (values >= low) & (values <= high)


def limits(dtype: str) -> tuple[float, float]:
    """Return the bounds of floats that convert to an integer dtype, the same for every float dtype."""
    high = min(
        2.0 ** (bits(dtype) - (dtype in SIGNED)) * (255 / 256), 65280.0 * (2.0**40 if bits(dtype) == 64 else 1.0)
    )
    return (-high if dtype in SIGNED else 0.0), high


def _from_bits(dtype: str, _: int, values: np.ndarray) -> np.ndarray:
    if dtype == "bf16":
        # With the bit that makes a NaN quiet: see ``inputs`` of random_programs.
        return ((values.view(np.uint16) | np.uint16(64)).astype(np.uint32) << 16).view(np.float32)
    return values.view(NUMPY[dtype])


def _to_bits(dtype: str, _: int, values: np.ndarray) -> np.ndarray:
    values = np.where(np.isnan(values), values.dtype.type(0), values)
    return np.ascontiguousarray(values).view(NUMPY[dtype])


def _bits_of_bf16(dtype: str, _: int, values: np.ndarray) -> np.ndarray:
    words = np.where(np.isnan(values), np.float32(0), values).view(np.uint32)
    return (words >> 16).astype(np.uint16).view(NUMPY[dtype])


def _spread(text: str) -> str:
    return f"tl.broadcast_to({text}, {{shape}}).to({{t}})"


def _float_to_integer(target: str) -> Operation:
    low, high = limits(target)
    # Where a float16 cannot hold the limit, every finite float16 is within it.
    text = f"tl.where(({{0}} >= {low}) & ({{0}} <= {high}), {{0}}, 0.0).to({{t}})"
    sources = FLOATS if high < 65505 else ("bf16", "f32", "f64")
    return Operation("to integer", text, _to_integer, (target,), ("X",), sources)


def _compare(symbol: str, function: np.ufunc) -> Operation:
    return Operation(
        symbol, f"({{0}} {symbol} {{1}})", lambda _t, _p, a, b: function(a, b), (MASK,), ("X", "X"), NUMBERS
    )


def _end(name: str, text: str, function: Callable[..., np.ndarray], domain: str, low: float, high: float) -> Operation:
    """Return a function that the hardware approximates, on arguments from ``domain``, elsewhere on 1."""

    def meaning(_dtype: str, _: int, values: np.ndarray) -> np.ndarray:
        of = np.abs(values) if "abs" in domain else values
        inside = (of >= np.float32(low)) & (of <= np.float32(high))
        return function(np.where(inside, values, np.float32(1)).astype(np.float64))

    where = domain.format("{0}")
    return Operation(name, f"{text}(tl.where(({where} >= {low}) & ({where} <= {high}), {{0}}, 1.0))", meaning,
                     ("f32",), ("T",), ulps=4)  # fmt: skip


_SMALLER, _LARGER = (lambda a, b: extreme(a, b, False)), (lambda a, b: extreme(a, b, True))

# Simple operations first: a failing program shrinks towards the front of the list.
OPERATIONS = [
    Operation("add", "({0} + {1})", _rounded(np.add), NUMBERS, ("T", "T")),
    Operation("sub", "({0} - {1})", _rounded(np.subtract), NUMBERS, ("T", "T")),
    Operation("mul", "({0} * {1})", _rounded(np.multiply), NUMBERS, ("T", "T")),
    Operation("and", "({0} & {1})", _rounded(np.bitwise_and), (*INTEGERS, MASK), ("T", "T")),
    Operation("or", "({0} | {1})", _rounded(np.bitwise_or), (*INTEGERS, MASK), ("T", "T")),
    Operation("xor", "({0} ^ {1})", _rounded(np.bitwise_xor), (*INTEGERS, MASK), ("T", "T")),
    Operation("not", "(~{0})", _rounded(np.invert), (*INTEGERS, MASK), ("T",)),
    Operation("minimum", "tl.minimum({0}, {1}).to({t})", _rounded(_SMALLER), NUMBERS, ("T", "T")),
    Operation("maximum", "tl.maximum({0}, {1}).to({t})", _rounded(_LARGER), NUMBERS, ("T", "T")),
    Operation("where", "tl.where({0}, {1}, {2})", _rounded(np.where), NUMBERS, (MASK, "T", "T")),
    *(_compare(s, f) for s, f in (("<", np.less), ("<=", np.less_equal), ("==", np.equal), ("!=", np.not_equal),
                                  (">", np.greater), (">=", np.greater_equal))),
    Operation("convert integer", "{0}.to({t})", lambda t, _, a: convert(a, t), NUMBERS, ("X",), (*INTEGERS, MASK)),
    Operation("convert float", "{0}.to({t})", lambda t, _, a: convert(a, t), FLOATS, ("X",), FLOATS),
    *(_float_to_integer(t) for t in INTEGERS),
    Operation("shift left", "({0} << ({1} & {top}))", _shift(np.left_shift), INTEGERS, ("T", "T")),
    Operation("shift right", "({0} >> ({1} & {top}))", _shift(np.right_shift), INTEGERS, ("T", "T")),
    Operation("negate", "(-{0})", _rounded(np.negative), SIGNED, ("T",)),
    Operation("times -1", "({0} * -1.0)", _rounded(np.negative), FLOATS, ("T",)),
    Operation("abs", "tl.abs({0})", _rounded(np.abs), (*SIGNED, *FLOATS), ("T",)),
    Operation("quotient", "({0} // divisor({1}, True))", _rounded(_divide), SIGNED, ("T", "T")),
    Operation("remainder", "({0} % divisor({1}, True))", _rounded(_remainder), SIGNED, ("T", "T")),
    Operation("quotient", "({0} // divisor({1}, False))", _rounded(_divide), UNSIGNED, ("T", "T")),
    Operation("remainder", "({0} % divisor({1}, False))", _rounded(_remainder), UNSIGNED, ("T", "T")),
    Operation("high product", "tl.umulhi({0}, {1})", _high_product, ("i32", "u32", "i64", "u64"), ("T", "T")),
    Operation("divide", "tl.div_rn({0}, {1})", _rounded(np.divide), ("f32",), ("T", "T")),
    Operation("divide", "({0} / {1})", _rounded(np.divide), ("f64",), ("T", "T")),
    Operation("fma", "tl.fma({0}, {1}, {2})", _fma, ("f32", "f64"), ("T", "T", "T")),
    Operation("floor", "tl.floor({0})", _rounded(np.floor), ("f32", "f64"), ("T",)),
    Operation("ceil", "tl.ceil({0})", _rounded(np.ceil), ("f32", "f64"), ("T",)),
    *(Operation("from bits", "{0}.to({t}, bitcast=True)", _from_bits, (f,), ("X",), (f"i{bits(f)}", f"u{bits(f)}"))
      for f in FLOATS if f != "bf16"),
    Operation("from bits", "({0} | 64).to({t}, bitcast=True)", _from_bits, ("bf16",), ("X",), ("i16", "u16")),
    *(Operation("to bits", "tl.where({0} == {0}, {0}, 0.0).to({t}, bitcast=True)",
                _bits_of_bf16 if f == "bf16" else _to_bits, (f"i{bits(f)}", f"u{bits(f)}"), ("X",), (f,))
      for f in FLOATS),
    Operation("sum", _spread("tl.sum({0}, axis={p}, keep_dims=True)"), _fold(np.add), INTEGERS, ("T",), axis=True),
    Operation("xor sum", _spread("tl.xor_sum({0}, axis={p}, keep_dims=True)"), _fold(np.bitwise_xor), INTEGERS, ("T",),
              axis=True),
    Operation("min", _spread("tl.min({0}, axis={p}, keep_dims=True)"), _fold(_SMALLER), NUMBERS, ("T",), axis=True),
    Operation("max", _spread("tl.max({0}, axis={p}, keep_dims=True)"), _fold(_LARGER), NUMBERS, ("T",), axis=True),
    Operation("product", _spread("tl.reduce({0}, {p}, multiply, keep_dims=True)"), _fold(np.multiply), INTEGERS, ("T",),
              axis=True),
    Operation("argmax", _spread("tl.argmax({0}, axis={p}, keep_dims=True)"), _index_of(np.argmax), ("i32",), ("X",),
              INTEGERS, axis=True),
    Operation("argmin", _spread("tl.argmin({0}, axis={p}, keep_dims=True)"), _index_of(np.argmin), ("i32",), ("X",),
              INTEGERS, axis=True),
    Operation("cumsum", "tl.cumsum({0}, axis={p}).to({t})", _running(np.add), INTEGERS, ("T",), axis=True),
    Operation("cumsum back", "tl.cumsum({0}, axis={p}, reverse=True).to({t})", _running(np.add, -1), INTEGERS, ("T",),
              axis=True),
    Operation("running max", "tl.associative_scan({0}, {p}, larger)", _running(_LARGER), (*INTEGERS, "f32", "f64"),
              ("T",), axis=True),
    Operation("flip", "tl.flip({0}, dim={p})", lambda _t, axis, a: np.flip(a, axis), NUMBERS, ("T",), axis=True),
    Operation("gather", "tl.gather({0}, {1} & ({length} - 1), {p})", _gather, NUMBERS, ("T", "i32"), axis=True),
    # Not reshaped to another block: Triton 3.6 sums the wrong lanes of a transposed and reshaped tile.
    Operation("transpose", "tl.trans({0})", lambda _t, _p, a: a.T, NUMBERS, ("T",), shapes=((16, 16),)),
]  # fmt: skip

ENDS = [
    # tl.exp is v_exp_f32 of the rounded product with log2(e): the error of that rounding grows with the argument.
    _end("exp", "tl.exp", np.exp, "tl.abs({})", 0.0, 4.0),
    _end("exp2", "tl.exp2", np.exp2, "tl.abs({})", 0.0, 120.0),
    _end("log", "tl.log", np.log, "{}", 2.0, 1e30),
    _end("log2", "tl.log2", np.log2, "{}", 2.0, 1e30),
    _end("sqrt", "tl.sqrt", np.sqrt, "{}", 1e-30, 1e30),
    _end("rsqrt", "tl.rsqrt", lambda x: 1 / np.sqrt(x), "{}", 1e-30, 1e30),
]
