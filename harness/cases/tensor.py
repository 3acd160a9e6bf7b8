"""One call of a tensor factory."""

from __future__ import annotations

from dataclasses import dataclass

from harness.cases.registry import case_type


@case_type
@dataclass(frozen=True)
class TensorCase:
    """``factory(size or values, options)``. dtypes and memory formats go by torch's own names; None passes none.

    ``values``: the fill value; start, end and step of arange, as many as are passed; start and end of linspace; the
    bounds of randint and uniform. ``form``: how the size is passed, "varargs", "tuple", "list" or "nested" where the
    factory takes any. ``out``: None, "same" (of the result's shape) or "flat" (1-D). ``device``: None, "kind" (without
    an index) or "own". ``seed`` of a generator that is passed, or of the device's own where ``own_generator`` is
    false. ``like``: the strides of the input of zeros_like, an int16 tensor: "dense", "transposed", "every_second".
    ``before``: bytes that an allocation before this one takes.
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
