"""The NVML source through the real pynvml, on a stand-in libnvidia-ml.so.1."""

import json
import struct

import pytest

pytest.importorskip("pynvml", reason="needs the package nvidia-ml-py")

from harness.emulated_machine.smi.scripted import handle, out
from tests.telemetry import nvml
from tests.telemetry.standin import needs_compiler, run_python

pytestmark = needs_compiler

READ = """
import json
from types import SimpleNamespace
from harness.telemetry.nvml_source import open_source
from harness.telemetry.source import Unavailable
gpus = [SimpleNamespace(**gpu) for gpu in json.loads({gpus!r})]
try:
    source = open_source(gpus)
except Unavailable as error:
    print(json.dumps(str(error)))
else:
    looks = [[vars(source.read(gpu.uuid)) for gpu in gpus] for _ in range({times})]
    print(json.dumps({{"hardware": source.hardware(), "looks": looks, "fields": list(source.fields)}}))
    source.close()
"""


@pytest.fixture
def library(nvml_library):
    return nvml_library


@pytest.fixture
def script(tmp_path):
    return nvml.Nvml(tmp_path / "script")


def read(script, library, *indices, times=1):
    gpus = [{"uuid": nvml.uuid(index), "bus_id": nvml.bus_id(index)} for index in indices or (0,)]
    script.write()
    printed = run_python(READ.format(gpus=json.dumps(gpus), times=times), script=script.path, library=library)
    return json.loads(printed)


def look(script, library):
    return read(script, library)["looks"][0][0]


def test_every_field_has_a_value_or_a_reason(script, library):
    answer = read(script, library)
    sample = answer["looks"][0][0]
    assert set(sample["values"]) | set(sample["unavailable"]) == set(answer["fields"])
    assert not set(sample["values"]) & set(sample["unavailable"])
    assert sample["values"] == {
        "power": 300.0,
        "temperature_core": 41,
        "temperature_memory": 38,
        "clock_compute": 1980,
        "clock_memory": 1980,
        "memory_used": 4 << 30,
        "energy": 1000.0,
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        "pcie_replays": 0,
        "violation_power": 0,
        "violation_thermal": 0,
        "violation_thermal_software": 0,
        "violation_thermal_hardware": 0,
        "violation_power_brake": 0,
        "link_tx": 1000 * 1024,
        "link_rx": 1000 * 1024,
        "link_crc_errors": 0,
        "link_replays": 0,
        "link_recoveries": 0,
        "remapped_rows": 0,
        "throttle_power": False,
        "throttle_power_brake": False,
        "throttle_hardware": False,
        "throttle_thermal": False,
    }
    assert sample["unavailable"] == {"link_ecc_errors": "Not Supported (NVML error 3)"}


def test_gpus_are_found_by_uuid_whatever_their_order(script, library):
    script.field(0, 186, 111_000, kind=nvml.UINT)
    script.field(1, 186, 222_000, kind=nvml.UINT)
    answer = read(script, library, 0, 1)
    assert [sample["values"]["power"] for sample in answer["looks"][0]] == [111.0, 222.0]
    assert set(answer["hardware"]["gpus"]) == {nvml.uuid(0), nvml.uuid(1)}


def test_a_gpu_that_nvml_does_not_list_is_unavailable_and_the_others_are_not(script, library):
    answer = read(script, library, 5, 0)
    missing, sample = answer["looks"][0]
    assert missing["values"] == {}
    assert set(missing["unavailable"]) == set(answer["fields"])
    assert nvml.uuid(5) in missing["unavailable"]["power"]
    assert sample["values"]["power"] == 300.0


def test_a_status_per_field_is_the_reason_of_that_field_only(script, library):
    script.field(0, 82, 0, status=3)
    script.field(0, 83, 0, status=4)
    sample = look(script, library)
    assert sample["unavailable"]["temperature_memory"] == "Not Supported (NVML error 3)"
    assert sample["unavailable"]["energy"] == "Insufficient Permissions (NVML error 4)"
    assert sample["values"]["power"] == 300.0


def test_a_call_that_fails_is_the_reason_of_its_fields(script, library):
    script.say("nvmlDeviceGetTemperature", 15)
    script.say("nvmlDeviceGetCurrentClocksEventReasons", 3)
    script.say("nvmlDeviceGetMemoryInfo", 4)
    unavailable = look(script, library)["unavailable"]
    assert unavailable["temperature_core"] == "GPU is lost (NVML error 15)"
    assert unavailable["memory_used"] == "Insufficient Permissions (NVML error 4)"
    assert {name for name in unavailable if name.startswith("throttle")} == {
        "throttle_power",
        "throttle_power_brake",
        "throttle_hardware",
        "throttle_thermal",
    }


def test_a_lost_gpu_is_unavailable_and_the_others_are_not(script, library):
    script.say("nvmlDeviceGetFieldValues", 15, f"a0={handle(0)}")
    lost, sample = read(script, library, 0, 1)["looks"][0]
    assert lost["values"] == {}
    assert lost["unavailable"]["energy"] == "GPU is lost (NVML error 15)"
    assert sample["values"]["energy"] == 1000.0


def test_a_part_of_a_gpu_is_told_by_the_whole(script, library):
    gpus = [{"uuid": "MIG-12345678-1111-2222-3333-444444444444", "bus_id": nvml.bus_id(1)}]
    code = READ.format(gpus=json.dumps(gpus), times=1)
    answer = json.loads(run_python(code, script=script.path, library=library))
    assert answer["looks"][0][0]["values"]["power"] == 300.0


def test_averaged_power_serves_where_there_is_no_instant_one(script, library):
    script.field(0, 186, 0, status=3)
    script.field(0, 185, 250_000, kind=nvml.UINT)
    answer = read(script, library)
    assert answer["looks"][0][0]["values"]["power"] == 250.0
    assert answer["hardware"]["gpus"][nvml.uuid(0)]["recipes"]["power"] == "185@0"


def test_link_bytes_are_the_aggregate_where_there_is_one_and_else_the_sum_over_links(script, library):
    for link in range(18):
        script.field(0, 138, 10 + link, scope=link)
    assert look(script, library)["values"]["link_tx"] == 1000 * 1024
    script.field(0, 138, 0, scope=nvml.ALL, status=2)
    assert look(script, library)["values"]["link_tx"] == sum(10 + link for link in range(18)) * 1024


def test_links_that_all_give_one_figure_are_not_added_up(script, library):
    script.field(0, 138, 0, scope=nvml.ALL, status=2)
    for link in range(18):
        script.field(0, 138, 500, scope=link)
    sample = look(script, library)
    assert "link_tx" not in sample["values"]
    assert "cannot distinguish" in sample["unavailable"]["link_tx"]


def test_a_gpu_without_links_has_no_link_bytes(script, library):
    script.field(0, 91, 0, kind=nvml.UINT)
    sample = look(script, library)
    assert sample["unavailable"]["link_tx"] == "no NVLink: link count is 0"


def test_values_are_read_by_their_own_type(script, library):
    script.field(0, 186, 99_000.0, kind=nvml.DOUBLE)
    script.field(0, 82, 0, kind=17)
    sample = look(script, library)
    assert sample["values"]["power"] == 99.0
    assert sample["unavailable"]["temperature_memory"] == "a value of unknown type 17"


def test_volatile_ecc_is_read_and_not_the_aggregate(script, library):
    script.field(0, 5, 77)
    script.field(0, 6, 77)
    script.field(0, 3, 2)
    sample = look(script, library)
    assert (sample["values"]["ecc_corrected"], sample["values"]["ecc_uncorrected"]) == (2, 0)


def test_reasons_for_low_clocks_are_states(script, library):
    script.say("nvmlDeviceGetCurrentClocksEventReasons", 0, f"a0={handle(0)}", out(1, struct.pack("Q", 0x40 | 0x1)))
    values = look(script, library)["values"]
    assert (values["throttle_thermal"], values["throttle_power"], values["throttle_hardware"]) == (True, False, False)


def test_an_older_pynvml_has_the_call_under_its_old_name(script, library):
    script.say("nvmlDeviceGetCurrentClocksThrottleReasons", 0, f"a0={handle(0)}", out(1, struct.pack("Q", 0x04)))
    script.write()
    code = READ.format(gpus=json.dumps([{"uuid": nvml.uuid(0), "bus_id": ""}]), times=1)
    code = "import pynvml\ndel pynvml.nvmlDeviceGetCurrentClocksEventReasons\n" + code
    answer = json.loads(run_python(code, script=script.path, library=library))
    assert answer["looks"][0][0]["values"]["throttle_power"] is True


def test_the_energy_fields_own_time_is_the_samples_stamp(script, library):
    assert look(script, library)["stamp"] is None
    script.field(0, 83, 1_000_000, at=123456)
    assert look(script, library)["stamp"] == 123456


@pytest.mark.parametrize(("status", "reason"), [(9, "Driver Not Loaded"), (4, "Insufficient Permissions")])
def test_an_init_that_fails_is_a_reason(status, reason, script, library):
    script.say("nvmlInitWithFlags", status)
    assert read(script, library) == f"nvmlInit: {reason}"


def test_no_device_at_all_is_a_reason(script, library):
    script.say("nvmlDeviceGetCount_v2", 0, out(0, struct.pack("I", 0)))
    assert read(script, library) == "NVML sees no device"


def test_it_is_opened_and_closed_once(script, library):
    read(script, library, 0, 1, times=3)
    assert script.logged() == ["nvmlInitWithFlags", "nvmlShutdown"]


def test_hardware_names_library_driver_and_gpu_with_reasons_for_the_rest(script, library):
    hardware = read(script, library, 0, 1)["hardware"]
    assert hardware["library"] == {"nvml": "13.580.0"}
    assert hardware["driver"] == {"version": "580.0"}
    gpu = hardware["gpus"][nvml.uuid(0)]
    assert gpu["name"] == "Stand-in"
    assert gpu["unavailable"]["vbios"] == "Not Supported (NVML error 3)"
    assert gpu["recipes"]["link_tx"] == "138@all"
    assert "unavailable" in gpu["topology"][nvml.uuid(1)]
