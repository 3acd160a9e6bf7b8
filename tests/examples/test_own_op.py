"""docs/own-op.md: its two files, in a folder of their own, run an op of another library, and find what is wrong."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.tables import SUITE
from harness import evidence
from harness.evidence import Verdict, read_table
from reports import render_html
from tests import python
from tests.examples.programs import ROOT

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs" / "own-op.md"
RIGHT, WRONG = "mask=offsets < n)", "mask=offsets < n - (n > 7))"
"""The planted fault: the last element of more than seven stays behind."""


def write(folder: Path, library: str = "their_lib", wrong: bool = False) -> Path:
    """The page's files, as its reader would have them."""
    package, test = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    table = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    assert RIGHT in package
    (folder / library).mkdir(parents=True)
    (folder / library / "__init__.py").write_text(package.replace(RIGHT, WRONG) if wrong else package)
    (folder / "requirements.toml").write_text(table)
    (folder / "test_my_op.py").write_text(test)
    return folder


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "fixtures.plugin", "-p", "no:cacheprovider", *arguments]
    return python.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=300)


OPTIONS = ("--implementation", "their_lib", "--ranks", "2", "--level", "ci", "--evidence", "out/evidence.jsonl")


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["prepend", "importlib"])
def test_a_right_op_passes_and_the_run_is_complete(tmp_path: Path, mode: str) -> None:
    write(tmp_path)
    options = [*OPTIONS, "--ranks", "4,1,2,8"] if mode == "prepend" else OPTIONS
    done = run(tmp_path, *options, f"--import-mode={mode}", "test_my_op.py")
    assert done.returncode == 0, done.stdout + done.stderr
    actual = evidence.read(tmp_path / "out" / "evidence.jsonl")
    assert actual.problems == [] and actual.verdict() is Verdict.PASS
    assert list(actual.statements) == ["MINE-ROTATE-001"]
    assert {case.case["type"] for case in actual.cases} == {"RotateCase"}
    assert {case.case["data"]["block"] for case in actual.cases} == {64, 256}
    if mode == "prepend":
        assert "complete: the one requirement of requirements.toml was planned" in done.stdout
        assert "These are requirements of requirements.toml, not of the suite" in render_html(actual)


@pytest.mark.nightly
def test_a_wrong_op_is_found_reduced_and_repeated_from_anywhere(tmp_path: Path) -> None:
    folder = write(tmp_path / "theirs", wrong=True)
    (folder / "conftest.py").write_text('pytest_plugins = ["fixtures.plugin"]\n')
    done = run(folder, *OPTIONS, "test_my_op.py", "-k", "64")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "reduced case" in done.stdout and "RotateCase(n=8) with block=64" in done.stdout, done.stdout
    assert re.search(r"first wrong element: rank \d, output, index 7", done.stdout), done.stdout
    repeat = re.search(r"^repeat: (.*)$", done.stdout, re.MULTILINE)
    assert repeat is not None, done.stdout
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    again = subprocess.run(
        ["bash", "-c", repeat[1]],
        cwd=elsewhere,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert again.returncode == 1, again.stdout + again.stderr
    assert "after 1 executed: RotateCase(n=8) with block=64" in again.stdout, again.stdout
    [file] = (folder / "out" / "cases").glob(f"{_id_of(repeat[1])}.json")
    refused = python.run([sys.executable, "-m", "command_line", "replay", str(file)], cwd=ROOT, timeout=120)
    assert refused.returncode == 2 and "is not a test of the suite" in refused.stderr, refused.stderr


EXAMPLE = ROOT / "examples" / "own_op"


def example(tmp_path: Path, right: str = "", wrong: str = "") -> Path:
    """Copy the example to a folder outside the repository, with ``right`` in its library replaced by ``wrong``."""
    folder = tmp_path / "copied"
    shutil.copytree(EXAMPLE, folder)
    source = (folder / "dispatch.py").read_text()
    assert right in source
    (folder / "dispatch.py").write_text(source.replace(right, wrong))
    return folder


def shell(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line of the page as a reader with an installed package would."""
    words = [word for each in shlex.split(line) for word in COMMANDS.get(each, [each])]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    return python.run(words, cwd=folder, env=variables, timeout=300)


COMMANDS = {"python": [sys.executable], "iris-harness": [sys.executable, "-m", "command_line"]}


def lines_of_the_page() -> list[str]:
    _, _, text = PAGE.read_text(encoding="utf-8").partition("## A complete example")
    return [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]


@pytest.mark.nightly
def test_the_complete_example_runs_as_the_page_says(tmp_path: Path) -> None:
    folder = example(tmp_path)
    tests, report, on_the_machine = lines_of_the_page()
    done = shell(folder, f"{tests} --level ci")
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr
    done = shell(folder, report)
    assert done.returncode == 3 and "All 2 requirements of this run passed" in " ".join(done.stdout.split()), (
        done.stdout
    )
    assert (folder / "out" / "report.html").exists()
    done = shell(folder, f"{on_the_machine} --level ci")
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("right", "wrong", "verdict"),
    [
        pytest.param(
            "mask=lane < width)",
            "mask=lane < width - 1)",
            r"tokens=1, width=1, [^$]*verdict: rank \d, received",
            marks=pytest.mark.nightly,
        ),
        (", num_warps=1", "", r"MOE-WIDTH-001[^$]*remote store accesses are 1 x 4 bytes wide, wanted 16 only"),
    ],
)  # fmt: skip
def test_the_bugs_of_the_page_are_found(tmp_path: Path, right: str, wrong: str, verdict: str) -> None:
    folder = example(tmp_path, right, wrong)
    table = (folder / "requirements.toml").rename(tmp_path / "elsewhere.toml")
    done = shell(folder, f"{lines_of_the_page()[0]} --level ci --requirements {table}")
    assert done.returncode == 1 and re.search(verdict, done.stdout), done.stdout + done.stderr
    repeat = re.search(r"^repeat: (.*)$", done.stdout, re.MULTILINE)
    assert repeat is not None and f"--requirements {table}" in repeat[1]
    again = subprocess.run(["bash", "-c", repeat[1]], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 1, again.stdout + again.stderr


def test_a_table_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = shell(example(tmp_path), f"{lines_of_the_page()[0]} --requirements no/such.toml")
    assert done.returncode == 4 and "--requirements: expected a file" in done.stderr, done.stderr
    assert "no/such.toml" in done.stderr


def _id_of(command: str) -> str:
    actual = re.search(r"([0-9a-f]{16})\.json", command)
    assert actual is not None
    return actual[1]


def test_an_id_of_the_suite_is_refused_in_one_line(tmp_path: Path) -> None:
    write(tmp_path)
    table = tmp_path / "requirements.toml"
    table.write_text(table.read_text() + table.read_text().replace("MINE-ROTATE-001", "RMA-PUT-002"))
    done = run(tmp_path, *OPTIONS, "test_my_op.py")
    assert done.returncode == 4, done.stdout + done.stderr
    [line] = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("ERROR: ")]
    assert "RMA-PUT-002 is in requirements.toml and in conformance/requirements.toml" in line
    assert not (tmp_path / "out" / "evidence.jsonl").exists()


@pytest.mark.nightly
def test_an_unknown_id_an_unknown_case_and_a_package_without_iris_are_one_line(tmp_path: Path) -> None:
    write(tmp_path)
    table = tmp_path / "requirements.toml"
    table.write_text(table.read_text().replace("MINE-ROTATE-001", "MINE-OTHER-001"))
    case = tmp_path / "case.json"
    case.write_text(json.dumps({"case": {"type": "NoSuchCase", "fields": {}}}))
    unknown = run(tmp_path, *OPTIONS, "test_my_op.py")
    write(tmp_path / "known")
    replayed = run(tmp_path / "known", *OPTIONS, "--replay", str(case), "test_my_op.py")
    without = run(tmp_path / "known", "--implementation", "json", "--ranks", "2", "test_my_op.py")
    for done, says in (
        (unknown, "MINE-ROTATE-001, which requirements.toml does not have, nor does the suite"),
        (replayed, "unknown case type 'NoSuchCase'"),
        (without, "it has no json.iris; expected a package with PACKAGE.iris, as"),
    ):
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("ERROR: ")]
        assert done.returncode == 4 and len(lines) == 1 and says in lines[0], done.stdout + done.stderr


@pytest.mark.nightly
def test_a_table_serves_the_folders_below_it_up_to_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    write(tmp_path / "one" / "deep")
    (tmp_path / "one" / "deep" / "requirements.toml").rename(tmp_path / "one" / "requirements.toml")
    text = (tmp_path / "one" / "requirements.toml").read_text()
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "requirements.toml").write_text(text.replace("MINE-ROTATE-001", "MINE-TWO-001"))
    test = (tmp_path / "one" / "deep" / "test_my_op.py").read_text()
    other = test.replace("MINE-ROTATE-001", "MINE-TWO-001").replace("RotateCase", "TurnCase")
    (tmp_path / "two" / "test_other.py").write_text(other)
    put = 'from fixtures.requirement import requirement\n\n@requirement("RMA-PUT-001", cases=lambda ranks: [1])\n'
    (tmp_path / "two" / "test_put.py").write_text(f"{put}def test_put(check, case):\n    pass\n")
    options = ("-p", "tests.fixtures.plan_only", "--ranks", "2", "--evidence", "evidence.jsonl")
    run(tmp_path, *options, "one", "two/test_other.py")
    actual = evidence.read(tmp_path / "evidence.jsonl")
    assert {name: each.table for name, each in actual.statements.items()} == {
        "MINE-ROTATE-001": "one/requirements.toml",
        "MINE-TWO-001": "two/requirements.toml",
    }
    (tmp_path / "evidence.jsonl").unlink()
    done = run(tmp_path, *options, "two")
    mixed = evidence.read(tmp_path / "evidence.jsonl")
    assert {name for name in read_table(SUITE) if name.startswith(("RMA", "CCL"))} < set(mixed.statements)
    assert mixed.statements["RMA-PUT-001"].table is None, "the suite is in use"
    assert not any("that the suite does not have" in problem for problem in mixed.problems)
    assert "partial: 2 of" in done.stdout and "ATOMIC-ADD-001" in mixed.left_out
    table = tmp_path / "two" / "requirements.toml"
    table.write_text(text)
    twice = run(tmp_path, *options[:-2], "one", "two/test_other.py")
    assert twice.returncode == 4 and "MINE-ROTATE-001 is in two/requirements.toml and in one/" in (
        twice.stdout + twice.stderr
    ), twice.stdout + twice.stderr
