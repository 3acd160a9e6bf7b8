"""The commands and the snippet of docs/bench.md are run as they stand there, those for GPUs made small and emulated."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli import bench

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs/bench.md").read_text(encoding="utf-8")
SMALL = ["--device", "emulated", "--ranks", "2", "--sizes", "4KiB", "--cus", "2", "--repeat", "1"]


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


COMMANDS = [line for block in blocks("sh") for line in block.splitlines()]


def run(arguments, folder):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_guide_has_commands():
    assert len(COMMANDS) == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_command_and_snippet(command, tmp_path):
    first, *arguments = shlex.split(command)
    assert first == "iris-harness"
    # Of an option that is given twice the last one counts.
    shown = run(["-m", "harness", *arguments, *([] if "emulated" in command else SMALL)], tmp_path)
    assert "all_gather" in shown
    [snippet] = blocks("python")
    lines = run(["-c", snippet], tmp_path).splitlines()
    cells = lines[0].split()
    assert cells[:2] == ["4", "KiB"]
    assert all(" ok " in line for line in lines)
    backends = arguments[arguments.index("--backends") + 1].split(",")
    assert {line.split()[2] for line in lines} == set(backends)


def test_every_option_is_explained():
    options = {name for parameter in bench.params for name in parameter.opts if name.startswith("--")}
    told = set(re.findall(r"`(--[a-z]+)`", GUIDE))
    assert options == told


def test_the_files_are_those_that_are_written():
    from harness.bench.writing import CSV, EARLIER, JSON

    for name in (JSON, CSV, f"{EARLIER}/DATE"):
        assert f"`{name}`" in GUIDE


def test_the_page_names_no_machine():
    assert not re.search(r"/(work|opt|root|tmp|home)/|https?://", GUIDE)
