"""Records of ranks, and the command that makes the map of them."""

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from command_line.commands import reach as command
from command_line.commands.reach import calls_of
from command_line.gate import reach
from command_line.gate.units import Sources
from command_line.suite.process import conformance_folder
from fixtures.reach_rank import Recorder
from harness.evidence import read_table
from tests import python

ROOT = Path(__file__).resolve().parents[2]
CONTEXT = "iris_under_test/device/gluon/context.py"
HASH = "iris_under_test/device/cache_key.py:SourceHash.__get__"


@pytest.fixture
def recorder(tmp_path):
    """A recorder of functions in a folder, and a module there."""
    (tmp_path / "own.py").write_text("def outer():\n    return inner()\n\n\ndef inner():\n    return 1\n")
    code = compile((tmp_path / "own.py").read_text(), str(tmp_path / "own.py"), "exec")
    names = {}
    exec(code, names)
    recording = Recorder(str(tmp_path))
    before = sys.gettrace()
    yield recording, names
    sys.settrace(before)


def test_calls_of_functions_in_the_folder_are_recorded_once(recorder, tmp_path):
    recording, names = recorder
    recording.start()
    names["outer"]()
    json.dumps([1])
    assert recording.drain() == [f"{tmp_path}/own.py:1", f"{tmp_path}/own.py:5"]
    names["inner"]()
    assert recording.drain() == []


def test_a_launch_records_the_kernel_and_what_it_is_passed(recorder):
    recording, names = recorder

    class Jitted:
        def __init__(self, function):
            self.fn = function

    recording.launched(Jitted(names["outer"]), (Path, 3, "text"), Jitted(Jitted(names["inner"])))
    assert [place.rpartition("/")[2] for place in recording.drain()] == ["own.py:1", "pathlib.py:Path", "own.py:5"]


def test_the_map_of_the_bundled_library_has_every_requirement_that_its_device_can_run():
    known = reach.read(reach.BUNDLED)
    table = read_table(conformance_folder() / "requirements.toml")
    assert known.run["level"] == "gate"
    assert not set(known.requirements) - set(table), "record the map again: iris-harness reach --level gate"
    assert len(known.requirements) > 0.8 * len(table)
    assert [name for name, one in known.requirements.items() if one.problem] == []


@pytest.mark.parametrize(
    ("requirement", "reached", "not_reached"),
    [
        ("RMA-PUT-001", f"{CONTEXT}:IrisDeviceCtx.put", f"{CONTEXT}:IrisDeviceCtx.get"),
        ("RMA-GET-001", f"{CONTEXT}:IrisDeviceCtx.get", f"{CONTEXT}:IrisDeviceCtx.put"),
        ("RMA-PUT-003", "iris_under_test/device/triton/ops.py:put", "iris_under_test/device/triton/ops.py:get"),
        ("CCL-ALLREDUCE-001", "iris_under_test/kernels/all_reduce.py:ring_triton", f"{CONTEXT}:IrisDeviceCtx.put"),
        ("ISA-CONTRACT-001", HASH, "iris_under_test/bench/__init__.py:State"),
        ("RMA-PUT-001", "iris_under_test/host/iris.py:Iris", "iris_under_test/ccl/call.py:run"),
    ],
)  # fmt: skip
def test_the_map_of_the_bundled_library_separates_operations(requirement, reached, not_reached):
    known = reach.read(reach.BUNDLED)
    units = known.requirements[requirement].units
    assert reached in known.units
    assert not_reached in known.units
    assert reached in units
    assert not_reached not in units


@pytest.mark.nightly
def test_a_recording_on_ranks(tmp_path):
    """Record the second of two requirements; no kernel is compiled."""
    raw = tmp_path / "reach.jsonl"
    options = ["-p", "fixtures.reach", "-p", "fixtures.selection", "--requirement", "RMA-PUT-001", "--requirement"]
    options += [
        "HOST-BARRIER-001",
        "--reach",
        str(raw),
        "--reach-part",
        "2/2",
        "--ranks",
        "2",
        "--level",
        "ci",
        "--evidence",
        str(tmp_path / "e.jsonl"),
    ]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    done = python.run(
        [sys.executable, "-m", "pytest", "conformance", "-q", *options], cwd=ROOT, env=environment, timeout=600
    )
    lines = [json.loads(line) for line in raw.read_text().splitlines()]
    assert lines[-1] == {"end": True}, done.stdout
    assert not list((tmp_path / "cache").rglob("*.amdgcn"))
    run = {"level": "ci", "arch": "gfx942", "triton": "1", "harness": "0"}
    suite = conformance_folder()
    known = reach.made(lines, {}, "iris_under_test", ROOT / "iris_under_test", suite, run)
    assert list(known.requirements) == ["RMA-PUT-001"]  # the other part has the barrier
    put = known.requirements["RMA-PUT-001"]
    assert put.problem == ""
    assert f"{CONTEXT}:IrisDeviceCtx.put" in put.units
    assert f"{CONTEXT}:IrisDeviceCtx.get" not in put.units
    assert "conformance/rma/test_put.py" in put.suite
    assert known.units == Sources(ROOT / "iris_under_test").digests()


@pytest.mark.slow
def test_calls_of_the_catalogue(monkeypatch):
    from conformance.isa import catalogue

    chosen = {name: catalogue.CALLS[name] for name in ("put gluon", "all_reduce ring triton")}
    monkeypatch.setattr(catalogue, "CALLS", chosen)
    reached = calls_of("iris_under_test")
    assert {name: problem for name, (_, problem) in reached.items()} == dict.fromkeys(chosen, "")
    assert any(place.endswith("context.py:IrisDeviceCtx") for place in reached["put gluon"][0])
    assert not any(place.endswith("context.py:IrisDeviceCtx") for place in reached["all_reduce ring triton"][0])


def test_progress_counts_what_the_parts_have_recorded(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "INTERVAL", 0.0)
    parts = [SimpleNamespace(raw=tmp_path / f"{number}.jsonl") for number in range(3)]
    with command._progress(parts) as look:
        look()  # no file exists yet
        for part in parts[:2]:
            part.raw.write_text('{"requirement": "A"}\n{"requirement": "B"}\n{"end": true}\n{"requi', "utf-8")
        look()
        with parts[0].raw.open("a") as file:
            file.write('rement": "C"}\n')
        look()
    assert capsys.readouterr().err.splitlines() == [
        "iris-harness: recorded 0 cases of 0 requirements",
        "iris-harness: recorded 4 cases of 2 requirements",
        "iris-harness: recorded 5 cases of 3 requirements",
    ]
