"""Every public name is covered by a requirement, or listed in conformance/uncovered.toml with a reason."""

import fnmatch
import importlib
import sys
import types
from pathlib import Path

import pytest

from fixtures.requirement import read_table, tomllib
from tests.package.public_surface import names_of

ROOT = Path(__file__).resolve().parents[2]
UNCOVERED = ROOT / "conformance" / "uncovered.toml"


def covers():
    return {text for requirement in read_table().values() for text in requirement.covers}


def reasons():
    return tomllib.loads(UNCOVERED.read_text(encoding="utf-8"))["uncovered"]


def problems(names, covered, listed):
    """What is wrong with the requirements and the list, one sentence each."""
    found = []
    used = set()
    for name in names:
        spellings = sorted(text for text in covered if name.is_written(text))
        patterns = [pattern for pattern in listed if fnmatch.fnmatchcase(name.name, pattern)]
        if len(spellings) > 1:
            found.append(f"{name.name} is covered under several spellings: {', '.join(spellings)}")
        if not spellings and not patterns:
            found.append(f"{name.name} is covered by no requirement, and uncovered.toml does not say why")
        if not spellings:
            used.update(patterns)
    found += [
        f"requirements cover {text}, which is no public name" for text in sorted(covered) if not _known(text, names)
    ]
    found += [f"uncovered.toml lists {pattern} in vain" for pattern in listed if pattern not in used]
    return found


def _known(text, names):
    return any(name.is_written(text) for name in names)


def test_every_public_name_is_covered_or_listed():
    assert problems(names_of(), covers(), reasons()) == []


@pytest.mark.parametrize("pattern", reasons())
def test_reasons_say_something_and_name_files_that_exist(pattern):
    reason = reasons()[pattern]
    assert len(reason) > 20
    for word in reason.replace(",", " ").replace(";", " ").replace(":", " ").split():
        if word.endswith(".py"):
            assert (ROOT / word).is_file(), word


# The check itself


@pytest.fixture
def planted(monkeypatch):
    """A package with a function, a class, and a module that gives the function again."""

    class Thing:
        def act(self):
            pass

        def _hidden(self):
            pass

    def work():
        pass

    top, inner = types.ModuleType("planted_package"), types.ModuleType("planted_package.inner")
    Thing.__module__ = "planted_package"
    top.work, top.Thing, top.__all__ = work, Thing, ["work", "Thing"]
    inner.again, inner.LIMIT, inner.__all__ = work, 3, ["again", "LIMIT"]
    monkeypatch.setitem(sys.modules, "planted_package", top)
    monkeypatch.setitem(sys.modules, "planted_package.inner", inner)
    return names_of(("", "inner"), "planted_package")


def test_the_names_of_a_package(planted):
    assert {name.name: sorted(name.paths) for name in planted} == {
        "work": ["inner.again", "work"],
        "Thing": ["Thing"],
        "Thing.act": ["Thing.act"],
        "inner.LIMIT": ["inner.LIMIT"],
    }


@pytest.mark.parametrize(
    ("covered", "listed", "says"),
    [
        ({"work", "Thing", "Thing.act", "LIMIT"}, {}, []),
        ({"again", "Thing", "Thing.act"}, {"inner.*": "why"}, []),
        ({"Thing", "Thing.act", "LIMIT"}, {}, ["work is covered by no requirement"]),
        ({"work", "Thing", "act", "LIMIT"}, {}, ["Thing.act is covered by no", "cover act, which is no public name"]),
        (
            {"work", "again", "Thing", "Thing.act", "LIMIT"},
            {},
            ["work is covered under several spellings: again, work"],
        ),
        ({"work", "Thing", "Thing.act", "LIMIT", "gone"}, {}, ["cover gone, which is no public name"]),
        ({"work", "Thing", "Thing.act", "LIMIT"}, {"work": "why"}, ["lists work in vain"]),
    ],
)
def test_what_is_wrong_is_found(planted, covered, listed, says):
    found = problems(planted, covered, listed)
    assert len(found) == len(says), found
    assert all(part in problem for part, problem in zip(says, found, strict=True)), found


def test_the_surface_has_what_the_specification_names():
    names = {path for name in names_of() for path in name.paths}
    for path in ("iris", "Iris.zeros", "Iris.heap_bases", "gluon.IrisDeviceCtx.put", "DeviceContext.atomic_cas", "put",
                 "ccl.all_gather", "bench.State.exec", "host.tracing.events.TraceEvent", "Iris.free"):  # fmt: skip
        assert path in names
    assert importlib.import_module("iris_under_test").load.__name__ == "load"
