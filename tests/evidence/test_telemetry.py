"""The records of GPUs: what they may hold, how they are joined with cases, and that other evidence has none."""

import dataclasses

import pytest

from harness.errors import HarnessError
from harness.evidence import Store, Verdict, read
from tests.evidence import samples


def test_what_was_measured_is_read_back_and_joined_by_case(tmp_path):
    evidence = read(samples.write(tmp_path / "evidence.jsonl", samples.on_gpus()))
    assert evidence.problems == []
    assert evidence.verdict() is Verdict.PASS
    assert evidence.hardware == [samples.hardware()]
    around, whole = evidence.telemetry
    assert list(around.cases) == [case.id for case in evidence.cases]
    assert not whole.cases
    assert evidence.telemetry_of(evidence.cases[0].id) is around
    assert evidence.telemetry_of("0" * 16) is None


def test_evidence_without_telemetry(tmp_path):
    evidence = read(samples.write(tmp_path / "evidence.jsonl", samples.green()))
    assert evidence.verdict() is Verdict.PASS
    assert (evidence.hardware, evidence.telemetry) == ([], [])


def test_marks_and_reasons_change_no_verdict(tmp_path):
    records = samples.on_gpus()
    case = samples.case(1)
    records[-1:-1] = [samples.telemetry(case, marks=("rank 0: memory error",)), samples.telemetry(reason="it died")]
    assert read(samples.write(tmp_path / "evidence.jsonl", records)).verdict() is Verdict.PASS


@pytest.mark.parametrize(
    "changes",
    [
        {"deltas": {"energy": -1.0}},  # such a delta is a reason instead
        {"gauges": {"power": "N/A"}},
        {"unavailable": {"power": ""}},
        {"bracket": [1.0]},
    ],
)
def test_what_telemetry_must_not_say_is_not_written(tmp_path, changes):
    with Store(tmp_path / "evidence.jsonl", samples.RUN) as store, pytest.raises(HarnessError, match="does not fit"):
        store.append(samples.telemetry(**changes))


def test_a_gpu_has_samples_or_a_reason(tmp_path):
    whole = samples.telemetry()
    neither = dataclasses.replace(whole, gpus=({"rank": 0, "gpu": "GPU-0"},))
    with Store(tmp_path / "evidence.jsonl", samples.RUN) as store, pytest.raises(HarnessError, match="does not fit"):
        store.append(neither)
