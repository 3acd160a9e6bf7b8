"""Texts about the state of a device and a heap, with stand-ins for a GPU."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import torch

from fixtures import describe
from harness.errors import KernelFault
from harness.oracles import HeapImage
from harness.ranks import flight_recorder

FRAMES = [
    {"name": "all_reduce", "filename": "/opt/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py"},
    {"name": "exchange", "filename": "/home/someone/case.py", "line": 25},
    {"name": "<module>", "filename": "/home/someone/case.py", "line": 57},
]


def entry(state, number=101, frames=FRAMES, **changes):
    """As torch 2.11 records it."""
    return {
        "frames": frames,
        "record_id": number - 1,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "thread_name": "python",
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[4, 2]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4, 2]],
        "output_dtypes": ["Float"],
        "state": state,
        "is_p2p": False,
        "retired": state == "completed",
        **changes,
    }


def trace(*entries):
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    return {"version": "2.10", "pg_config": groups, "pg_status": {}, "entries": list(entries)}


# -- the flight recorder -----------------------------------------------------------------------------------------------


def test_a_pending_collective_is_told_with_its_caller():
    report = flight_recorder.text(trace(entry("completed", 100), entry("scheduled", 101), entry("started", 102)))
    shapes = "input Float[4, 2], output Float[4, 2]"
    assert report.splitlines() == [
        "pending NCCL collectives, 2, oldest first",
        f"  nccl:all_reduce number 101 of group 0 (default_pg), ranks [0, 1]: {shapes}; enqueued, not ended",
        "    called in exchange (/home/someone/case.py:25)",
        f"  nccl:all_reduce number 102 of group 0 (default_pg), ranks [0, 1]: {shapes}; running, not ended",
        "    called in exchange (/home/someone/case.py:25)",
    ]


def test_a_rank_that_entered_none_names_the_last_one():
    report = flight_recorder.text(trace(entry("completed", 100), entry("completed", 101)))
    assert report.startswith("no NCCL collective is pending; the last one was\n  nccl:all_reduce number 101 ")
    assert report.splitlines()[1].endswith("; ended")
    assert flight_recorder.text(trace()) == "the flight recorder of NCCL holds no collective"


def test_odd_entries_and_many_of_them_are_told_too():
    sent = entry("scheduled", 7, [], profiling_name="nccl:send 0->1", is_p2p=True, p2p_seq_id=3)
    report = flight_recorder.text(trace(sent, *(entry("scheduled", number) for number in range(9))))
    assert "nccl:send 0->1 number 3 of group 0" in report
    assert report.splitlines()[0] == "pending NCCL collectives, 10, oldest first"
    assert report.splitlines()[-1] == "  and 2 more"
    assert "group ?" in flight_recorder.text({"entries": [{"state": "scheduled"}]})


def test_a_torch_without_it_is_said(monkeypatch: pytest.MonkeyPatch):
    from torch._C import _distributed_c10d

    monkeypatch.delattr(_distributed_c10d, "_dump_nccl_trace", raising=False)
    assert flight_recorder.pending() == "(this build of torch has no flight recorder for NCCL)"


# -- the heap ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def image():
    heap = HeapImage(torch.empty(1 << 14, dtype=torch.uint8), 0)
    heap.reset()
    return heap


def lines(image):
    return [
        describe.region_text(image, region, describe.Snapshot(image.arena).take(image.arena))
        for region in image.regions
    ]


def test_flags_are_told_in_full(image):
    flags = image.claim("flags", 1024, 4, torch.int32)
    image.fill(flags, torch.tensor([0, 1, 0, 0], dtype=torch.int32))
    assert lines(image) == ["  flags, 4 int32 at byte 1024: [0, 1, 0, 0], as it should end"]
    image.expect(flags, torch.tensor([1, 1, 1, 1], dtype=torch.int32))
    assert lines(image) == ["  flags, 4 int32 at byte 1024: [0, 1, 0, 0], should end as [1, 1, 1, 1]"]


def test_of_large_and_floating_regions_the_first_differences_are_told(image):
    data = image.claim("data", 1024, 100, torch.int32)
    image.fill(data, torch.arange(100, dtype=torch.int32))
    image.tensor(data)[40:50] = 7
    half = image.claim("half", 4096, 4, torch.float16)
    image.fill(half, torch.ones(4, dtype=torch.float16))
    data_said, half_said = lines(image)
    assert data_said == (
        "  data, 100 int32 at byte 1024: 10 of 100 elements are not as they should end: [40] is 7, should be 40;"
        " [41] is 7, should be 41; [42] is 7, should be 42; [43] is 7, should be 43; ..."
    )
    assert half_said == "  half, 4 float16 at byte 4096: as it should end"
    image.tensor(half)[3] = 0.5
    assert lines(image)[1].endswith("1 of 4 elements are not as they should end: [3] is 0.5, should be 1.0")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fnuz, torch.float64, torch.bool, torch.int8])
def test_every_type_can_be_told(image, dtype):
    region = image.claim("some", 512, 8, dtype)
    image.fill(region, torch.ones(8).to(dtype))
    image.tensor(region)[5] = torch.zeros(1).to(dtype)[0]
    assert "should be" in lines(image)[0] or "should end as" in lines(image)[0]


# -- all of it ---------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch):
    """Give every part enough time to answer, on a busy machine too."""
    monkeypatch.setattr(describe, "LIMIT", 20.0)


class Launches:
    def __init__(self, lines):
        self.lines = lines

    def recent(self):
        return self.lines


class Iris:
    """Instances with device barriers, by group."""

    def __init__(self, **barriers):
        self._device_barrier_state = {None if name == "world" else name: words for name, words in barriers.items()}


def env(image, recent=(), take=None, where="cuda", iris=None):
    snapshot = describe.Snapshot(image.arena) if take is None else SimpleNamespace(take=take)
    backend = "gloo" if where == "cpu" else "cpu:gloo,cuda:nccl"
    device = SimpleNamespace(torch_device=torch.device(where), backend=backend, launches=Launches(list(recent)))
    return SimpleNamespace(device=device, image=image, snapshot=snapshot, iris=iris, emulator=None)


def test_a_gpu_names_its_last_launches_and_its_collectives(image, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flight_recorder, "pending", lambda: flight_recorder.text(trace(entry("scheduled"))))
    image.fill(image.claim("flags", 1024, 2, torch.int64), torch.tensor([3, 4]))
    report = describe.describe(env(image, ["launch 1: put [1234]", "launch 2: wait_for_flag [5678]"]))
    assert "  launch 1: put [1234]\n  launch 2: wait_for_flag [5678]\n" in report
    assert "flags, 2 int64 at byte 1024: [3, 4], as it should end" in report
    assert "nccl:all_reduce number 101" in report
    assert "no kernel of Triton was enqueued" in describe.describe(env(image))


def test_the_emulated_device_speaks_for_itself(image):
    report = describe.describe(env(image, where="cpu"))
    assert report == "no kernel is running on the emulated device\nthe case has claimed no part of the heap"


def test_a_part_that_fails_or_hangs_leaves_the_others(image, monkeypatch: pytest.MonkeyPatch):
    def lost(memory):
        raise KernelFault("the context is gone")

    monkeypatch.setattr(flight_recorder, "pending", lambda: time.sleep(60))
    monkeypatch.setattr(describe, "LIMIT", 3.0)
    image.claim("flags", 1024, 2, torch.int64)
    started = time.monotonic()
    report = describe.describe(env(image, ["launch 1: spin [1234]"], take=lost))
    assert time.monotonic() - started < 30
    assert "launch 1: spin" in report
    assert "(the heap failed: KernelFault('the context is gone'))" in report
    assert "(the flight recorder gave no answer within 3.5 s)" in report


def test_a_device_that_does_not_copy_is_said(image):
    image.claim("flags", 1024, 2, torch.int64)
    assert "the device copied nothing within 20 s" in describe.describe(env(image, take=lambda memory: None))


def test_barrier_words_of_every_instance_are_told(image):
    iris = Iris(world=torch.tensor([7, 6], dtype=torch.int32))
    other = Iris(some=torch.tensor([1, 2], dtype=torch.int32), broken=None)
    report = describe.describe(env(image, where="cpu", iris=iris))
    assert "barrier words of the world: [7, 6]" in report
    assert "barrier words of group some: [1, 2]" in report
    assert "broken" not in report
    del other


def test_a_snapshot_is_of_one_moment(image):
    image.arena.fill_(1)
    snapshot = describe.Snapshot(image.arena)
    taken = snapshot.take(image.arena)
    image.arena.fill_(2)
    words = snapshot.take(torch.arange(4).view(2, 2))
    assert bool((taken == 1).all())
    assert words.tolist() == [[0, 1], [2, 3]]
