"""Telemetry records that one pytest process appends to the evidence, from cases and samples."""

import os
import signal
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("pynvml", reason="needs the package nvidia-ml-py")

from fixtures import telemetry
from fixtures.telemetry import Session
from harness import devices, evidence
from tests.evidence import samples
from tests.telemetry import nvml
from tests.telemetry.standin import needs_compiler

pytestmark = needs_compiler


class Ledger:
    """The part of ``fixtures.ledger.Ledger`` that a session writes to, on a real store."""

    def __init__(self, path):
        self.store = evidence.Store(path)
        for record in (samples.run(device="cuda", arch="sm_90"), samples.plan(), samples.kernel()):
            self.store.append(record)

    def measured(self, record):
        self.store.append(record)

    def case(self, number):
        record = samples.case(number)
        self.store.append(record)
        return record.id

    def read(self):
        return evidence.read(self.store.path)


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "evidence.jsonl")
    yield made
    made.store.close()


@pytest.fixture
def session(nvml_script):
    made = Session(devices.kind("cuda").telemetry)
    yield made
    made.pytest_sessionfinish()


def gpus(*indices):
    return [SimpleNamespace(uuid=nvml.uuid(index), bus_id=nvml.bus_id(index)) for index in indices]


def sampled(session, lines=2):
    target = session._watch.lines + lines + 1
    while session._watch.lines < target and session._watch.ended is None:
        session._watch.wait(session._watch.lines, 5)


def ran(session, ledger, number, ranks=2):
    """Run a case of 2 ms on ``ranks`` ranks."""
    started = time.time()
    time.sleep(0.002)
    window = (started, time.time())
    identity = ledger.case(number)
    session.case(identity, [window] * ranks, ledger)
    return identity, window


def test_cases_are_joined_with_the_samples_around_them(session, ledger, nvml_script):
    session.watch(gpus(0, 1))
    sampled(session)
    first, window = ran(session, ledger, 1)
    session.pytest_sessionfinish()
    recorded = ledger.read()
    assert recorded.problems == []
    record = recorded.telemetry_of(first)
    assert record.source == "nvml"
    assert record.cases[first] == [round(window[0], 6), round(window[1], 6)]
    assert [(gpu["rank"], gpu["gpu"]) for gpu in record.gpus] == [(0, nvml.uuid(0)), (1, nvml.uuid(1))]
    for gpu in record.gpus:
        assert gpu["bracket"][0] <= window[0] < window[1] <= gpu["bracket"][1]
        assert gpu["gauges"]["power"] == [300.0, 300.0]
        assert gpu["unavailable"]["link_ecc_errors"] == "Not Supported (NVML error 3)"
    assert recorded.telemetry_of("0" * 16) is None


def test_ranks_that_share_a_gpu_have_its_samples(session, ledger):
    session.watch(gpus(0, 1, 0))
    assert session._watch.gpus == (nvml.uuid(0), nvml.uuid(1)), "each is watched once"
    pid = session._watch.pid
    session.watch(gpus(0, 1, 0))
    assert session._watch.pid == pid
    sampled(session)
    first, _ = ran(session, ledger, 1, ranks=3)
    session.watch(gpus(1, 1, 0))
    sampled(session)
    second, _ = ran(session, ledger, 2, ranks=3)
    session.pytest_sessionfinish()
    recorded = ledger.read()
    for case, order in ((first, (0, 1, 0)), (second, (1, 1, 0))):
        sampled_gpus = recorded.telemetry_of(case).gpus
        assert [(gpu["rank"], gpu["gpu"]) for gpu in sampled_gpus] == [
            (r, nvml.uuid(index)) for r, index in enumerate(order)
        ]
        assert all("power" in gpu["gauges"] for gpu in sampled_gpus)
    wholes = [record.gpus for record in recorded.telemetry if not record.cases]
    assert [[(gpu["rank"], gpu["gpu"]) for gpu in whole] for whole in wholes] == [
        [(0, nvml.uuid(0)), (1, nvml.uuid(1))],
        [(0, nvml.uuid(1)), (2, nvml.uuid(0))],
    ]


def test_cases_between_the_same_samples_share_a_record(session, ledger):
    session.watch(gpus(0))
    sampled(session)
    identities = [ran(session, ledger, number, ranks=1)[0] for number in range(30)]
    session.pytest_sessionfinish()
    recorded = ledger.read()
    records = [record for record in recorded.telemetry if record.cases]
    assert sorted(identity for record in records for identity in record.cases) == sorted(identities)
    assert len(records) < 10
    brackets = [record.gpus[0]["bracket"] for record in records]
    assert brackets == sorted(brackets) and len({tuple(bracket) for bracket in brackets}) == len(records)


def test_the_whole_watch_is_summed_once_and_the_hardware_is_told_once(session, ledger, nvml_script):
    session.watch(gpus(0))
    sampled(session)
    ran(session, ledger, 1, ranks=1)
    nvml_script.field(0, 83, 4_000_000)
    nvml_script.write()
    sampled(session)
    session.watch(gpus(0))  # the same again: nothing happens
    ran(session, ledger, 2, ranks=1)
    session.pytest_sessionfinish()
    recorded = ledger.read()
    [hardware] = recorded.hardware
    assert (hardware.source, hardware.period, hardware.driver) == ("nvml", 0.1, {"version": "580.0"})
    assert hardware.gpus[nvml.uuid(0)]["name"] == "Stand-in"
    [whole] = [record for record in recorded.telemetry if not record.cases]
    assert whole.gpus[0]["deltas"]["energy"] == 3000.0
    assert whole.gpus[0]["repeated"] == 0


def test_other_gpus_get_a_recorder_of_their_own(session, ledger):
    session.watch(gpus(0))
    sampled(session)
    first, _ = ran(session, ledger, 1, ranks=1)
    pid = session._watch.pid
    session.watch(gpus(1, 0))
    assert session._watch.pid != pid
    sampled(session)
    second, _ = ran(session, ledger, 2)
    session.pytest_sessionfinish()
    recorded = ledger.read()
    assert [gpu["gpu"] for gpu in recorded.telemetry_of(first).gpus] == [nvml.uuid(0)]
    assert [gpu["gpu"] for gpu in recorded.telemetry_of(second).gpus] == [nvml.uuid(1), nvml.uuid(0)]
    assert sum(1 for record in recorded.telemetry if not record.cases) == 2


def test_marks_name_the_rank(session, ledger, nvml_script):
    session.watch(gpus(0, 1))
    sampled(session)
    nvml_script.field(1, 3, 1)
    started = time.time()
    nvml_script.write()
    sampled(session)
    identity = ledger.case(1)
    session.case(identity, [(started, time.time())] * 2, ledger)
    session.pytest_sessionfinish()
    assert ledger.read().telemetry_of(identity).marks == ("rank 1: memory error (RAS/ECC): ecc_corrected +1",)


def test_a_dead_recorder_is_a_reason_for_every_case_and_holds_none_up(session, ledger, monkeypatch):
    session.watch(gpus(0))
    sampled(session)
    os.kill(session._watch.pid, signal.SIGKILL)
    session._watch.wait(1 << 30, 5)
    monkeypatch.setattr(telemetry, "LATE", 60.0)
    began = time.monotonic()
    identities = [ran(session, ledger, number, ranks=1)[0] for number in range(3)]
    session.pytest_sessionfinish()
    assert time.monotonic() - began < 30
    recorded = ledger.read()
    for identity in identities:
        assert recorded.telemetry_of(identity).gpus[0]["reason"].startswith("the recorder process ended")
    assert recorded.problems == []


def test_a_library_that_is_missing_is_a_reason_and_never_a_failed_case(session, ledger, nvml_script):
    nvml_script.say("nvmlInitWithFlags", 12)
    nvml_script.write()
    session.watch(gpus(0))
    identity, _ = ran(session, ledger, 1, ranks=1)
    session.pytest_sessionfinish()
    recorded = ledger.read()
    assert recorded.telemetry_of(identity).gpus[0]["reason"] == "nvml: nvmlInit: NVML Shared Library Not Found"
    [hardware] = recorded.hardware
    assert "nvmlInit" in hardware.unavailable[nvml.uuid(0)]
    assert recorded.cases[0].verdict == evidence.Verdict.PASS


@pytest.mark.slow
def test_a_recorder_that_goes_silent_costs_a_case_nothing_and_the_end_a_bounded_wait(session, ledger, monkeypatch):
    monkeypatch.setattr(telemetry, "LATE", 4.0)
    session.watch(gpus(0))
    sampled(session)
    os.kill(session._watch.pid, signal.SIGSTOP)
    began = time.monotonic()
    identity, _ = ran(session, ledger, 1, ranks=1)
    assert time.monotonic() - began < 3
    session.pytest_sessionfinish()
    assert time.monotonic() - began < 60
    assert ledger.read().telemetry_of(identity).gpus[0]["reason"] == "no sample arrived within 4 s after it"


def test_without_gpus_cases_have_no_telemetry_record(session, ledger):
    identity, _ = ran(session, ledger, 1)
    session.pytest_sessionfinish()
    recorded = ledger.read()
    assert (recorded.telemetry_of(identity), recorded.telemetry, recorded.hardware) == (None, [], [])
