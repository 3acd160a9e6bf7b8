"""Element types under test, by short name."""

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
    """Return the torch dtype of a short name; UsageError for another name."""
    if name not in _TORCH:
        raise UsageError(f"unknown dtype {name!r}; choose one of {', '.join(_TORCH)}")
    return _TORCH[name]


def size_of(name: str) -> int:
    """Return the bytes per element."""
    return of_name(name).itemsize


def vector_of(name: str) -> int:
    """Return the number of elements in 16 bytes, the widest access of one thread."""
    return 16 // size_of(name)


FURTHER = ("bool", "uint8", "fp8", "complex64")
"""Element types that cases only move and never compute with."""

SOME = ("fp16", "int8", "fp64")
"""A few types of different size and kind, for tests whose full range another requirement covers."""


def converted(name: str) -> str:
    """Return another dtype, no wider, to which every platform converts payloads of this one alike, rounding to nearest.

    There is none for int8, which is returned itself.
    """
    return {
        "int16": "fp16", "int32": "fp32", "int64": "fp64", "fp16": "bf16", "bf16": "fp16",
        "fp32": "fp16", "fp64": "fp32", "int8": "int8",
    }[name]  # fmt: skip
