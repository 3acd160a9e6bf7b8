"""The recorder process with amdsmi: its counters over time, and the failures that it survives."""

import struct
import time
from types import SimpleNamespace

import pytest

from harness import devices
from harness.emulated_machine.smi.amdsmi_answers import XGMI_WAFL
from harness.emulated_machine.smi.scripted import out
from harness.telemetry import Watch
from tests.telemetry import amd
from tests.telemetry.standin import needs_compiler
from tests.telemetry.test_watch import gone, sampled

pytestmark = needs_compiler


@pytest.fixture
def script(amd_script):
    return amd_script


@pytest.fixture
def watch(script):
    with watched() as started:
        sampled(started)
        yield started


def watched(**options):
    gpus = [SimpleNamespace(uuid=amd.hip_uuid(0), bus_id=amd.bus_id(0))]
    return Watch(devices.kind("rocm").telemetry, gpus, **{"rate": 50.0, **options})


def during(watch, script, change):
    """The window around a change of what the library answers."""
    started = time.time()
    change()
    script.write()
    sampled(watch)
    ended = time.time()
    end = time.monotonic() + 20
    while (window := watch.window(amd.hip_uuid(0), started, ended)) is None:
        assert time.monotonic() < end
        watch.wait(watch.lines, 1)
    assert window.samples is not None, window.reason
    return window.samples


def test_energy_is_a_delta_in_joules(watch, script):
    window = during(watch, script, lambda: script.energy(0, 3_000_000))
    assert window["deltas"]["energy"] == pytest.approx(2e6 * 15.3e-6, rel=1e-3)
    assert window["gauges"]["power"] == [500.0, 500.0]


def test_energy_that_stands_still_is_unavailable(watch, script):
    window = during(watch, script, lambda: None)
    assert "energy" not in window["deltas"]
    assert window["unavailable"]["energy"] == "the counter stood still at 500 W or more"


def test_energy_that_goes_backwards_is_unavailable(watch, script):
    window = during(watch, script, lambda: script.energy(0, 10))
    assert "energy" not in window["deltas"]
    assert window["unavailable"]["energy"].startswith("it went backwards, from 15.3 to ")


def test_errors_of_memory_and_links_become_marks(watch, script):
    def change():
        script.ecc(0, corrected=2)
        script.ecc(0, uncorrected=1, block=XGMI_WAFL)

    assert during(watch, script, change)["marks"] == [
        "memory error (RAS/ECC): ecc_corrected +2",
        "link error: link_ecc_errors +1",
    ]


def test_a_thermal_violation_becomes_a_mark(watch, script):
    if not script.package.has("amdsmi_violation_status_t"):
        return  # test_amdsmi shows the reason that stands there instead

    def change():
        script.metrics(0, socket_thm_residency_acc=40, accumulation_counter=100)

    window = during(watch, script, change)
    assert window["deltas"]["violation_ticks"] == 100
    assert window["marks"] == ["thermal violation: violation_ticks_socket +40 ticks"]


def test_a_state_that_is_not_known_is_no_mark(watch, script):
    if not script.package.has("amdsmi_violation_status_t"):
        return

    def change():
        script.violations(
            0, **{f"active_{name}": 0xFF for name in ("prochot_thrm", "socket_thrm", "vr_thrm", "hbm_thrm")}
        )

    assert during(watch, script, change)["marks"] == []


def test_a_sample_whose_stamp_did_not_move_is_not_counted_twice(watch, script):
    script.metrics(0, firmware_timestamp=1)
    script.write()
    sampled(watch, 3)
    before = watch.whole()[0].samples
    sampled(watch, 5)
    still = watch.whole()[0].samples
    assert still["samples"] == before["samples"]
    assert still["repeated"] >= before["repeated"] + 4
    now = time.time()
    sampled(watch)
    assert watch.window(amd.hip_uuid(0), now, now) is None  # nothing was measured since
    script.metrics(0, firmware_timestamp=2)
    script.write()
    sampled(watch, 3)
    [begin, end] = watch.window(amd.hip_uuid(0), now, now).samples["bracket"]
    assert begin <= now <= end


def test_a_call_that_hangs_ends_the_recorder_with_its_name(script):
    with watched(stuck=1) as watch:
        sampled(watch)
        script.answer("amdsmi_get_gpu_bad_page_info", 0, "sleep=60", out(1, struct.pack("I", 0)))
        script.write()
        end = time.monotonic() + 20
        while watch.ended is None and time.monotonic() < end:
            watch.wait(watch.lines, 1)
        assert watch.ended == "amdsmi: amdsmi_get_gpu_bad_page_info did not return within 1 s"
        assert gone(watch.pid)


def test_what_the_library_prints_stays_out_of_the_lines(script):
    script.say("amdsmi_init", 0, "print=noise")
    script.answer("amdsmi_get_gpu_bad_page_info", 0, "print=noise", out(1, struct.pack("I", 0)))
    script.write()
    with watched() as watch:
        sampled(watch)
        assert watch.ended is None


def test_no_permission_ends_it_with_the_reason(script):
    script.say("amdsmi_init", 10)
    script.write()
    with watched() as watch:
        watch.wait(0, 20)
        assert watch.ended == "amdsmi: amdsmi_init: AMDSMI_STATUS_NO_PERM (10)"


def test_it_opens_and_closes_the_library_once(script):
    with watched() as watch:
        sampled(watch)
    assert script.logged() == ["amdsmi_init", "amdsmi_shut_down"]
