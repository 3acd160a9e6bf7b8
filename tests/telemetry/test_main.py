"""``python -m harness.devices.telemetry``, which shows the available telemetry to a person who sets up a machine."""

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("pynvml", reason="needs the package nvidia-ml-py")

from harness.devices import inventory
from harness.devices.telemetry import main
from harness.errors import UsageError
from harness.telemetry import FIELDS
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
    output = capsys.readouterr().out
    fields = {line.split()[0]: " ".join(line.split()[1:]) for line in output.splitlines() if line.startswith("  ")}
    assert set(NvmlSource.fields) <= set(fields)
    assert fields["power"] == "300 to 300 W"
    assert fields["link_ecc_errors"] == "unavailable: Not Supported (NVML error 3)"
    assert fields["throttle_thermal"] == "off"
    assert fields["ecc_corrected"] == "+0"
    assert set(fields) - {"samples"} <= set(FIELDS)


def test_all_of_it_as_json(nvml_script, capsys):
    assert main([*SHORT, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["hardware"]["driver"] == {"version": "580.0"}
    assert printed["gpus"][nvml.uuid(0)]["gauges"]["power"] == [300.0, 300.0]


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
    assert capsys.readouterr().err == "python -m harness.devices.telemetry: there is no NVIDIA driver\n"


@pytest.mark.parametrize("wrong", [["--rate", "0"], ["--seconds", "-1"], ["--device", "emulated"]])
def test_bad_input_is_refused(wrong, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*SHORT, *wrong])
    assert ended.value.code == 2
