"""NumPy's array functions on symbolic arrays, as far as op functions use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from harness.emulator.program.compiled.ufuncs import _CLIP, call
from harness.emulator.program.compiled.values import BOOL, Emitter, NotCompilable, Value, spread, type_of


def where(emit: Emitter, condition: Any, a: Any, b: Any) -> Value:
    dtype = _common(a, b)
    lanes, shape = spread(condition, a, b)
    # One condition for the whole wavefront may select between vectors.
    scalar = isinstance(condition, Value) and not condition.lanes
    picked = emit.lift(condition, BOOL, lanes and not scalar)
    value = emit.builder.select(picked, emit.lift(a, dtype, lanes), emit.lift(b, dtype, lanes))
    return Value(emit, dtype, shape, value)


def select(emit: Emitter, conditions: Sequence[Any], choices: Sequence[Any], default: Any = 0) -> Any:
    result = default
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        result = where(emit, condition, choice, result)
    return result.astype(_common(*choices, default))


def copyto(emit: Emitter, target: Any, value: Any, where: Any = True) -> None:
    if not isinstance(target, Value):
        raise NotCompilable("copyto an array that is not a register")
    target.assign(value, where)


def clip(emit: Emitter, a: Any, low: Any, high: Any) -> Any:
    return call(emit, _CLIP, (a, low, high))


def broadcast_to(emit: Emitter, array: Value, shape: tuple[int, ...]) -> Value:
    lanes, shape = spread(array, np.empty(shape, BOOL))
    return Value(emit, array.dtype, shape, emit.lift(array, array.dtype, lanes))


def broadcast_arrays(emit: Emitter, *arrays: Any) -> list[Value]:
    lanes, shape = spread(*arrays)
    return [Value(emit, a.dtype, shape, emit.lift(a, a.dtype, lanes)) for a in arrays]


def full_like(emit: Emitter, array: Value, number: Any) -> Value:
    return Value(emit, array.dtype, array.shape, emit.lift(number, array.dtype, array.lanes))


def _common(*operands: Any) -> np.dtype:
    # Python's numbers are constants that adapt to the other operands (NEP 50).
    dtype: np.dtype = np.result_type(*(x if isinstance(type_of(x), type) else type_of(x) for x in operands))
    return dtype


FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.where: where,
    np.select: select,
    np.copyto: copyto,
    np.clip: clip,
    np.broadcast_to: broadcast_to,
    np.broadcast_arrays: broadcast_arrays,
    np.full_like: full_like,
    np.zeros_like: lambda emit, array: full_like(emit, array, 0),
    np.shape: lambda emit, array: array.shape,
    np.ndim: lambda emit, array: array.ndim,
    np.any: lambda emit, array: True,
    np.all: lambda emit, array: False,
    np.result_type: lambda emit, *arrays: _common(*arrays),
}
