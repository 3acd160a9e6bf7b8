"""``iris-harness capabilities``: the table, what a declaration changes in it, and the exit status."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from command_line.commands.capabilities import command
from command_line.main import run
from tests.capabilities.libraries import write


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    return tmp_path


def called(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments, standalone_mode=False, catch_exceptions=False)


@pytest.mark.slow
def test_what_is_missing_is_listed_with_what_needs_it(folder: Path) -> None:
    done = called("--implementation", write(folder))
    assert done.return_value == 0
    [row] = [line for line in done.output.splitlines() if line.startswith("ccl.send ")]
    assert row.split()[:3] == ["ccl.send", "missing", "CCL-MESSAGE-001,"]
    assert not any(line.startswith("put ") for line in done.output.splitlines()), "it is there"
    assert "small_iris: " in done.output and " capabilities present, " in done.output
    everything = called("--implementation", "small_iris", "--all").output
    assert any(line.startswith("put ") and "present" in line for line in everything.splitlines())


@pytest.mark.slow
def test_a_wrong_declaration_is_named_and_has_status_1(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, declared='format = 1\noffers = ["put", "get"]\n')
    assert run(["capabilities", "--implementation", "small_iris"]) == 1
    assert "iris-harness: iris_capabilities.toml declares get, which is not there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("--implementation", "no_such_iris"), "no package 'no_such_iris' can be imported"),
        (("--adapter", "none"), "no adapter 'none'"),
        (("--device", "tpu"), "tpu"),
        (("--provider", "my_heaps"), "--provider: expected MODULE:FACTORY"),
    ],
)
def test_a_wrong_request_is_one_line(
    arguments: tuple[str, ...], wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["capabilities", *arguments]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert wanted in line


def test_a_level_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["certify", "--api", "all"]) == 2
    assert "--api: expected published or extended, got 'all'" in capsys.readouterr().err
