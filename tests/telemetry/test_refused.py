"""A telemetry record that the evidence refuses loses only its own samples, and no later record."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from fixtures.telemetry import Session
from harness import devices, evidence
from harness.errors import HarnessError
from harness.telemetry.watch import Window
from tests.evidence import samples

GPU = "GPU-a"
SAMPLES: dict[str, Any] = {
    "bracket": [1.0, 2.0], "samples": 1, "gauges": {}, "deltas": {}, "active": {}, "unavailable": {}, "marks": [],
}  # fmt: skip


class Watch:
    """``windows``: each case's samples by its start; a case that is not among them has none."""

    lines, ended, hardware, gpus, period = 1, None, None, (GPU,), 0.1

    def __init__(self, windows: dict[float, dict[str, Any]], whole: dict[str, Any] = SAMPLES) -> None:
        self.windows = windows
        self.of_all = whole

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def window(self, gpu: str, started: float, ended: float) -> Window | None:
        return Window(gpu, self.windows[started])

    def whole(self) -> list[Window]:
        return [Window(GPU, self.of_all)]


class Ledger:
    def __init__(self, path: Path) -> None:
        self.store = evidence.Store(path, samples.RUN)
        for record in samples.green()[:5]:
            self.store.append(record)

    def measured(self, record: evidence.Hardware | evidence.Telemetry) -> None:
        self.store.append(record)


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    made = Ledger(tmp_path / "evidence.jsonl")
    yield made
    made.store.close()


def session(watch: Any) -> Session:
    made = Session(devices.kind("cuda").telemetry)
    made._watch, made._gpu_of_rank, made._lines = watch, (GPU,), 1
    return made


def gpus_by_case(ledger: Ledger) -> dict[str, Any]:
    """Case id (or "" for the whole time) -> the entry of its GPU."""
    recorded = evidence.read(ledger.store.path)
    assert not [problem for problem in recorded.problems if "line" in problem]
    return {identity: record.gpus[0] for record in recorded.telemetry for identity in record.cases or [""]}


def test_samples_that_are_refused_are_a_reason_and_cost_no_other_case(ledger: Any) -> None:
    bad = {**SAMPLES, "bracket": [2.0, 3.0], "gauges": {"power": [math.nan, 1.0]}}
    watched = session(Watch({1.0: bad, 2.0: {**SAMPLES, "bracket": [5.0, 6.0]}}, whole=bad))
    first, second = samples.case(1).id, samples.case(2).id
    watched.case(first, [(1.0, 1.5)], ledger)
    watched.case(second, [(2.0, 2.5)], ledger)
    watched.pytest_sessionfinish()
    ledger.store.append(samples.end())
    by_case = gpus_by_case(ledger)
    assert by_case[first]["reason"].startswith("its samples cannot be recorded: a telemetry record is not plain JSON")
    assert by_case[second]["bracket"] == [5.0, 6.0]
    assert "reason" in by_case[""]


def test_the_end_is_written_where_all_telemetry_is_refused(ledger: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(record: Any) -> None:
        raise HarnessError("planted")

    watched = session(Watch({1.0: SAMPLES}))
    ledger.measured = refuse
    watched.case(samples.case(1).id, [(1.0, 1.5)], ledger)
    watched.pytest_sessionfinish()
    assert "the last telemetry is not recorded: planted" in capsys.readouterr().err
    watched.pytest_sessionfinish()


@pytest.mark.parametrize("window", [(math.nan, math.nan), (-math.inf, 1.0), (1.0, math.inf), (2.0, 1.0)])
def test_a_window_that_is_none_is_refused_before_it_is_kept(ledger: Any, window: tuple[float, float]) -> None:
    watched = session(Watch({1.0: SAMPLES}))
    watched.case(samples.case(1).id, [(1.0, 1.5)], ledger)
    with pytest.raises(HarnessError, match="a window is a start and a later end"):
        watched.case(samples.case(2).id, [window], ledger)
    watched.release()
    assert list(gpus_by_case(ledger)) == [samples.case(1).id, ""]
