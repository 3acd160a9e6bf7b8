"""The element types under test, by short name."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import torch

from harness.cases.values import OneOf
from harness.errors import UsageError

FLOATS = ("fp16", "bf16", "fp32", "fp64")
INTEGERS = ("int8", "int16", "int32", "int64")
ALL = ("int32", "fp16", "bf16", "fp32", "int8", "fp64", "int16", "int64")
"""Every element type but bool, the simplest to read first (Hypothesis shrinks towards it)."""

_TORCH = {
    "fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64,
    "int8": torch.int8, "int16": torch.int16, "int32": torch.int32, "int64": torch.int64, "bool": torch.bool,
    "uint8": torch.uint8, "fp8": torch.float8_e4m3fn, "complex64": torch.complex64,
}  # fmt: skip

DType: TypeAlias = Annotated[str, OneOf(tuple(_TORCH))]
"""The type of a field that names an element type."""


def of_name(name: str) -> torch.dtype:
    """The torch dtype of a short name; UsageError for another name."""
    if name not in _TORCH:
        raise UsageError(f"unknown dtype {name!r}; choose one of {', '.join(_TORCH)}")
    return _TORCH[name]


def size_of(name: str) -> int:
    """Bytes per element."""
    return of_name(name).itemsize


def vector_of(name: str) -> int:
    """Elements in 16 bytes: the size per thread at which one access is as wide as the hardware has it."""
    return 16 // size_of(name)


FURTHER = ("bool", "uint8", "fp8", "complex64")
"""Element types that are only moved, never computed with here."""

SOME = ("fp16", "int8", "fp64")
"""One of each size and kind, for what another requirement tries with all."""


def converted(name: str) -> str:
    """Another dtype, no wider, to which every payload of this one converts alike everywhere: rounded to the nearest.

    int8 has none and stays.
    """
    return {
        "int16": "fp16", "int32": "fp32", "int64": "fp64", "fp16": "bf16", "bf16": "fp16",
        "fp32": "fp16", "fp64": "fp32", "int8": "int8",
    }[name]  # fmt: skip
