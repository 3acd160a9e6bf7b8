"""Hypothesis strategies for calls of tensor factories. They shrink towards one float32 element with no options."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from conformance.host.cases import TensorCase

FLOATS = ("float32", "float16", "bfloat16", "float64")
INTEGERS = ("int32", "int64", "int16", "int8", "uint8")
COMPLEX = ("complex64", "complex128")
ANY_FORM = ("zeros", "ones", "empty", "rand", "randn", "linspace")
"""The factories that accept a size in any form; for linspace the size is the number of steps."""

_DTYPES = {
    "arange": (*FLOATS, *INTEGERS),
    "linspace": (*FLOATS, *INTEGERS, *COMPLEX),
    "rand": (*FLOATS, *COMPLEX),
    "randn": (*FLOATS, *COMPLEX),
    "randint": (*INTEGERS, *FLOATS),
    "uniform": FLOATS,
}
_ANY_DTYPE = (*FLOATS, *INTEGERS, "bool", *COMPLEX)
_HALVES = st.integers(-20, 20).map(lambda n: n / 2)


@st.composite
def sizes(draw: st.DrawFn, dimensions: int | None = None) -> tuple[int, ...]:
    """Draw a tensor's shape: ``dimensions`` dimensions, by default zero to four, each of length zero to seven."""
    count = draw(st.integers(0, 4)) if dimensions is None else dimensions
    return tuple(draw(st.integers(0, 7)) for _ in range(count))


@st.composite
def tensors(draw: st.DrawFn, factory: str) -> TensorCase:
    """Draw a call of one factory that torch's factory of the same name accepts too."""
    dtype = draw(st.sampled_from([None, *_DTYPES.get(factory, _ANY_DTYPE)]))
    values, size = _arguments(draw, factory, dtype)
    memory_format = None
    if factory in ("empty", "zeros_like"):
        memory_format = draw(st.sampled_from([None, "channels_last", "channels_last_3d"]))
        if memory_format is not None and draw(st.booleans()):
            size = draw(sizes(4 if memory_format == "channels_last" else 5))
    plain = factory == "uniform"
    takes_out = not plain and factory != "zeros_like"
    differentiable = not plain and _is_float(factory, dtype, values)
    return TensorCase(
        factory=factory,
        size=size,
        values=values,
        dtype=dtype,
        form=draw(
            st.sampled_from(["varargs", "tuple", "list", "nested"] if factory in ANY_FORM else ["tuple", "list"])
        ),
        out=draw(st.sampled_from([None, None, "same", "flat"])) if takes_out else None,
        device=None if plain else draw(st.sampled_from([None, "kind", "own"])),
        requires_grad=draw(st.booleans()) if differentiable else False,
        memory_format=memory_format,
        seed=draw(st.integers(0, 1000)),
        own_generator=draw(st.booleans()) and not plain,
        like=draw(st.sampled_from(["dense", "transposed", "every_second"])),
        before=draw(st.sampled_from([0, 1, 1000, 1024, 1025])),
    )


def _arguments(
    draw: st.DrawFn, factory: str, dtype: str | None
) -> tuple[tuple[int | float | bool, ...], tuple[int, ...]]:
    size = draw(sizes())
    if factory == "full":
        return (draw(_fill_values(dtype)),), size
    if factory == "arange":
        return draw(_ranges(dtype)), ()
    if factory == "linspace":
        whole = dtype is not None and not dtype.startswith(("float", "bfloat", "complex"))
        ends = st.integers(0, 100) if whole else _HALVES
        return (draw(ends), draw(ends)), size or (draw(st.integers(0, 40)),)
    if factory == "randint":
        low, width = draw(st.integers(0, 50)), draw(st.integers(1, 70))
        return ((low, low + width) if draw(st.booleans()) else (width,)), size
    if factory == "uniform":
        start, span = draw(_HALVES), draw(st.integers(0, 40)) / 2
        return ((start, start + span) if draw(st.booleans()) else ()), size
    return (), size


@st.composite
def _fill_values(draw: st.DrawFn, dtype: str | None) -> int | float | bool:
    """Draw a value that the dtype holds exactly. If ``dtype`` is None, the value determines the result's dtype."""
    if dtype == "bool":
        return draw(st.booleans())
    if dtype in INTEGERS:
        return draw(st.integers(0, 127))
    return draw(st.one_of(st.integers(-100, 100), _HALVES, st.booleans()))


@st.composite
def _ranges(draw: st.DrawFn, dtype: str | None) -> tuple[int | float, ...]:
    """Draw one to three arguments of arange that give a non-empty range."""
    count, whole = draw(st.integers(1, 60)), dtype in INTEGERS or draw(st.booleans())
    form = draw(st.integers(1, 3))
    if form == 1:
        return (count,) if whole else (count - 0.5,)
    start: int | float = draw(st.integers(0, 20)) if whole else draw(_HALVES)
    if form == 2:
        return (start, start + count)
    step: int | float = draw(st.integers(1, 2)) if whole else draw(st.sampled_from([0.25, 0.5, 1.5]))
    if draw(st.booleans()) and dtype != "uint8":
        return (start, start - count * step, -step)
    return (start, start + math.ceil(count * step) if whole else start + count * step, step)


def _is_float(factory: str, dtype: str | None, values: tuple[int | float | bool, ...]) -> bool:
    """Return True if the result's dtype supports gradients."""
    if dtype is not None:
        return dtype in (*FLOATS, *COMPLEX)
    if factory in ("full", "arange"):
        return any(isinstance(value, float) for value in values)
    return factory not in ("randint", "zeros_like")
