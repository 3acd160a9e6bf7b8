"""The values of an axis: how a program and how the command line write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["linear_range", "parse_values", "power_of_two", "shown"]

_DTYPES = {
    "fp16": torch.float16,
    "float16": torch.float16,
    "fp32": torch.float32,
    "float32": torch.float32,
    "bf16": torch.bfloat16,
    "bfloat16": torch.bfloat16,
}


def power_of_two(start: int, end: int) -> list[int]:
    """2^start, ..., 2^end, both included. ``power_of_two(3, 5)`` is [8, 16, 32].

    Raises:
        ValueError: ``start`` is negative or above ``end``.
    """
    if not 0 <= start <= end:
        raise ValueError(f"power_of_two needs 0 <= start <= end, got {start} and {end}")
    return [1 << exponent for exponent in range(start, end + 1)]


def linear_range(start: int, end: int, step: int) -> list[int]:
    """start, start + step, ..., up to ``end`` included. ``linear_range(1, 7, 3)`` is [1, 4, 7].

    Raises:
        ValueError: ``step`` is not positive, or ``start`` is above ``end``.
    """
    if step <= 0 or start > end:
        raise ValueError(f"linear_range needs start <= end and step > 0, got {start}, {end}, {step}")
    return list(range(start, end + 1, step))


def parse_values(text: str, like: Sequence[Any]) -> list[Any]:
    """``"64,128"``, ``"pow2:3:5"`` or ``"lin:1:7:3"`` as values of an axis that the program declared as ``like``.

    A value becomes what the declared ones are: a torch dtype (fp16 float16 fp32 float32 bf16 bfloat16), text, or else a
    number or a bool.

    Raises:
        ValueError: the text is none of these.
    """
    kind, *parts = text.split(":")
    if kind == "pow2" and len(parts) == 2:
        return power_of_two(*_integers(parts, text))
    if kind == "lin" and len(parts) == 3:
        return linear_range(*_integers(parts, text))
    if kind in {"pow2", "lin"}:
        raise ValueError(f"{text!r} is not an axis: write pow2:FROM:TO or lin:FROM:TO:STEP")
    return [_value(part.strip(), like) for part in text.split(",")]


def shown(value: Any) -> str:
    """A value as reports and the command line write it: ``float16`` for torch.float16."""
    return str(value).removeprefix("torch.")


def _integers(parts: Sequence[str], text: str) -> list[int]:
    try:
        return [int(part) for part in parts]
    except ValueError:
        raise ValueError(f"{text!r} is not an axis: {', '.join(parts)} must be integers") from None


def _value(text: str, like: Sequence[Any]) -> Any:
    if any(isinstance(value, torch.dtype) for value in like):
        if text not in _DTYPES:
            raise ValueError(f"there is no dtype {text!r}: use one of {', '.join(_DTYPES)}")
        return _DTYPES[text]
    if all(isinstance(value, str) for value in like):
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    raise ValueError(f"{text!r} is not a value of the kind of {', '.join(map(shown, like))}")
