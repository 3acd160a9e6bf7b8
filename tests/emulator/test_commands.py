"""``python -m harness.emulator trace``: the timeline of a script, and bad input in one line."""

import json

import pytest

from harness import emulator
from harness.emulator.__main__ import main

SCRIPT = """
import sys
import torch
from tests.emulator.watch import race_kernels as kernels
{activate}
out = torch.zeros(512, dtype=torch.int32)
kernels.blocks[(4,)](out, 512, 128, int(sys.argv[1]))
print(sys.argv, __name__, out.sum().item())
{end}
"""


@pytest.fixture(autouse=True)
def _no_driver_left():
    yield
    emulator.deactivate()


@pytest.fixture
def script(tmp_path):
    def write(activate: str = "", end: str = ""):
        path = tmp_path / "script.py"
        path.write_text(SCRIPT.format(activate=activate, end=end))
        return str(path)

    return write


def status(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    return end.value.code


@pytest.fixture
def timeline(tmp_path):
    """The options of ``trace`` that name its file."""
    return ["--output", str(tmp_path / "run.json")]


def test_a_script_gets_its_arguments(script, timeline, capfd):
    path = script()
    assert status("trace", "--seed", "2", *timeline, path, "0", "--not-ours") == 0
    assert capfd.readouterr().out.startswith(f"['{path}', '0', '--not-ours'] __main__ {sum(range(512))}\n")


def test_a_script_that_activates_the_device_itself_is_traced(script, timeline, capfd):
    path = script("from harness import emulator; driver = emulator.activate('gfx950')", "print(driver.arch)")
    assert status("trace", *timeline, path, "0") == 0
    out = capfd.readouterr().out
    assert "\ngfx950\n" in out and "1 launches" in out


def test_the_arch_is_an_option(script, timeline, capfd):
    path = script(end="import triton; print(triton.runtime.driver.active.arch)")
    assert status("trace", *timeline, "--arch", "gfx950", path, "0") == 0
    assert "\ngfx950\n" in capfd.readouterr().out


@pytest.mark.parametrize(("end", "expected"), [("sys.exit(3)", 3), ("sys.exit()", 0), ("sys.exit('why')", 1)])
def test_the_scripts_exit_status(script, timeline, capfd, end, expected):
    assert status("trace", *timeline, script(end=end), "0") == expected
    assert ("why" in capfd.readouterr().err) == ("why" in end)


def test_trace_writes_the_timeline_and_the_heat_map(script, capfd, tmp_path):
    files = [str(tmp_path / name) for name in ("run.json", "heat.html")]
    assert status("trace", "--output", files[0], "--heat-map", files[1], script(), "0") == 0
    assert "1 launches" in capfd.readouterr().out
    kernel = [e for e in json.loads((tmp_path / "run.json").read_text())["traceEvents"] if e["name"] == "blocks"]
    assert len(kernel) == 1
    assert "argument out" in (tmp_path / "heat.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["trace", "--output", "run.json"], "Missing argument 'SCRIPT'"),
        (["trace", "--output", "run.json", "nowhere.py"], "'nowhere.py' does not exist"),
        (["trace", "--output", "run.json", "--seed", "x", "SCRIPT"], "'x' is not a valid integer"),
        (["trace", "--output", "run.json", "--arch", "gfx90a", "SCRIPT"], "'gfx90a' is not one of"),
        (["trace", "SCRIPT"], "Missing option '--output'"),
        (["trace", "--output", "/no/folder/run.json", "SCRIPT"], "there is no folder /no/folder"),
        (["trace", "--output", "run.json", "--wavefronts", "0", "SCRIPT"], "0 is not in the range"),
        (["walk"], "No such command 'walk'"),
    ],
)
def test_bad_input_is_one_line_and_status_2(script, capfd, arguments, expected):
    path = script()
    assert status(*(path if argument == "SCRIPT" else argument for argument in arguments)) == 2
    err = capfd.readouterr().err
    assert expected in err and err.count("\n") == 1
