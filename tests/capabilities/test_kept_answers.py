"""Answers about the bundled library come from disk, and never from a file that may be wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures.capabilities import kept_answers
from fixtures.implementation import BUNDLED
from harness import kept

NAMES = ["get", "put"]
ANSWERS = {"get": ("missing", ""), "put": ("present", "(pointer, value)")}


class Probe:
    """Stands for the child process; ``calls`` counts its starts, and ``names`` are those of the last one."""

    def __init__(self, answers: dict[str, tuple[str, str]]) -> None:
        self.answers = answers
        self.calls = 0
        self.names: list[str] = []

    def __call__(self, names: list[str]) -> dict[str, tuple[str, str]]:
        self.calls += 1
        self.names = names
        return {name: answer for name, answer in self.answers.items() if name in names}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of Triton's cache, which is empty."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    return tmp_path


def answered(probe: Probe, package: str = BUNDLED, names: list[str] = NAMES) -> int:
    """Request the answers twice, and return the number of times that the probe was started."""
    before = probe.calls
    for _ in range(2):
        assert kept_answers.of(package, names, None, probe) == probe.answers
    return probe.calls - before


def test_the_second_run_reads_them() -> None:
    probe = Probe(ANSWERS)
    assert answered(probe) == 1
    assert answered(probe) == 0


def test_runs_that_need_other_names_share_one_file(cache: Path) -> None:
    probe = Probe({**ANSWERS, "add": ("present", ""), "new": ("unknown", "an instance cannot be made")})
    for names, started in ((["put"], 1), (["get"], 1), (["get", "put"], 0), (["put"], 0), (["add", "get"], 1)):
        before = probe.calls
        answers = kept_answers.of(BUNDLED, names, None, probe)
        assert answers == {name: probe.answers[name] for name in names} and probe.calls - before == started, names
    assert probe.names == ["add", "get", "put"] and len(list(cache.rglob("*.json"))) == 1
    assert kept_answers.of(BUNDLED, ["new"], None, probe) == {"new": probe.answers["new"]}
    assert kept_answers.of(BUNDLED, ["add"], None, probe) == {"add": ("present", "")} and probe.calls == 4
    probe.answers["add"] = ("missing", "")
    kept_answers.of(BUNDLED, ["add"], ("emulated", "gfx950", "fast"), probe)
    assert probe.calls == 5, "another device"


def test_they_belong_to_one_version_of_library_packages_and_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    probe = Probe(ANSWERS)
    answered(probe)
    monkeypatch.setenv("TRITON_DEBUG", "1")
    assert answered(probe) == 1
    monkeypatch.setattr(kept_answers.importlib.metadata, "version", lambda name: "2.0")
    assert answered(probe) == 1
    monkeypatch.setattr(kept, "sources_hash", lambda folder: "other sources")
    assert answered(probe) == 1


def test_a_file_that_is_damaged_or_has_other_content_is_not_used(cache: Path) -> None:
    probe = Probe(ANSWERS)
    answered(probe)
    (file,) = cache.rglob("*.json")
    file.write_bytes(file.read_bytes().replace(b"missing", b"present"))
    assert answered(probe) == 1
    for other in (
        [],
        7,
        {"get": ["present", ""]},
        {"get": ["present", ""], "put": 7},
        {**ANSWERS, "put": ["yes", ""]},
        {**ANSWERS, "put": ["present", 1]},
    ):
        kept.write(file, json.dumps(other).encode())
        assert answered(probe) == 1, other


def test_failures_and_other_libraries_are_not_kept() -> None:
    assert answered(Probe({**ANSWERS, "put": ("unknown", "an instance cannot be made")})) == 2
    assert answered(Probe({})) == 2
    assert answered(Probe(ANSWERS), package="tests.published_iris") == 2
