"""``python -m harness.telemetry``: what telemetry there is, for a person who sets a machine up."""

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("pynvml", reason="needs the package nvidia-ml-py")

from harness.devices import inventory
from harness.errors import UsageError
from harness.telemetry import FIELDS
from harness.telemetry.__main__ import main
from harness.telemetry.nvml_source import NvmlSource
from tests.telemetry import nvml
from tests.telemetry.standin import needs_compiler

pytestmark = needs_compiler
SHORT = ["--device", "cuda", "--seconds", "1"]


@pytest.fixture(autouse=True)
def one_gpu(monkeypatch):
    gpus = (SimpleNamespace(uuid=nvml.uuid(0), bus_id=nvml.bus_id(0)),)
    monkeypatch.setattr(inventory, "visible", lambda device: gpus)


def test_every_field_is_told_with_a_value_or_a_reason(nvml_script, capsys):
    assert main(SHORT) == 0
    said = capsys.readouterr().out
    told = {line.split()[0]: " ".join(line.split()[1:]) for line in said.splitlines() if line.startswith("  ")}
    assert set(NvmlSource.fields) <= set(told)
    assert told["power"] == "300 to 300 W"
    assert told["link_ecc_errors"] == "unavailable: Not Supported (NVML error 3)"
    assert told["throttle_thermal"] == "off"
    assert told["ecc_corrected"] == "+0"
    assert set(told) - {"samples"} <= set(FIELDS)


def test_all_of_it_as_json(nvml_script, capsys):
    assert main([*SHORT, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["hardware"]["driver"] == {"version": "580.0"}
    assert said["gpus"][nvml.uuid(0)]["gauges"]["power"] == [300.0, 300.0]


def test_no_telemetry_is_status_1_with_the_reason(nvml_script, capsys):
    nvml_script.say("nvmlInitWithFlags", 9)
    nvml_script.write()
    assert main(SHORT) == 1
    assert "unavailable: nvml: nvmlInit: Driver Not Loaded" in capsys.readouterr().out


def test_no_gpu_is_one_line_and_status_2(monkeypatch, capsys):
    def none(device):
        raise UsageError("there is no NVIDIA driver")

    monkeypatch.setattr(inventory, "visible", none)
    assert main(SHORT) == 2
    assert capsys.readouterr().err == "python -m harness.telemetry: there is no NVIDIA driver\n"


@pytest.mark.parametrize("wrong", [["--rate", "0"], ["--seconds", "-1"], ["--device", "emulated"]])
def test_bad_input_is_refused(wrong, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*SHORT, *wrong])
    assert ended.value.code == 2
