"""Device functions, collectives and fused operations take arguments as published, by position and by name."""

from __future__ import annotations

import enum
import importlib
import inspect
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PUBLISHED = tomllib.loads(Path(__file__).with_name("published_signatures.toml").read_text("utf-8"))
FUNCTIONS = [(owner, name) for owner, functions in PUBLISHED.items() for name in functions]


def owner_of(path: str) -> object:
    """Return the module, or the class in a module, that is published as ``path``."""
    parts = path.replace("iris", "iris_under_test", 1).split(".")
    for length in range(len(parts), 0, -1):
        try:
            owner: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            owner = getattr(owner, part)
        return owner
    raise ModuleNotFoundError(path)


def parameters(owner: object, name: str) -> list[tuple[str, str]]:
    """Return the (name, default) pairs of a function; the default is "" if it has none."""
    function = getattr(owner, name)
    signature = inspect.signature(getattr(function, "fn", function))  # of the Python function under a jitted one
    return [(p.name, "" if p.default is p.empty else written(p.default)) for p in signature.parameters.values()]


def written(default: object) -> str:
    """Return a default as the table writes it."""
    if isinstance(default, enum.Enum):
        return f"{type(default).__name__}.{default.name}"
    return str(getattr(default, "value", default))  # a constexpr has its value inside


def differences(own: list[tuple[str, str]], published: str) -> list[str]:
    """Return one sentence for each way in which a call of the published signature would fail or differ."""
    expected = [tuple((text + "=").split("=")[:2]) for text in published.split(", ") if text]
    problems = []
    for place, pair in enumerate(expected):
        received = own[place] if place < len(own) else None
        if received != pair:
            problems.append(f"parameter {place} is {received}, published is {pair}")
    problems += [f"{name} has no default" for name, default in own[len(expected) :] if default == ""]
    return problems


@pytest.mark.parametrize(("owner", "name"), FUNCTIONS, ids=lambda value: value)
def test_published_calls_fit(owner, name):
    assert differences(parameters(owner_of(owner), name), PUBLISHED[owner][name]) == []


def test_importing_a_module_leaves_the_function_of_its_name():
    """``x.all_gather`` stays the function, also after ``import iris_under_test.x.all_gather``."""
    for package in ("iris_under_test.x", "iris_under_test.ccl"):
        importlib.import_module(f"{package}.all_gather")
        assert callable(importlib.import_module(package).all_gather)


def test_differences_are_found():
    own = [("C", ""), ("A", ""), ("config", "None")]
    assert differences(own, "C, A") == []
    assert differences(own, "output, A, config=None") != []
    assert differences(own, "C, A, config=1") != []
    assert differences(own, "C") == ["A has no default"]
    assert differences(own, "C, A, config=None, workspace=None") != []
