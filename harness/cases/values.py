"""Checks of plain values against the declared types of a case's fields.

Types are int, float, bool, str and None, unions and tuples of those, and ``Annotated[str, OneOf(...)]``.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin

from harness.errors import HarnessError

Check: TypeAlias = Callable[[Any], bool]
"""Function that returns whether a value, with tuples in place of lists, is allowed."""

INTEGERS = range(-(1 << 63), 1 << 63)
"""Integers that a kernel and every reader of the evidence can represent."""


@dataclass(frozen=True)
class OneOf:
    """Annotation of a text field: the allowed values."""

    values: tuple[str, ...]


def check_of(hint: Any) -> Check:
    """Return the check of a declared type. HarnessError for a type that a case cannot have."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _one_of(arguments[1].values)
    if origin in (Union, types.UnionType):
        return _any_of([check_of(each) for each in arguments])
    if origin is tuple:
        if arguments[1:] == (Ellipsis,):
            return _each(check_of(arguments[0]))
        return _places([check_of(each) for each in arguments])
    raise HarnessError(
        f"a field of a case cannot be {hint}: use int, float, bool, str, None, unions and tuples of these"
    )


def name_of(hint: Any) -> str:
    """Return the declared type in words for a user: JSON has lists where a case has tuples."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is type(None):
        return "null"
    if origin is Annotated:
        return f"one of {', '.join(map(repr, arguments[1].values))}"
    if origin in (Union, types.UnionType):
        return " or ".join(name_of(each) for each in arguments)
    if origin is tuple:
        if arguments[1:] == (Ellipsis,):
            return f"a list of ({name_of(arguments[0])})"
        return f"a list [{', '.join(name_of(each) for each in arguments)}]"
    return _NAMES.get(hint, str(hint))


_NAMES = {int: "a whole number of 64 bits", float: "a finite number", bool: "true or false", str: "text"}


def _is_int(value: Any) -> bool:
    return type(value) is int and value in INTEGERS


def _is_float(value: Any) -> bool:
    return (type(value) is float and math.isfinite(value)) or _is_int(value)


def _is_bool(value: Any) -> bool:
    return type(value) is bool


def _is_str(value: Any) -> bool:
    return type(value) is str


def _is_none(value: Any) -> bool:
    return value is None


def is_plain(value: Any) -> bool:
    """Return whether some field of a case could have this value."""
    if type(value) is tuple:
        return all(map(is_plain, value))
    return any(check(value) for check in _SCALARS.values())


_SCALARS: dict[Any, Check] = {int: _is_int, float: _is_float, bool: _is_bool, str: _is_str, type(None): _is_none}


def _one_of(values: tuple[str, ...]) -> Check:
    allowed = frozenset(values)
    return lambda value: type(value) is str and value in allowed


def _any_of(checks: list[Check]) -> Check:
    return lambda value: any(check(value) for check in checks)


def _each(check: Check) -> Check:
    return lambda value: type(value) is tuple and all(map(check, value))


def _places(checks: list[Check]) -> Check:
    return lambda value: (
        type(value) is tuple
        and len(value) == len(checks)
        and all(check(part) for check, part in zip(checks, value, strict=True))
    )
