from dataclasses import dataclass, field

import pytest

from harness.errors import HarnessError
from harness.telemetry import EmulatedRecorder, launches_by_kernel, merge_launches, merge_windows


@dataclass(frozen=True)
class Access:
    kind: str = "store"
    width: int = 16
    where: str = "peer"
    executions: int = 2
    lanes: int = 100
    bytes: int = 1600
    source: str = ""


@dataclass(frozen=True)
class Launch:
    hash: str = "k"
    listing: str = ""
    instructions: dict = field(default_factory=lambda: {"valu": 10, "vmem": 2})
    lanes: dict = field(default_factory=lambda: {"valu": 640})
    accesses: tuple = (Access(), Access(kind="load", where="local", bytes=7))


def test_a_window_holds_what_happened_in_it_and_nothing_before():
    pending = [Launch()] * 5

    def drain():
        launches = list(pending)
        pending.clear()
        return launches

    recorder = EmulatedRecorder(drain)
    recorder.begin()
    pending.extend([Launch(), Launch()])
    window = recorder.end()
    assert window.pop("seconds") >= 0
    assert window == {
        "source": "emulated",
        "launches": 2,
        "instructions": {"valu": 20, "vmem": 4},
        "lanes": {"valu": 1280},
        "bytes": {"local": 14, "peer": 3200},
    }
    assert len(recorder.launches) == 2


def test_a_window_that_was_not_begun_is_an_error():
    with pytest.raises(HarnessError, match="begin"):
        EmulatedRecorder(list).end()


def test_ranks_are_summed():
    window = {"source": "emulated", "launches": 1, "instructions": {"valu": 3}, "seconds": 0.5}
    other = {"source": "emulated", "launches": 2, "instructions": {"vmem": 1}, "seconds": 0.25}
    assert merge_windows([window, other]) == {
        "source": "emulated",
        "launches": 3,
        "instructions": {"valu": 3, "vmem": 1},
        "seconds": 0.5,
        "ranks": 2,
    }
    assert merge_windows([]) == {}
    with pytest.raises(HarnessError, match="rocm"):
        merge_windows([window, {**other, "source": "rocm"}])


def test_launches_are_grouped_by_kernel_and_summed_over_ranks():
    rank = launches_by_kernel([Launch(), Launch(), Launch(hash="other")])
    assert rank["k"]["launches"] == 2
    merged = merge_launches([rank, rank, {}])
    assert merged["k"]["launches"] == 4
    assert merged["other"]["launches"] == 2
    [store] = [entry for entry in merged["k"]["accesses"] if entry["kind"] == "store"]
    assert (store["executions"], store["bytes"], store["peer"]) == (8, 6400, True)
