"""The recorder process and its starter, on a stand-in libnvidia-ml.so.1."""

import os
import signal
import struct
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("pynvml", reason="needs the package nvidia-ml-py")

from harness import devices
from harness.emulated_machine.smi.scripted import handle, out
from harness.telemetry import Library, Watch
from tests.telemetry import nvml
from tests.telemetry.standin import ROOT, needs_compiler, variables

pytestmark = needs_compiler
NVML = devices.kind("cuda").telemetry


@pytest.fixture
def script(nvml_script):
    return nvml_script


def gpus(*indices):
    return [SimpleNamespace(uuid=nvml.uuid(index), bus_id=nvml.bus_id(index)) for index in indices]


def watched(*indices, **options):
    return Watch(NVML, gpus(*indices), **{"rate": 50.0, **options})


def sampled(watch, samples=2):
    """Wait for ``samples`` more samples; the first line is the hardware's."""
    target = watch.lines + samples + (watch.hardware is None)
    end = time.monotonic() + 20
    while watch.lines < target and watch.ended is None and time.monotonic() < end:
        watch.wait(watch.lines, 1)
    assert watch.ended is None
    assert watch.lines >= target


def window_of(watch, index, started, ended):
    end = time.monotonic() + 20
    while (window := watch.window(nvml.uuid(index), started, ended)) is None:
        assert time.monotonic() < end
        watch.wait(watch.lines, 1)
    return window


def gone(pid):
    end = time.monotonic() + 10
    while time.monotonic() < end:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] in "ZX":
                    return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def test_a_window_says_what_happened_between_the_samples_around_it(script):
    with watched(0, 1) as watch:
        sampled(watch)
        started = time.time()
        script.field(0, 83, 1_500_000)
        script.field(1, 186, 700_000, kind=nvml.UINT)
        script.write()
        sampled(watch)
        ended = time.time()
        first, second = window_of(watch, 0, started, ended), window_of(watch, 1, started, ended)
    begin, end = first.samples["bracket"]
    assert begin <= started
    assert end >= ended
    assert first.samples["samples"] >= 3
    assert first.samples["deltas"]["energy"] == 500.0
    assert first.samples["marks"] == []
    assert second.samples["gauges"]["power"] == [300.0, 700.0]
    assert "stood still" in second.samples["unavailable"]["energy"]


def test_a_case_between_two_samples_is_told_within_their_bracket(script):
    with watched(0, rate=10.0) as watch:
        sampled(watch)
        time.sleep(0.02)
        started = time.time()
        window = window_of(watch, 0, started, started + 0.003)
    begin, end = window.samples["bracket"]
    assert window.samples["samples"] == 2
    assert begin <= started < started + 0.003 <= end
    assert end - begin < 5


def test_errors_and_heat_become_marks(script):
    with watched(0) as watch:
        sampled(watch)
        started = time.time()
        script.field(0, 4, 2)
        script.field(0, 161, 5, scope=nvml.ALL)
        script.say("nvmlDeviceGetCurrentClocksEventReasons", 0, f"a0={handle(0)}", out(1, struct.pack("Q", 0x40)))
        script.write()
        sampled(watch)
        marks = window_of(watch, 0, started, time.time()).samples["marks"]
    assert marks[0] == "memory error (RAS/ECC): ecc_uncorrected +2"
    assert marks[1] == "link error: link_replays +5"
    assert marks[2].startswith("thermal violation: throttle_thermal in ")


def test_a_counter_that_wraps_is_unavailable_and_never_negative(script):
    script.field(0, 138, 0xFFFFFFF0, scope=nvml.ALL)
    script.write()
    with watched(0) as watch:
        sampled(watch)
        started = time.time()
        script.field(0, 138, 16, scope=nvml.ALL)
        script.write()
        sampled(watch)
        samples = window_of(watch, 0, started, time.time()).samples
    assert "link_tx" not in samples["deltas"]
    assert "went backwards" in samples["unavailable"]["link_tx"]


def test_a_case_before_the_first_sample_has_a_reason(script):
    with watched(0) as watch:
        sampled(watch)
        window = window_of(watch, 0, 1.0, 2.0)
    assert (window.samples, window.reason) == (None, "no sample was taken before it")


def test_a_gpu_that_is_not_watched_has_a_reason(script):
    with watched(0) as watch:
        assert watch.window("GPU-other", 1.0, 2.0).reason == "it was not watched"


def test_it_samples_at_the_rate_that_was_set(script):
    with watched(0, rate=20.0) as watch:
        sampled(watch, 1)
        before = watch.lines
        time.sleep(1.0)
        assert 8 <= watch.lines - before <= 22


def test_it_has_a_session_of_its_own_and_is_gone_after_close(script):
    with watched(0) as watch:
        sampled(watch)
        assert os.getsid(watch.pid) == watch.pid
    assert gone(watch.pid)
    assert script.logged() == ["nvmlInitWithFlags", "nvmlShutdown"]
    watch.close()


def test_it_never_imports_torch(script, tmp_path, monkeypatch):
    planted = tmp_path / "torch"
    planted.mkdir()
    (planted / "__init__.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with watched(0) as watch:
        sampled(watch)
    assert not (tmp_path / "imported").exists()
    subprocess.run([sys.executable, "-c", "import torch"], cwd=tmp_path, check=True)
    assert (tmp_path / "imported").exists()  # the trap works


def test_what_a_library_prints_does_not_reach_the_lines(script):
    script.say("nvmlDeviceGetTemperature", 0, "print=nonsense", out(2, struct.pack("I", 41)))
    script.write()
    with watched(0) as watch:
        sampled(watch)
        assert watch.whole()[0].samples["gauges"]["temperature_core"] == [41, 41]


def test_a_call_that_does_not_return_ends_the_recorder_with_its_name(script):
    with watched(0, stuck=1) as watch:
        sampled(watch)
        script.say("nvmlDeviceGetTemperature", 0, "sleep=60")
        script.write()
        began = time.monotonic()
        window = window_of(watch, 0, time.time() + 1000, time.time() + 1001)
        assert time.monotonic() - began < 60
        assert window.reason == "nvml: nvmlDeviceGetTemperature did not return within 1 s"
        assert gone(watch.pid)


def test_an_init_that_hangs_ends_the_recorder(script):
    script.say("nvmlInitWithFlags", 0, "sleep=60")
    script.write()
    with watched(0, stuck=0.3) as watch:
        watch.wait(0, 20)
        assert watch.ended == "nvml: loading nvml did not return within 1.8 s"


def test_a_killed_recorder_is_noticed_and_what_it_said_before_still_counts(script):
    with watched(0) as watch:
        sampled(watch)
        between = time.time()
        sampled(watch)
        os.kill(watch.pid, signal.SIGKILL)
        window = window_of(watch, 0, time.time() + 1, time.time() + 2)
        assert window.reason == "the recorder process ended by signal 9 (SIGKILL)"
        assert window_of(watch, 0, between, between).samples is not None


def test_a_stopped_recorder_is_silent_which_is_noticed_without_waiting_for_it(script):
    with watched(0, silent=2) as watch:
        sampled(watch)
        os.kill(watch.pid, signal.SIGSTOP)
        time.sleep(2.5)
        began = time.monotonic()
        window = watch.window(nvml.uuid(0), time.time(), time.time())
        assert time.monotonic() - began < 30
        assert "silent" in window.reason
        assert gone(watch.pid)


def test_a_recorder_that_cannot_start_says_why(script, monkeypatch):
    script.say("nvmlInitWithFlags", 9)
    script.write()
    with watched(0) as watch:
        watch.wait(0, 20)
        assert watch.ended == "nvml: nvmlInit: Driver Not Loaded"
        assert watch.window(nvml.uuid(0), 1, 2).reason == watch.ended
        assert watch.whole()[0].reason == watch.ended


def test_a_bug_in_the_recorder_is_told_by_its_last_words(script):
    with Watch(Library("none", source="no_such_source", module="", package=""), gpus(0)) as broken:
        broken.wait(0, 20)
        assert "No module named 'no_such_source'" in broken.ended


def test_a_library_that_crashes_the_recorder_is_told_by_its_signal(script):
    with watched(0) as watch:
        sampled(watch)
        script.say("nvmlDeviceGetTemperature", 0, "abort")
        script.write()
        window = window_of(watch, 0, time.time() + 1000, time.time() + 1001)
    assert window.reason.startswith("the recorder process ended by signal 6 (SIGABRT)")


def test_a_recorder_that_cannot_be_started_at_all_is_a_reason(script, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with watched(0) as watch:
        assert watch.pid is None
        assert "could not be started" in watch.window(nvml.uuid(0), 1, 2).reason


def test_a_line_that_is_not_understood_is_a_reason(script, tmp_path, monkeypatch):
    speaker = tmp_path / "speaker"
    speaker.write_text('#!/bin/sh\necho \'{"kind": "sample", "gpus": {"other": {}}}\'; exec cat\n')
    speaker.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(speaker))
    with watched(0) as watch:
        watch.wait(0, 10)
        assert watch.ended == "the recorder wrote an invalid line: KeyError: 'other'"


def test_a_value_that_is_no_number_has_a_reason(script):
    script.field(0, 186, float("nan"), kind=nvml.DOUBLE)
    script.write()
    with watched(0) as watch:
        sampled(watch)
        assert watch.whole()[0].samples["unavailable"]["power"] == "nan is not a finite number"


def test_close_does_not_wait_for_the_next_sample(script):
    with watched(0, rate=0.01) as watch:
        sampled(watch, 1)
        began = time.monotonic()
    assert time.monotonic() - began < 50
    assert watch.ended == "the recorder process ended"


STARTER = """
import os, sys, time
from types import SimpleNamespace
from harness import devices
from harness.telemetry import Watch
NVML = devices.kind("cuda").telemetry
watch = Watch(NVML, [SimpleNamespace(uuid=sys.argv[1], bus_id="")], rate=50.0)
while watch.lines < 3:
    watch.wait(watch.lines, 1)
print(watch.pid, flush=True)
time.sleep(60)
"""


def test_it_dies_with_its_starter(script, nvml_library):
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, nvml.uuid(0)],
        env={**os.environ, **variables(script.path, nvml_library), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with starter.stdout:
        pid = int(starter.stdout.readline())
        starter.kill()
        starter.wait(10)
    assert gone(pid)


def test_a_starter_that_does_not_read_holds_it_up_and_fills_no_memory(script):
    with watched(0, rate=200.0) as watch:
        sampled(watch)
        with watch._news:  # the listener waits for this lock
            time.sleep(1.5)
            assert watch.ended is None
        sampled(watch)
        assert watch.ended is None
