"""The amdsmi source through the real amdsmi package of several ROCm versions, on a stand-in libamd_smi.so.

The installed version is always exercised; further ones are fetched once and kept in pytest's cache, and their tests
are skipped, with the reason, where there is no package index.
"""

import ctypes.util
import json
import struct

import pytest

from harness.emulated_machine.smi import amdsmi_answers
from harness.emulated_machine.smi.amdsmi_answers import NONE16, NONE32, NONE64
from harness.emulated_machine.smi.scripted import out
from tests.telemetry import amd
from tests.telemetry.amd import bus_id, hip_uuid
from tests.telemetry.standin import needs_compiler

pytestmark = needs_compiler

READ = """
import json, sys, time
from types import SimpleNamespace
from pathlib import Path
from harness.telemetry import amdsmi_values
from harness.telemetry.amdsmi_source import open_source
from harness.telemetry.source import Unavailable
{before}
gpus = [SimpleNamespace(**gpu) for gpu in json.loads({gpus!r})]
try:
    source = open_source(gpus)
except Unavailable as error:
    print("\\n" + json.dumps(str(error)))
else:
    looks = [[vars(source.read(gpu.uuid)) for gpu in gpus] for _ in range({times})]
    print("\\n" + json.dumps({{"hardware": source.hardware(), "looks": looks, "fields": list(source.fields)}}))
    source.close()
"""


@pytest.fixture
def package(amd_package):
    return amd_package


@pytest.fixture
def script(tmp_path, package):
    return amd.Amd(tmp_path / "script", package)


def gpu_of(index, uuid=None):
    return {"uuid": hip_uuid(index) if uuid is None else uuid, "bus_id": bus_id(index)}


def read(script, *gpus, times=1, before="", **environment):
    code = READ.format(gpus=json.dumps(list(gpus or [gpu_of(0)])), times=times, before=before)
    script.write()
    return json.loads(script.package.run(code, script.path, **environment).splitlines()[-1])


def look(script, *gpus):
    return read(script, *gpus)["looks"][0][0]


def test_every_field_has_a_value_or_a_reason(script, package):
    answer = read(script)
    [[sample]] = answer["looks"]
    assert set(sample["values"]) | set(sample["unavailable"]) == set(answer["fields"])
    assert not set(sample["values"]) & set(sample["unavailable"])
    expected = {
        "power": 500,
        "temperature_hotspot": 55,
        "temperature_memory": 48,
        "clock_compute": 2100,
        "clock_memory": 2100,
        "memory_used": 1024 << 20,
        "ecc_corrected": 0,
        "ecc_uncorrected": 0,
        "bad_pages": 0,
        "link_tx": 7 * 200 * 1024,
        "link_rx": 7 * 100 * 1024,
        "link_ecc_errors": 0,
        "pcie_replays": 0,
    }
    assert {name: sample["values"][name] for name in expected} == expected
    assert sample["values"]["energy"] == pytest.approx(15.3)
    assert sample["unavailable"]["temperature_core"] == "amdsmi reports N/A for temperature_edge"
    assert sample["unavailable"]["throttle"] == "amdsmi reports N/A for throttle_status"


def test_gpus_are_found_by_identity_whatever_amdsmis_order(script, package):
    script.power(0, current_socket_power=111)
    script.power(1, current_socket_power=222)
    for first, second in ((0, 1), (1, 0)):
        answer = read(script, gpu_of(first), gpu_of(second))
        assert [sample["values"]["power"] for sample in answer["looks"][0]] == [111 * (first + 1), 111 * (second + 1)]


def test_masks_do_not_filter_amdsmi(script):
    """HIP sees only the second GPU, as its device 0; amdsmi lists both."""
    script.power(1, current_socket_power=222)
    answer = read(script, gpu_of(1), HIP_VISIBLE_DEVICES="1")
    assert answer["looks"][0][0]["values"]["power"] == 222


def test_torchs_spelling_of_hips_uuid_is_understood(script, package):
    text = hip_uuid(1).removeprefix("GPU-").encode().hex()
    spelled = "-".join([text[:8], text[8:12], text[12:16], text[16:20], text[20:]])
    script.power(1, current_socket_power=222)
    if package.has("amdsmi_enumeration_info_t"):
        assert look(script, {"uuid": spelled, "bus_id": "0000:99:00.0"})["values"]["power"] == 222
    else:  # it reports no HIP uuid: the bus id is used
        assert look(script, {"uuid": spelled, "bus_id": bus_id(1)})["values"]["power"] == 222


def test_a_gpu_that_amdsmi_does_not_list_is_unavailable_and_the_others_are_not(script):
    answer = read(script, gpu_of(7), gpu_of(0))
    missing, sample = answer["looks"][0]
    assert missing["values"] == {}
    assert set(missing["unavailable"]) == set(answer["fields"])
    assert missing["unavailable"]["power"] == f"amdsmi has no GPU with uuid {hip_uuid(7)} or at {bus_id(7)}"
    assert sample["values"]["power"] == 500
    assert answer["hardware"]["gpus"][hip_uuid(7)]["unavailable"]["all"] == missing["unavailable"]["power"]


def test_zero_handles_mean_no_telemetry(script):
    script.handles()
    assert read(script).startswith("amdsmi sees no GPU (0 handles)")
    assert script.logged() == ["amdsmi_init", "amdsmi_shut_down"]


def test_no_permission_is_a_reason(script):
    script.say("amdsmi_init", 10)
    assert read(script) == "amdsmi_init: AMDSMI_STATUS_NO_PERM (10)"


def test_no_permission_for_one_call_is_the_reason_of_its_fields(script):
    script.answer("amdsmi_get_gpu_bad_page_info", 0, status=10)
    sample = look(script)
    assert sample["unavailable"]["bad_pages"] == "AMDSMI_STATUS_NO_PERM (10)"
    assert sample["values"]["power"] == 500


@pytest.mark.parametrize(("status", "name"), [(8, "TIMEOUT"), (9, "RETRY"), (30, "BUSY"), (40, "NO_DATA")])
def test_each_error_is_told_by_its_name(script, status, name):
    script.answer("amdsmi_get_energy_count", 0, status=status)
    assert look(script)["unavailable"]["energy"] == f"AMDSMI_STATUS_{name} ({status})"


def test_the_driver_not_being_loaded_is_a_reason(script):
    script.say("amdsmi_init", 34)
    assert read(script) == "amdsmi_init: AMDSMI_STATUS_DRIVER_NOT_LOADED (34)"


needs_no_library = pytest.mark.skipif(
    ctypes.util.find_library("amd_smi") is not None, reason="the linker finds a real libamd_smi.so"
)


@needs_no_library
def test_a_missing_library_is_a_reason_with_what_the_package_printed(script, tmp_path):
    (tmp_path / "lib").mkdir()
    answer = read(script, ROCM_PATH=str(tmp_path), LD_LIBRARY_PATH="")
    assert answer.startswith("import amdsmi: KeyError: 'libamd_smi.so' (")
    assert "cannot open shared object file" in answer
    assert "try installing amd-smi-lib" in answer


@needs_no_library
def test_nothing_of_what_it_printed_is_left_on_stdout(script, tmp_path):
    (tmp_path / "lib").mkdir()
    code = READ.format(gpus=json.dumps([gpu_of(0)]), times=1, before="")
    printed = script.package.run(code, script.path, ROCM_PATH=str(tmp_path), LD_LIBRARY_PATH="")
    assert len(printed.split("\n")) == 3 and "import amdsmi" in printed.split("\n")[1]


@needs_no_library
def test_a_library_of_an_older_version_is_a_reason(script, tmp_path):
    """A function that the package wants is not there: AttributeError at import."""
    amd.build(tmp_path / "lib" / "libamd_smi.so", ["amdsmi_init"], 2)
    answer = read(script, ROCM_PATH=str(tmp_path), LD_LIBRARY_PATH="")
    assert answer.startswith("import amdsmi: AttributeError: ")
    assert "undefined symbol" in answer


def test_without_rocm_path_only_newer_packages_ask_the_linker(script, package):
    answer = read(script, before="import os; del os.environ['ROCM_PATH'], os.environ['ROCM_HOME']")
    if package.version == "6.0.2":
        assert answer.startswith("import amdsmi: KeyError: 'ROCM_PATH'")
    elif package.version == "6.2.4":
        assert answer.startswith("import amdsmi: KeyError: 'libamd_smi.so'")
    else:
        assert answer["looks"][0][0]["values"]["power"] == 500


def test_handles_that_are_no_longer_valid_leave_every_field_with_a_reason(script, package):
    """As after a change of the partition mode."""
    names = ("gpu_metrics_info", "energy_count", "power_info", "power_info_v2", "gpu_vram_usage", "gpu_total_ecc_count")
    names += ("gpu_bad_page_info", "gpu_ecc_count", "clock_info", "violation_status", "temp_metric")
    for name in names:
        script.answer(f"amdsmi_get_{name}", 0, status=31)
    answer = read(script)
    [[sample]] = answer["looks"]
    assert sample["values"] == {}
    assert set(sample["unavailable"]) == set(answer["fields"])
    assert sample["unavailable"]["power"] == "AMDSMI_STATUS_NOT_FOUND (31)"


def test_retired_pages_are_counted(script, package):
    script.answer("amdsmi_get_gpu_bad_page_info", 0, out(1, struct.pack("I", 3)))
    sample = look(script)
    if package.version == "6.0.2":  # it reads the pages from nowhere
        assert sample["unavailable"]["bad_pages"].startswith("ValueError: NULL pointer")
    else:
        assert sample["values"]["bad_pages"] == 3


def test_the_package_that_rocm_ships_comes_before_an_installed_one(script, tmp_path):
    shipped = tmp_path / "share" / "amd_smi" / "amdsmi"
    shipped.mkdir(parents=True)
    (shipped / "__init__.py").write_text("raise OSError('the shipped one')\n")
    assert read(script, ROCM_PATH=str(tmp_path)) == "import amdsmi: OSError: the shipped one"


def test_it_is_opened_and_closed_once(script):
    read(script, gpu_of(0), gpu_of(1), times=3)
    assert script.logged() == ["amdsmi_init", "amdsmi_shut_down"]


# -- values ------------------------------------------------------------------------------------------------------------


def test_energy_is_the_counter_times_its_resolution(script):
    script.energy(0, 200_000_000, resolution=15.259)
    assert look(script)["values"]["energy"] == pytest.approx(200e6 * 15.259e-6)


def test_energy_without_a_resolution_is_unavailable(script):
    script.energy(0, 200_000_000, resolution=0.0)
    assert look(script)["unavailable"]["energy"] == "the energy counter's resolution is 0 uJ"


def test_power_of_older_gpus_is_the_averaged_one(script):
    script.power(0, current_socket_power=NONE16, average_socket_power=305)
    assert look(script)["values"]["power"] == 305


@pytest.mark.parametrize("sentinel", [NONE16, NONE32])
def test_sentinels_are_no_power(script, package, sentinel):
    fields = package.kinds["amdsmi_power_info_t"]["fields"]
    names = [name for name in ("socket_power", "current_socket_power", "average_socket_power") if name in fields]
    script.power(0, **{name: min(sentinel, (1 << 8 * fields[name][1]) - 1) for name in names})
    sample = look(script)
    assert "power" not in sample["values"]
    assert "N/A" in sample["unavailable"]["power"]


def test_links_without_a_counter_are_left_out_of_the_sum(script):
    script.metrics(0, xgmi_read_data_acc=[NONE64, 5, NONE64, 7, *[NONE64] * 4], xgmi_write_data_acc=[NONE64] * 8)
    sample = look(script)
    assert sample["values"]["link_rx"] == 12 * 1024
    assert sample["unavailable"]["link_tx"] == "amdsmi reports N/A for every XGMI link"


def test_links_that_come_or_go_make_no_jump(script):
    script.metrics(0, xgmi_read_data_acc=[NONE64, 5, *[NONE64] * 6])
    script.write()
    before = script.path.read_text()
    script.metrics(0, xgmi_read_data_acc=[900, 5, *[NONE64] * 6])
    script.write()
    after = script.path.read_text()
    script.lines = before.splitlines()
    (script.path.parent / "after").write_text(after)
    # The table changes under the source between its two looks.
    switch = f"""
import harness.telemetry.amdsmi_source as s
_read = s.AmdsmiSource.read
def read(self, uuid):
    sample = _read(self, uuid)
    Path({str(script.path)!r}).write_text(Path({str(script.path.parent / "after")!r}).read_text())
    return sample
s.AmdsmiSource.read = read
"""
    first, second = read(script, times=2, before=switch)["looks"]
    assert first[0]["values"]["link_rx"] == 5 * 1024
    assert second[0]["unavailable"]["link_rx"] == "the XGMI links with a counter were [1] and are [0, 1]"


def test_a_throttle_status_of_mi200_is_a_state_and_its_absence_none(script):
    script.metrics(0, throttle_status=0)
    assert look(script)["values"]["throttle"] is False
    script.metrics(0, throttle_status=0x40)
    assert look(script)["values"]["throttle"] is True
    script.metrics(0, throttle_status=NONE32)
    assert "throttle" not in look(script)["values"]


def test_a_violation_that_is_not_known_does_not_read_as_active(script, package):
    if not package.has("amdsmi_violation_status_t"):
        assert look(script)["unavailable"]["throttle_power"] == "this amdsmi has no amdsmi_get_violation_status"
        return
    script.violations(0, active_ppt_pwr=0xFF, active_prochot_thrm=0xFF, active_socket_thrm=0xFF)
    sample = look(script)
    assert sample["unavailable"]["throttle_power"] == "amdsmi reports N/A for active_ppt_pwr"
    assert sample["values"]["throttle_thermal"] is False  # the other two sensors are off
    script.violations(0, active_ppt_pwr=1, active_socket_thrm=1, active_vr_thrm=0xFF)
    values = look(script)["values"]
    assert (values["throttle_power"], values["throttle_thermal"]) == (True, True)


def test_violation_ticks_are_the_tables_or_the_violation_statuss(script, package):
    if not package.has("amdsmi_violation_status_t"):
        assert look(script)["unavailable"]["throttle_power"] == "this amdsmi has no amdsmi_get_violation_status"
        return
    script.metrics(0, **dict.fromkeys(amdsmi_answers.TICKS, 11))
    script.violations(0, acc_counter=22, acc_socket_thrm=3)
    assert look(script)["values"]["violation_ticks"] == 11
    script.metrics(0, **dict.fromkeys(amdsmi_answers.TICKS, NONE64))
    values = look(script)["values"]
    assert (values["violation_ticks"], values["violation_ticks_socket"]) == (22, 3)


def test_a_slow_violation_status_is_asked_rarely(script, package):
    if not package.has("amdsmi_violation_status_t"):
        assert look(script)["unavailable"]["throttle_power"] == "this amdsmi has no amdsmi_get_violation_status"
        return
    data = package.pack("amdsmi_violation_status_t", active_ppt_pwr=1)
    script.answer("amdsmi_get_violation_status", 0, out(1, data), "sleep=0.1", "log")
    first, *others = read(script, times=6)["looks"]
    assert first[0]["values"]["throttle_power"] is True
    for [sample] in others:
        assert "is made every" in sample["unavailable"]["throttle_power"]
    assert script.logged().count("amdsmi_get_violation_status") == 1


def test_temperatures_are_degrees(script):
    script.metrics(0, temperature_hotspot=NONE16, temperature_mem=NONE16)
    script.answer("amdsmi_get_temp_metric", 0, out(3, struct.pack("q", 61)))
    values = look(script)["values"]
    assert (values["temperature_hotspot"], values["temperature_memory"]) == (61, 61)


def test_the_xgmi_error_status_is_refused_on_mi300_and_its_ecc_block_counts(script):
    script.answer("amdsmi_gpu_xgmi_error_status", 0, status=1)
    script.ecc(0, corrected=3, uncorrected=1, block=amdsmi_answers.XGMI_WAFL)
    sample = look(script)
    assert sample["unavailable"]["link_error_status"] == "AMDSMI_STATUS_INVAL (1)"
    assert sample["values"]["link_ecc_errors"] == 4
    script.answer("amdsmi_gpu_xgmi_error_status", 0, out(1, struct.pack("I", 1)))
    assert look(script)["values"]["link_error_status"] is True


def test_the_samples_stamp_is_the_firmwares_else_the_energy_counters(script):
    assert look(script)["stamp"] is None
    script.energy(0, 1, at=777)
    assert look(script)["stamp"] == 777
    script.metrics(0, firmware_timestamp=888)
    assert look(script)["stamp"] == 888


@pytest.mark.parametrize("status", [43, 2])
def test_metrics_of_an_unknown_version_are_kept_raw_and_not_guessed(script, tmp_path, status):
    script.answer("amdsmi_get_gpu_metrics_info", 0, status=status)
    table = tmp_path / "sys" / "bus" / "pci" / "devices" / bus_id(0) / "gpu_metrics"
    table.parent.mkdir(parents=True)
    raw = struct.pack("<HBB", 2208, 1, 9) + bytes(range(256))
    table.write_bytes(raw)
    answer = read(script, before=f"amdsmi_values.SYS = Path({str(tmp_path / 'sys')!r})")
    kept = answer["hardware"]["gpus"][hip_uuid(0)]["metrics"]
    assert (kept["size"], kept["format"], kept["content"], kept["raw"]) == (2208, 1, 9, raw.hex())
    [[sample]] = answer["looks"]
    assert sample["unavailable"]["link_rx"] == kept["unavailable"]
    assert f"({status})" in kept["unavailable"]
    assert sample["values"]["power"] == 500  # values of other calls are still reported


# -- partitions --------------------------------------------------------------------------------------------------------


def test_only_the_first_partition_of_a_gpu_tells_what_is_the_whole_gpus(script, package):
    for index in range(2):
        script.gpu(index, bus=0x20, function=index)
        script.answer("amdsmi_get_gpu_compute_partition", index, out(1, b"CPX\0"))
        script.answer("amdsmi_get_gpu_memory_partition", index, out(1, b"NPS4\0"))
    gpus = [{"uuid": hip_uuid(index), "bus_id": "0000:20:00.0"} for index in range(2)]
    answer = read(script, *gpus)
    first, second = answer["looks"][0]
    if not package.has("amdsmi_enumeration_info_t"):
        # Without uuids the partitions cannot be distinguished, so neither has values.
        assert "amdsmi has 2 GPU" in first["unavailable"]["power"]
        return
    assert first["values"]["power"] == 500
    assert second["values"] == {}
    assert second["unavailable"]["power"] == "partition 1 of a GPU: partition 0 reports its measurements"
    assert set(second["unavailable"]) == set(answer["fields"])
    gpu = answer["hardware"]["gpus"][hip_uuid(0)]
    assert (gpu["partition"], gpu["memory_partition"]) == ("CPX", "NPS4")


def test_hardware_names_library_driver_firmware_and_gpu_with_reasons_for_the_rest(script, package):
    firmware = package.pack("amdsmi_fw_info_t", num_fw_info=0)
    script.answer("amdsmi_get_fw_info", 0, out(1, firmware))
    hardware = read(script, gpu_of(0), gpu_of(1))["hardware"]
    assert hardware["library"]["amdsmi"]["major"] == 26
    assert hardware["driver"]["driver_version"] == "6.12.12"
    gpu = hardware["gpus"][hip_uuid(0)]
    assert (gpu["partition"], gpu["memory_partition"], gpu["bus_id"]) == ("SPX", "NPS1", bus_id(0))
    assert gpu["firmware"] == {"fw_list": []}
    assert gpu["unavailable"]["vbios"] == "AMDSMI_STATUS_NOT_SUPPORTED (2)"
    assert "unavailable" in gpu["topology"][hip_uuid(1)]
    assert "serial" not in json.dumps(hardware)
