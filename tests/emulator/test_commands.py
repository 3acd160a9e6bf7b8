"""``python -m harness.emulator run`` and ``trace``: scripts under a watched mode, and bad input in one line."""

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


@pytest.mark.parametrize("mode", ["fast", "check", "weak", "race", "trace"])
def test_a_script_runs_in_every_mode(script, capfd, mode):
    path = script()
    seed = [] if mode == "fast" else ["--seed", "2"]
    assert status("run", "--mode", mode, *seed, path, "0", "--not-ours") == 0
    assert capfd.readouterr().out == f"['{path}', '0', '--not-ours'] __main__ {sum(range(512))}\n"


def test_a_fault_is_told_and_is_status_1(script, capfd):
    assert status("run", "--mode", "race", script(), "1") == 1
    out, err = capfd.readouterr()
    assert out == "" and err.startswith("DataRace: data race on 4 bytes")
    assert "Traceback" not in err


def test_a_script_that_activates_the_device_itself_is_watched(script, capfd):
    path = script("from harness import emulator; driver = emulator.activate('gfx950')", "print(driver.arch)")
    assert status("run", "--mode", "race", path, "0") == 0
    assert capfd.readouterr().out.endswith("gfx950\n")
    assert status("run", "--mode", "race", path, "1") == 1


def test_the_arch_is_an_option(script, capfd):
    path = script(end="import triton; print(triton.runtime.driver.active.arch)")
    assert status("run", "--arch", "gfx950", path, "0") == 0
    assert capfd.readouterr().out.endswith("gfx950\n")


@pytest.mark.parametrize(("end", "expected"), [("sys.exit(3)", 3), ("sys.exit()", 0), ("sys.exit('why')", 1)])
def test_the_scripts_exit_status(script, capfd, end, expected):
    assert status("run", script(end=end), "0") == expected
    assert ("why" in capfd.readouterr().err) == ("why" in end)


def test_what_relies_on_unspecified_behaviour_is_noted(tmp_path, capfd):
    path = tmp_path / "script.py"
    path.write_text(
        "import torch\nfrom harness import emulator\nfrom tests.emulator.watch import race_kernels as kernels\n"
        "data, flag = torch.zeros(3, 128, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)\n"
        "with emulator.together(emulator.activate()) as ranks:\n"
        "    with ranks.rank(0):\n"
        "        kernels.put[(1,)](data[0], data[1], flag, 128, 'release', 'sys', False)\n"
        "    with ranks.rank(1):\n"
        "        kernels.get[(1,)](data[1], flag, data[2], 128, 'acquire', 'sys')\n"
    )
    assert status("run", "--mode", "race", str(path)) == 0
    assert "note: data race" in (err := capfd.readouterr().err) and "relies on unspecified behaviour" in err


def test_trace_writes_the_timeline_and_the_heat_map(script, capfd, tmp_path):
    files = [str(tmp_path / name) for name in ("run.json", "heat.html")]
    assert status("trace", "--output", files[0], "--heat-map", files[1], script(), "0") == 0
    assert "1 launches" in capfd.readouterr().out
    kernel = [e for e in json.loads((tmp_path / "run.json").read_text())["traceEvents"] if e["name"] == "blocks"]
    assert len(kernel) == 1
    assert "argument out" in (tmp_path / "heat.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["run"], "Missing argument 'SCRIPT'"),
        (["run", "nowhere.py"], "'nowhere.py' does not exist"),
        (["run", "--mode", "slow", "SCRIPT"], "'slow' is not one of"),
        (["run", "--mode", "fast", "--seed", "1", "SCRIPT"], "mode fast takes no seed"),
        (["run", "--seed", "x", "SCRIPT"], "'x' is not a valid integer"),
        (["run", "--arch", "gfx90a", "SCRIPT"], "'gfx90a' is not one of"),
        (["trace", "SCRIPT"], "Missing option '--output'"),
        (["trace", "--output", "/no/folder/run.json", "SCRIPT"], "there is no folder /no/folder"),
        (["trace", "--output", "run.json", "--wavefronts", "0", "SCRIPT"], "0 is not in the range"),
        (["walk"], "No such command 'walk'"),
    ],
)
def test_bad_input_is_one_line_and_status_2(script, capfd, arguments, what):
    path = script()
    assert status(*(path if argument == "SCRIPT" else argument for argument in arguments)) == 2
    err = capfd.readouterr().err
    assert what in err and err.count("\n") == 1
