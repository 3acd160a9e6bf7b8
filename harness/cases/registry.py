"""Case types by name, and their JSON form: ``{"type": NAME, "fields": {...}}``."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, TypeVar

from harness.errors import HarnessError, UsageError

T = TypeVar("T")
_TYPES: dict[str, type] = {}


def case_type(cls: type[T]) -> type[T]:
    """Class decorator: register a frozen dataclass of numbers, text, booleans, None and (nested) tuples of those."""
    if not is_dataclass(cls) or not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise HarnessError(f"{cls.__name__} must be a frozen dataclass to be a case")
    if _TYPES.setdefault(cls.__name__, cls).__module__ != cls.__module__:
        raise HarnessError(f"two case types are called {cls.__name__}")
    _TYPES[cls.__name__] = cls
    return cls


def to_json(case: Any) -> dict[str, Any]:
    """The JSON form of a registered case; tuples become lists."""
    name = type(case).__name__
    if _TYPES.get(name) is not type(case):
        raise HarnessError(f"{name} is not a registered case type")
    return {"type": name, "fields": {f: _listed(getattr(case, f)) for f in vars(case)}}


def from_json(plain: Mapping[str, Any]) -> Any:
    """The case of a JSON form. UsageError when its type or one of its fields is not known, or one is missing."""
    cls = _TYPES.get(str(plain.get("type")))
    if cls is None:
        raise UsageError(f"unknown case type {plain.get('type')!r}; known: {', '.join(sorted(_TYPES))}")
    values = plain.get("fields", {})
    names = set(typing.get_type_hints(cls))
    if unknown := set(values) - names:
        raise UsageError(f"a {cls.__name__} has no field {min(unknown)!r}")
    try:
        return cls(**{name: _tupled(value) for name, value in values.items()})
    except TypeError as error:
        raise UsageError(f"the case does not fit {cls.__name__}: {error}") from error


def _listed(value: Any) -> Any:
    return [_listed(entry) for entry in value] if isinstance(value, tuple) else value


def _tupled(value: Any) -> Any:
    return tuple(_tupled(entry) for entry in value) if isinstance(value, list) else value
