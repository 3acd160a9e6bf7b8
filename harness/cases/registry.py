"""Registry of case types by name, and their JSON form.

The form is ``{"type": NAME, "fields": {...}}``, with ``"data": {...}`` if the test passes further values to the rank
function. A case is checked when it is read, since it may come from a file: a value of the wrong type would raise on a
rank, and count as a failure of the library under test.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, TypeVar, get_type_hints

from harness.cases.values import Check, check_of, is_plain, name_of
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


def to_json(case: Any, data: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the JSON form of a registered case, with ``data`` if there is any; tuples become lists. HarnessError for a
    value of ``data`` that no field of a case could have."""
    name = type(case).__name__
    if _TYPES.get(name) is not type(case):
        raise HarnessError(f"{name} is not a registered case type")
    plain: dict[str, Any] = {"type": name, "fields": {f: _listed(getattr(case, f)) for f in vars(case)}}
    for key, value in (data or {}).items():
        if not is_plain(_tupled(value)):
            raise HarnessError(
                f"{key}={value!r:.100} cannot be sent to the ranks: data of a case can be int, float, bool, str, None"
                " and tuples of these"
            )
        plain.setdefault("data", {})[key] = _listed(_tupled(value))
    return plain


def data_of(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the further values in a JSON form, by name; lists become tuples."""
    return {name: _tupled(value) for name, value in plain.get("data", {}).items()}


def defaults_of(plain: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the fields of a JSON form that have their default value; () for an unknown type."""
    cls = _TYPES.get(str(plain.get("type")))
    if cls is None:
        return ()
    values = plain.get("fields", {})
    return tuple(
        each.name for each in fields(cls) if each.name in values and _tupled(values[each.name]) == each.default
    )


def from_json(plain: Mapping[str, Any]) -> Any:
    """Return the case of a JSON form. UsageError, in one line, if its type or a field is unknown, or a field is missing
    or has a value that its type does not allow."""
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
        raise UsageError(f"a {cls.__name__} needs a field {missing[0]!r}, which the case does not have")
    return cls(**values)


@functools.cache
def _checks(cls: type) -> tuple[dict[str, Check], tuple[str, ...]]:
    """Return the check of each field, and the names of the fields without a default."""
    hints = get_type_hints(cls, include_extras=True)
    declared = fields(cls)
    required = [each.name for each in declared if each.default is MISSING and each.default_factory is MISSING]
    return {each.name: check_of(hints[each.name]) for each in declared}, tuple(required)


def _listed(value: Any) -> Any:
    return [_listed(entry) for entry in value] if isinstance(value, tuple) else value


def _tupled(value: Any) -> Any:
    return tuple(_tupled(entry) for entry in value) if isinstance(value, list) else value
