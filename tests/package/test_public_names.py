"""Every public name is covered by a requirement, or listed in conformance/uncovered.toml with a reason."""

import fnmatch
import importlib
import sys
import types
from pathlib import Path

import pytest

from fixtures.adapters import Adapter, ProvidedHeap
from fixtures.tables import SUITE
from harness.evidence import read_table
from tests.package.public_surface import names_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
UNCOVERED = ROOT / "conformance" / "uncovered.toml"


PROTOCOL = {"Adapter": Adapter, "ProvidedHeap": ProvidedHeap}
"""Classes of the adapter protocol, whose members requirements of other libraries cover."""

OPTIONAL = {"ProvidedHeap.close", "ProvidedHeap.contains"}


def covers():
    """Return the names of the library that requirements cover."""
    return {text for text in all_covered() if text.partition(".")[0] not in PROTOCOL}


def all_covered():
    return {text for requirement in read_table(SUITE).values() for text in requirement.covers}


def reasons():
    return tomllib.loads(UNCOVERED.read_text(encoding="utf-8"))["uncovered"]


def problems(names, covered, listed):
    """Return the problems of the requirements and of the list, one sentence each."""
    sentences = []
    used = set()
    for name in names:
        spellings = sorted(text for text in covered if name.is_written(text))
        patterns = [pattern for pattern in listed if fnmatch.fnmatchcase(name.name, pattern)]
        if len(spellings) > 1:
            sentences.append(f"{name.name} is covered under several spellings: {', '.join(spellings)}")
        if not spellings and not patterns:
            sentences.append(f"{name.name} is covered by no requirement, and uncovered.toml has no reason for it")
        if not spellings:
            used.update(patterns)
    sentences += [
        f"requirements cover {text}, which is not a public name" for text in sorted(covered) if not _known(text, names)
    ]
    sentences += [f"uncovered.toml lists {pattern} without need" for pattern in listed if pattern not in used]
    return sentences


def _known(text, names):
    return any(name.is_written(text) for name in names)


def test_covered_members_of_the_protocol_exist():
    members = all_covered() - covers() - OPTIONAL
    assert {"Adapter.make_heap", "ProvidedHeap.bases"} <= members
    for text in members:
        kind, _, member = text.partition(".")
        assert member in dir(PROTOCOL[kind]) or member in PROTOCOL[kind].__annotations__, text


def test_every_public_name_is_covered_or_listed():
    assert problems(names_of(), covers(), reasons()) == []


@pytest.mark.parametrize("pattern", reasons())
def test_reasons_are_sentences_and_name_files_that_exist(pattern):
    reason = reasons()[pattern]
    assert len(reason) > 20
    for word in reason.replace(",", " ").replace(";", " ").replace(":", " ").split():
        if word.endswith(".py"):
            assert (ROOT / word).is_file(), word


# The check itself


@pytest.fixture
def planted(monkeypatch):
    """Plant a package with a function, a class, and a module that exports the function under another name."""

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
    ("covered", "listed", "parts"),
    [
        ({"work", "Thing", "Thing.act", "LIMIT"}, {}, []),
        ({"again", "Thing", "Thing.act"}, {"inner.*": "why"}, []),
        ({"Thing", "Thing.act", "LIMIT"}, {}, ["work is covered by no requirement"]),
        (
            {"work", "Thing", "act", "LIMIT"},
            {},
            ["Thing.act is covered by no", "cover act, which is not a public name"],
        ),
        (
            {"work", "again", "Thing", "Thing.act", "LIMIT"},
            {},
            ["work is covered under several spellings: again, work"],
        ),
        ({"work", "Thing", "Thing.act", "LIMIT", "gone"}, {}, ["cover gone, which is not a public name"]),
        ({"work", "Thing", "Thing.act", "LIMIT"}, {"work": "why"}, ["lists work without need"]),
    ],
)
def test_each_problem_is_detected(planted, covered, listed, parts):
    sentences = problems(planted, covered, listed)
    assert len(sentences) == len(parts), sentences
    assert all(part in problem for part, problem in zip(parts, sentences, strict=True)), sentences


def test_the_surface_has_the_names_of_the_specification():
    names = {path for name in names_of() for path in name.paths}
    for path in ("iris", "Iris.zeros", "Iris.heap_bases", "gluon.IrisDeviceCtx.put", "DeviceContext.atomic_cas", "put",
                 "ccl.all_gather", "bench.State.exec", "host.tracing.events.TraceEvent", "Iris.free"):  # fmt: skip
        assert path in names
    assert importlib.import_module("iris_under_test").load.__name__ == "load"
