"""The case type of tensor factories."""

from __future__ import annotations

from dataclasses import dataclass

from harness.cases.registry import case_type


@case_type
@dataclass(frozen=True)
class TensorCase:
    """One call ``factory(size or values, options)`` of a tensor factory.

    ``dtype`` and ``memory_format`` are torch's names; None passes no such argument. ``values`` are the fill value of
    full; one to three of start, end and step of arange; start and end of linspace; or the bounds of randint and
    uniform. ``form`` is the way in which the size is passed: "varargs", "tuple", "list" or "nested". ``out``: None,
    "same" (the shape of the result) or "flat" (1-D). ``device``: None, "kind" (without an index) or "own". ``seed`` is
    that of a passed generator or, if ``own_generator`` is false, of the device's default generator. ``like`` selects
    the strides of the input of zeros_like, an int16 tensor: "dense", "transposed" or "every_second". ``before`` is the
    size in bytes of an earlier allocation.
    """

    factory: str = "zeros"
    size: tuple[int, ...] = (1,)
    values: tuple[int | float | bool, ...] = ()
    dtype: str | None = None
    form: str = "varargs"
    out: str | None = None
    device: str | None = None
    requires_grad: bool = False
    memory_format: str | None = None
    seed: int = 0
    own_generator: bool = True
    like: str = "dense"
    before: int = 0
