"""Case types by name, and their JSON form: ``{"type": NAME, "fields": {...}}``.

A case is checked when it is read, since it may come from a file: a value of another type than its field would raise
somewhere in a rank, and count as a failure of the library under test.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar, get_type_hints

from harness.cases.values import Check, check_of, name_of
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
    """The case of a JSON form. UsageError, in one line, when its type or one of its fields is not known, when one is
    missing, or has a value that its type does not allow."""
    cls = _TYPES.get(str(plain.get("type")))
    if cls is None:
        raise UsageError(f"unknown case type {plain.get('type')!r:.100}; known: {', '.join(sorted(_TYPES))}")
    checks, required = _checks(cls)
    values = {name: _tupled(value) for name, value in plain.get("fields", {}).items()}
    for name, value in values.items():
        if (check := checks.get(name)) is None:
            raise UsageError(f"a {cls.__name__} has no field {name!r:.100}; it has {', '.join(checks)}")
        if not check(value):
            wanted = name_of(get_type_hints(cls, include_extras=True)[name])
            raise UsageError(f"the field {name!r} of a {cls.__name__} must be {wanted}, not {_listed(value)!r:.100}")
    if missing := [name for name in required if name not in values]:
        raise UsageError(f"a {cls.__name__} needs a field {missing[0]!r}, and the case has none")
    return cls(**values)


@functools.cache
def _checks(cls: type) -> tuple[dict[str, Check], tuple[str, ...]]:
    """What checks each field, and the names of those that have no default."""
    hints = get_type_hints(cls, include_extras=True)
    declared = fields(cls)
    required = [each.name for each in declared if each.default is MISSING and each.default_factory is MISSING]
    return {each.name: check_of(hints[each.name]) for each in declared}, tuple(required)


def _listed(value: Any) -> Any:
    return [_listed(entry) for entry in value] if isinstance(value, tuple) else value


def _tupled(value: Any) -> Any:
    return tuple(_tupled(entry) for entry in value) if isinstance(value, list) else value
