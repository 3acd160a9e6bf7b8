"""Lowerings of NumPy ufuncs to LLVM IR: bit for bit what NumPy computes, except for the payload of a NaN.

A lowering takes the emitter, the dtype of its first operand and the operands, all of the types that NumPy's own loop
works in. float16 arithmetic is float32 arithmetic rounded once to float16, as NumPy's is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from harness.emulator.program.compiled.values import (
    BOOL,
    F16,
    F32,
    F64,
    Emitter,
    NotCompilable,
    Value,
    resolve,
    spread,
    type_of,
)

Lowering = Callable[..., Any]
_MANTISSA = {F16: 10, F32: 23, F64: 52}
_I32 = np.dtype(np.int32)


def call(
    emit: Emitter,
    ufunc: np.ufunc,
    inputs: tuple[Any, ...],
    out: tuple[Any, ...] = (),
    where: Any = True,
    dtype: Any = None,
    **options: Any,
) -> Any:
    """Emit the code of ``ufunc(*inputs)``."""
    if ufunc not in LOWERINGS or options:
        raise NotCompilable(f"np.{ufunc.__name__}")
    types = resolve(ufunc, tuple(type_of(x) for x in inputs), None if dtype is None else np.dtype(dtype))
    lanes, shape = spread(*inputs)
    values = [emit.lift(x, t, lanes) for x, t in zip(inputs, types, strict=False)]
    loop, lowering = types[0], LOWERINGS[ufunc]
    if loop == F16 and ufunc in _WIDENED:
        values = [emit.cast(x, F16, F32) if t == F16 else x for x, t in zip(values, types, strict=False)]
        result = lowering(emit, F32, *values)
        result = emit.cast(result, F32, F16) if types[-1] == F16 else result
    else:
        result = lowering(emit, loop, *values)
    if ufunc.nout > 1:
        return tuple(Value(emit, t, shape, r) for t, r in zip(types[ufunc.nin :], result, strict=True))
    value = Value(emit, types[-1], shape, result)
    (target,) = out or (None,)
    if isinstance(target, Value):
        target.assign(value, where)
        return target
    if where is not True:
        raise NotCompilable("where without a register to write")
    return value  # an operator such as |= replaces an array created while compiling


def _is_float(dtype: np.dtype) -> bool:
    return dtype.kind == "f"


def _arithmetic(integer: str, floating: str) -> Lowering:
    def lower(emit: Emitter, dtype: np.dtype, a: Any, b: Any) -> Any:
        if dtype == BOOL:
            raise NotCompilable("arithmetic on booleans")
        return getattr(emit.builder, floating if _is_float(dtype) else integer)(a, b)

    return lower


def _bitwise(name: str) -> Lowering:
    return lambda emit, dtype, a, b: getattr(emit.builder, name)(a, b)


def _compare(sign: str) -> Lowering:
    def lower(emit: Emitter, dtype: np.dtype, a: Any, b: Any) -> Any:
        if _is_float(dtype):
            # Only "not equal" is true for a NaN.
            return (emit.builder.fcmp_unordered if sign == "!=" else emit.builder.fcmp_ordered)(sign, a, b)
        return (emit.builder.icmp_signed if dtype.kind == "i" else emit.builder.icmp_unsigned)(sign, a, b)

    return lower


def _shift(left: bool) -> Lowering:
    def lower(emit: Emitter, dtype: np.dtype, a: Any, count: Any) -> Any:
        """Emit a shift: a count of all bits or more gives 0, or the sign of a signed value shifted right."""
        b, bits = emit.builder, 8 * dtype.itemsize
        inside = b.icmp_unsigned("<", count, emit.word(count, bits))
        if not left and dtype.kind == "i":
            return b.ashr(a, b.select(inside, count, emit.word(count, bits - 1)))
        shifted = (b.shl if left else b.lshr)(a, b.select(inside, count, emit.word(count, 0)))
        return b.select(inside, shifted, emit.word(a, 0))

    return lower


def _extreme(sign: str) -> Lowering:
    def lower(emit: Emitter, dtype: np.dtype, a: Any, b: Any) -> Any:
        if _is_float(dtype):
            raise NotCompilable("minimum or maximum of floats: the sign of zero is the host's")
        return emit.builder.select(_compare(sign)(emit, dtype, a, b), a, b)

    return lower


def _number_extreme(sign: str) -> Lowering:
    def lower(emit: Emitter, dtype: np.dtype, a: Any, b: Any) -> Any:
        """Emit fmin or fmax: a number wins over a NaN. For zeros of different sign the result is either one."""
        pick = emit.builder.select(_compare(sign)(emit, dtype, a, b), a, b)
        pick = emit.builder.select(_is_nan(emit, dtype, b), a, pick)
        return emit.builder.select(_is_nan(emit, dtype, a), b, pick)

    return lower


def _clip(emit: Emitter, dtype: np.dtype, a: Any, low: Any, high: Any) -> Any:
    b, greater, less = emit.builder, _compare(">"), _compare("<")
    raised = b.select(greater(emit, dtype, a, low), a, low)
    limited = b.select(less(emit, dtype, raised, high), raised, high)
    return b.select(_is_nan(emit, dtype, a), a, limited) if _is_float(dtype) else limited


def _intrinsic(name: str) -> Lowering:
    return lambda emit, dtype, a: emit.intrinsic(name, a) if _is_float(dtype) else a


def _negative(emit: Emitter, dtype: np.dtype, a: Any) -> Any:
    return emit.builder.fneg(a) if _is_float(dtype) else emit.builder.sub(emit.word(a, 0), a)


def _absolute(emit: Emitter, dtype: np.dtype, a: Any) -> Any:
    if _is_float(dtype):
        return emit.intrinsic("fabs", a)
    if dtype.kind == "u":
        return a
    return emit.builder.select(emit.builder.icmp_signed("<", a, emit.word(a, 0)), _negative(emit, dtype, a), a)


def _sign(emit: Emitter, dtype: np.dtype, a: Any) -> Any:
    b = emit.builder
    if not _is_float(dtype):
        raise NotCompilable("sign of integers")
    lanes = isinstance(a.type, ir.VectorType)
    zero, one, minus = (emit.lift(n, dtype, lanes) for n in (0.0, 1.0, -1.0))
    positive = b.select(b.fcmp_ordered(">", a, zero), one, b.select(b.fcmp_ordered("==", a, zero), zero, a))
    return b.select(b.fcmp_ordered("<", a, zero), minus, positive)


def _is_nan(emit: Emitter, dtype: np.dtype, a: Any) -> Any:
    return emit.builder.fcmp_unordered("uno", a, a)


def _magnitude(emit: Emitter, dtype: np.dtype, a: Any) -> tuple[Any, Any]:
    """Return the bits without the sign, and the bits of infinity."""
    word = emit.bits(a, dtype)
    top = 1 << (8 * dtype.itemsize - 1)
    return emit.builder.and_(word, emit.word(word, top - 1)), emit.word(word, top - (1 << _MANTISSA[dtype]))


def _against_infinity(sign: str) -> Lowering:
    return lambda emit, dtype, a: emit.builder.icmp_unsigned(sign, *_magnitude(emit, dtype, a))


def _signbit(emit: Emitter, dtype: np.dtype, a: Any) -> Any:
    word = emit.bits(a, dtype)
    return emit.builder.icmp_signed("<", word, emit.word(word, 0))


def _copysign(emit: Emitter, dtype: np.dtype, a: Any, sign: Any) -> Any:
    b, top = emit.builder, 1 << (8 * dtype.itemsize - 1)
    to, of = emit.bits(a, dtype), emit.bits(sign, dtype)
    joined = b.or_(b.and_(to, emit.word(to, top - 1)), b.and_(of, emit.word(of, top)))
    return emit.bitcast(joined, dtype)


def _nextafter(emit: Emitter, dtype: np.dtype, a: Any, toward: Any) -> Any:
    """Emit the next float towards ``toward``: one step of the bits, which are ordered like floats of the same sign."""
    b = emit.builder
    zero = emit.lift(0.0, dtype, isinstance(a.type, ir.VectorType))
    wide, wide_toward, wide_zero = a, toward, zero
    if dtype == F16:
        wide, wide_toward, wide_zero = (emit.cast(x, F16, F32) for x in (a, toward, zero))
    word, top = emit.bits(a, dtype), 1 << (8 * dtype.itemsize - 1)
    up = b.fcmp_ordered("<", wide, wide_toward)
    negative = b.fcmp_ordered("<", wide, wide_zero)
    one = emit.word(word, 1)
    stepped = b.select(b.xor(up, negative), b.add(word, one), b.sub(word, one))
    smallest = b.or_(b.and_(emit.bits(toward, dtype), emit.word(word, top)), one)
    stepped = b.select(b.fcmp_ordered("==", wide, wide_zero), smallest, stepped)
    result = b.select(b.fcmp_ordered("==", wide, wide_toward), toward, emit.bitcast(stepped, dtype))
    unordered = b.fcmp_unordered("uno", wide, wide_toward)
    return b.select(unordered, b.select(b.fcmp_unordered("uno", wide, wide), a, toward), result)


def _frexp(emit: Emitter, dtype: np.dtype, a: Any) -> tuple[Any, Any]:
    """Emit mantissa in [0.5, 1) and exponent, in float64: every float32 and float16 is normal there."""
    b, lanes = emit.builder, isinstance(a.type, ir.VectorType)
    wide = emit.cast(a, dtype, F64)
    denormal = b.fcmp_ordered("<", emit.intrinsic("fabs", wide), emit.lift(2.0**-1022, F64, lanes))
    scaled = b.select(denormal, b.fmul(wide, emit.lift(2.0**54, F64, lanes)), wide)
    word = emit.bits(scaled, F64)
    field = b.and_(b.lshr(word, emit.word(word, 52)), emit.word(word, 0x7FF))
    bias = b.select(denormal, emit.word(word, 1022 + 54), emit.word(word, 1022))
    kept = b.and_(word, emit.word(word, (1 << 64) - 1 - (0x7FF << 52)))
    mantissa = emit.bitcast(b.or_(kept, emit.word(word, 1022 << 52)), F64)
    special = b.or_(b.fcmp_unordered("ueq", wide, emit.lift(0.0, F64, lanes)), _against_infinity(">=")(emit, F64, wide))
    exponent = b.select(special, emit.word(word, 0), b.sub(field, bias))
    mantissa = b.select(special, wide, mantissa)
    return emit.cast(mantissa, F64, dtype), b.trunc(exponent, emit.like(a, _I32))


def _ldexp(emit: Emitter, dtype: np.dtype, a: Any, exponent: Any) -> Any:
    """Emit a * 2**exponent, rounded once.

    float32 and float16 are computed in float64, where it is exact; float64 by factors of which only the last can round.
    """
    b = emit.builder
    wide, n = emit.cast(a, dtype, F64), exponent
    lanes = isinstance(a.type, ir.VectorType)

    def limit(low: int, high: int) -> Any:
        raised = b.select(b.icmp_signed("<", n, emit.word(n, low)), emit.word(n, low), n)
        return b.select(b.icmp_signed(">", raised, emit.word(n, high)), emit.word(n, high), raised)

    if dtype == F64:
        for _ in range(2):
            large, small = b.icmp_signed(">", n, emit.word(n, 1023)), b.icmp_signed("<", n, emit.word(n, -1022))
            # Downwards 53 bits are kept in reserve, so that an intermediate result is not denormal.
            for far, factor, step in ((large, 2.0**1023, -1023), (small, 2.0**-969, 969)):
                wide = b.select(far, b.fmul(wide, emit.lift(factor, F64, lanes)), wide)
                n = b.select(far, b.add(n, emit.word(n, step)), n)
        n = limit(-1022, 1023)
    else:
        n = limit(-400, 400)
    field = emit.cast(b.add(n, emit.word(n, 1023)), _I32, np.dtype(np.uint64))
    factor = emit.bitcast(b.shl(field, emit.word(field, 52)), F64)
    return emit.cast(b.fmul(wide, factor), F64, dtype)


def _bit_count(emit: Emitter, dtype: np.dtype, a: Any) -> Any:
    return emit.cast(emit.intrinsic("ctpop", a), dtype, np.dtype(np.uint8))


def _reciprocal(emit: Emitter, dtype: np.dtype, a: Any) -> Any:
    return emit.builder.fdiv(emit.lift(1.0, dtype, isinstance(a.type, ir.VectorType)), a)


LOWERINGS: dict[np.ufunc, Lowering] = {
    np.positive: lambda emit, dtype, a: a,
    np.negative: _negative,
    np.add: _arithmetic("add", "fadd"),
    np.subtract: _arithmetic("sub", "fsub"),
    np.multiply: _arithmetic("mul", "fmul"),
    np.divide: lambda emit, dtype, a, b: emit.builder.fdiv(a, b),
    np.reciprocal: _reciprocal,
    np.bitwise_and: _bitwise("and_"),
    np.bitwise_or: _bitwise("or_"),
    np.bitwise_xor: _bitwise("xor"),
    np.invert: lambda emit, dtype, a: emit.builder.xor(a, emit.word(a, 1 if dtype == BOOL else -1)),
    np.left_shift: _shift(left=True),
    np.right_shift: _shift(left=False),
    np.equal: _compare("=="),
    np.not_equal: _compare("!="),
    np.less: _compare("<"),
    np.less_equal: _compare("<="),
    np.greater: _compare(">"),
    np.greater_equal: _compare(">="),
    np.minimum: _extreme("<"),
    np.maximum: _extreme(">"),
    np.fmin: _number_extreme("<"),
    np.fmax: _number_extreme(">"),
    np.floor: _intrinsic("floor"),
    np.ceil: _intrinsic("ceil"),
    np.trunc: _intrinsic("trunc"),
    np.rint: _intrinsic("rint"),
    np.sqrt: _intrinsic("sqrt"),
    np.absolute: _absolute,
    np.sign: _sign,
    np.isnan: _is_nan,
    np.isinf: _against_infinity("=="),
    np.isfinite: _against_infinity("<"),
    np.signbit: _signbit,
    np.copysign: _copysign,
    np.nextafter: _nextafter,
    np.frexp: _frexp,
    np.ldexp: _ldexp,
}
_CLIP = getattr(np, "core" if np.__version__.startswith("1.") else "_core").umath.clip
LOWERINGS[_CLIP] = _clip
if hasattr(np, "bitwise_count"):
    LOWERINGS[np.bitwise_count] = _bit_count
# Of float16 operations, only those on the bits stay in float16.
_WIDENED = set(LOWERINGS) - {
    np.positive, np.negative, np.absolute, np.isinf, np.isfinite, np.signbit, np.copysign, np.nextafter, np.frexp,
    np.ldexp,
}  # fmt: skip
