"""Vector ALU, integers: sums, products, minima and maxima of 16, 32 and 64 bits. Arrays of shape [W, 64].

Source: AMD "CDNA3 ISA", chapters VOP2 and VOP3. Everything wraps, unless ``clamp`` selects saturation.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.operations.table import UPWARD, upward, vector

_U32, _U64, _I64 = np.uint32, np.uint64, np.int64


def saturating(function, low: int, high: int):
    """Return the function on wide integers, limited to [low, high] of the sources' dtype."""

    def saturated(*sources):
        wide = function(*[s.astype(_I64) for s in sources])
        return np.clip(wide, low, high).astype(np.result_type(*sources))

    return saturated


RANGES = {"u32": (0, 2**32 - 1), "i32": (-(2**31), 2**31 - 1), "u16": (0, 2**16 - 1), "i16": (-(2**15), 2**15 - 1)}


def _reversed(a, b):
    return b - a


for _name, _type, _function in (
    ("v_add_u32", "u32", np.add), ("v_sub_u32", "u32", np.subtract), ("v_subrev_u32", "u32", _reversed),
    ("v_add_i32", "i32", np.add), ("v_sub_i32", "i32", np.subtract),
    ("v_add_u16", "u16", np.add), ("v_sub_u16", "u16", np.subtract), ("v_subrev_u16", "u16", _reversed),
    ("v_add_i16", "i16", np.add), ("v_sub_i16", "i16", np.subtract),
):  # fmt: skip
    vector(_name, f"{_type} = {_type} {_type}", saturated=saturating(_function, *RANGES[_type]), undefined=UPWARD)(
        _function
    )


# -- carries -----------------------------------------------------------------------------------------------------------


@vector("v_add_co_u32", "u32 mask = u32 u32", undefined=UPWARD)
def add_co(a, b):
    result = a + b
    return result, result < a


@vector("v_addc_co_u32", "u32 mask = u32 u32 mask", undefined=UPWARD)
def addc_co(a, b, carry):
    wide = a.astype(_U64) + b + carry
    return wide.astype(_U32), wide >> _U64(32) != 0


@vector("v_sub_co_u32", "u32 mask = u32 u32", undefined=UPWARD)
def sub_co(a, b):
    return a - b, b > a


@vector("v_subrev_co_u32", "u32 mask = u32 u32", undefined=UPWARD)
def subrev_co(a, b):
    return b - a, a > b


@vector("v_subb_co_u32", "u32 mask = u32 u32 mask", undefined=UPWARD)
def subb_co(a, b, borrow):
    taken = b.astype(_U64) + borrow
    return (a - taken).astype(_U32), taken > a


@vector("v_subbrev_co_u32", "u32 mask = u32 u32 mask", undefined=UPWARD)
def subbrev_co(a, b, borrow):
    return subb_co(b, a, borrow)


# -- products ----------------------------------------------------------------------------------------------------------


def _signed24(a):
    return a.astype(np.int32) << np.int32(8) >> np.int32(8)


def _unsigned24(a):
    return a & _U32(0xFFFFFF)


vector("v_mul_lo_u32", "u32 = u32 u32", undefined=UPWARD)(np.multiply)
vector("v_mul_hi_u32", "u32 = u32 u32")(lambda a, b: (np.multiply(a, b, dtype=_U64) >> _U64(32)).astype(_U32))
vector("v_mul_hi_i32", "i32 = i32 i32")(lambda a, b: (np.multiply(a, b, dtype=_I64) >> _I64(32)).astype(np.int32))
vector("v_mul_i32_i24", "i32 = i32 i32", undefined=upward(bits=24))(lambda a, b: _signed24(a) * _signed24(b))
vector("v_mul_u32_u24", "u32 = u32 u32", undefined=upward(bits=24))(lambda a, b: _unsigned24(a) * _unsigned24(b))
vector("v_mul_hi_i32_i24", "i32 = i32 i32")(
    lambda a, b: (np.multiply(_signed24(a), _signed24(b), dtype=_I64) >> _I64(32)).astype(np.int32)
)
vector("v_mul_hi_u32_u24", "u32 = u32 u32")(
    lambda a, b: (np.multiply(_unsigned24(a), _unsigned24(b), dtype=_U64) >> _U64(32)).astype(_U32)
)
vector(
    "v_mad_i32_i24",
    "i32 = i32 i32 i32",
    saturated=saturating(lambda a, b, c: _wide24(a) * _wide24(b) + c, *RANGES["i32"]),
    undefined=upward(bits=24),
)(lambda a, b, c: _signed24(a) * _signed24(b) + c)
vector("v_mad_u32_u24", "u32 = u32 u32 u32", saturated=saturating(
    lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c, *RANGES["u32"]
), undefined=upward(bits=24))(lambda a, b, c: _unsigned24(a) * _unsigned24(b) + c)  # fmt: skip


def _wide24(a):
    return a << _I64(40) >> _I64(40)


@vector("v_mad_u64_u32", "u64 mask = u32 u32 u64", undefined=UPWARD)
def mad_u64_u32(a, b, c):
    product = np.multiply(a, b, dtype=_U64)
    result = product + c
    return result, result < product


@vector("v_mad_i64_i32", "i64 mask = i32 i32 i64", undefined=UPWARD)
def mad_i64_i32(a, b, c):
    product = np.multiply(a, b, dtype=_I64)
    result = product + c
    return result, (product ^ result) & (c ^ result) < 0


vector("v_mul_lo_u16", "u16 = u16 u16", undefined=UPWARD)(np.multiply)
# The gfx9 three-operand 16-bit ops keep the upper half of the destination (LLVM GCNSubtarget,
# zeroesHigh16BitsOfDest).
vector(
    "v_mad_u16",
    "u16 = u16 u16 u16",
    keeps_high=True,
    saturated=saturating(lambda a, b, c: a * b + c, *RANGES["u16"]),
    undefined=UPWARD,
)(lambda a, b, c: a * b + c)
vector(
    "v_mad_i16",
    "i16 = i16 i16 i16",
    keeps_high=True,
    saturated=saturating(lambda a, b, c: a * b + c, *RANGES["i16"]),
    undefined=UPWARD,
)(lambda a, b, c: a * b + c)
vector("v_mad_u32_u16", "u32 = u16 u16 u32", undefined=UPWARD)(lambda a, b, c: np.multiply(a, b, dtype=_U32) + c)
vector("v_mad_i32_i16", "i32 = i16 i16 i32", undefined=UPWARD)(lambda a, b, c: np.multiply(a, b, dtype=np.int32) + c)


# -- minima and maxima -------------------------------------------------------------------------------------------------


def median(low, high):
    """Return the median of three by the type's own minimum and maximum."""
    return lambda a, b, c: high(low(a, b), low(high(a, b), c))


for _type in ("u32", "i32", "u16", "i16"):
    vector(f"v_min_{_type}", f"{_type} = {_type} {_type}")(np.minimum)
    vector(f"v_max_{_type}", f"{_type} = {_type} {_type}")(np.maximum)
    _three = f"{_type} = {_type} {_type} {_type}"
    _keeps = _type.endswith("16")
    vector(f"v_min3_{_type}", _three, keeps_high=_keeps)(lambda a, b, c: np.minimum(np.minimum(a, b), c))
    vector(f"v_max3_{_type}", _three, keeps_high=_keeps)(lambda a, b, c: np.maximum(np.maximum(a, b), c))
    vector(f"v_med3_{_type}", _three, keeps_high=_keeps)(median(np.minimum, np.maximum))

# The "legacy" forms clear the upper half of the destination.
for _type in ("u16", "i16"):
    vector(f"v_mad_legacy_{_type}", f"{_type} = {_type} {_type} {_type}", saturated=saturating(
        lambda a, b, c: a * b + c, *RANGES[_type]
    ))(lambda a, b, c: a * b + c)  # fmt: skip
