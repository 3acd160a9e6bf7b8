"""The commands and the snippet of docs/bench.md are run as they stand there, those for GPUs made small and emulated."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness.bench.ops import OPS
from harness.bench.run import HOPELESS
from harness.cli import bench
from harness.commands.bench import check_requests

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs/bench.md").read_text(encoding="utf-8")
SMALL = ["--sizes", "4KiB", "--repeat", "1"]  # of an option that is given twice the last one counts


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
    assert len(COMMANDS) == 4


def test_the_emulated_command_and_the_snippet(tmp_path):
    [command] = [command for command in COMMANDS if "emulated" in command]
    first, *arguments = shlex.split(command)
    assert first == "iris-harness"
    shown = run(["-m", "harness", *arguments, *SMALL], tmp_path)
    assert "all_gather" in shown
    [snippet] = blocks("python")
    lines = run(["-c", snippet], tmp_path).splitlines()
    assert lines[0].split()[:2] == ["4", "KiB"]
    assert all(" ok " in line for line in lines)
    assert {line.split()[2] for line in lines} == {"nccl", "gluon"}


@pytest.mark.parametrize("command", [command for command in COMMANDS if "emulated" not in command])
def test_the_commands_for_gpus_are_understood(command, tmp_path):
    """As far as that goes without one: made small and emulated they ask for the cells that the guide tells of."""
    first, name, *arguments = shlex.split(command)
    assert (first, name) == ("iris-harness", "bench")
    asked = bench.make_context(name, list(arguments)).params
    backends = asked["backends"].replace("nccl-ctas,", "")
    asked |= {"device": "emulated", "ranks": 2, "sizes": "4KiB", "backends": backends}
    if asked["tune"]:
        asked["tune"] = tmp_path / asked["tune"]
    del asked["output"]
    requests = check_requests(**asked)
    assert [request.op for request in requests] == (list(OPS) if "all" in arguments else ["all_gather"])
    for request in requests:
        ours = [cell for cell in request.cells(4096) if cell.backend == "gluon"]
        assert bool(asked["tune"]) == all(cell.fields for cell in ours)
        assert len(ours) == (12 if asked["cus"] else len(ours))


def test_what_the_guide_says_of_calls_and_candidates():
    assert "(fp16: 13 on 4 ranks, 8 on 8)" in GUIDE
    assert [OPS["all_reduce"].most_calls(ranks, "fp16") for ranks in (4, 8)] == [13, 8]
    assert HOPELESS == 1.25
    for op in OPS:
        assert f"| `{op}` |" in GUIDE


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
