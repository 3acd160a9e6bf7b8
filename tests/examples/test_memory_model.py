"""Each pattern of the memory model's example has the outcome that the guide states."""

import sys

import pytest

from examples import memory_model
from harness import emulator
from harness.emulator.driver.explore import FAILS, HOLDS, Verdict
from tests.examples.programs import ROOT

GUIDE = (ROOT / "docs/memory-model.md").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _no_driver_left():
    yield
    emulator.deactivate()


@pytest.mark.long
@pytest.mark.parametrize("pattern", memory_model.PATTERNS, ids=lambda pattern: pattern.name)
def test_pattern(pattern):
    verdict = memory_model.judge(pattern)
    assert pattern.admits(verdict), str(verdict)
    if verdict.outcome != HOLDS:
        assert verdict.story


def test_an_older_triton_may_break_what_holds_and_must_break_what_fails(monkeypatch):
    holding, failing = (memory_model.Pattern("", outcome, print) for outcome in (HOLDS, FAILS))
    for releases in (True, False):
        monkeypatch.setattr(memory_model, "RELEASES", releases)
        assert holding.admits(Verdict(HOLDS, 1)) and failing.admits(Verdict(FAILS, 1))
        assert not failing.admits(Verdict(HOLDS, 1))
        assert holding.admits(Verdict(FAILS, 1)) is not releases


def test_a_surprise_is_an_exit_status(monkeypatch, capsys):
    [right] = [pattern for pattern in memory_model.PATTERNS if pattern.name == "message"]
    surprising = memory_model.Pattern("message", FAILS, right.program)
    monkeypatch.setattr(memory_model, "PATTERNS", [surprising])
    monkeypatch.setattr(memory_model, "SEEDS", 2)
    monkeypatch.setattr(sys, "argv", ["memory_model.py", "--only", "message", "--story"])
    assert memory_model.main() == 1
    assert HOLDS in capsys.readouterr().out


def test_the_guide_tells_every_pattern_and_its_outcome():
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in GUIDE.splitlines() if line.startswith("| `")]
    reported = {row[0].strip("`"): row[-1] for row in rows}
    assert reported == {pattern.name: pattern.outcome for pattern in memory_model.PATTERNS}
