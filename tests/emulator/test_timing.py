"""``triton.testing.do_bench`` on the emulated device: it runs, and its times are the host's."""

import pytest
import torch
import triton
import triton.language as tl

from harness import emulator
from harness.emulator.execution import timing


@triton.jit
def add_one(pointer, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(pointer + places, tl.load(pointer + places, mask=places < n) + 1, mask=places < n)


@pytest.fixture(scope="module")
def device():
    yield emulator.activate("gfx942")
    emulator.deactivate()


def test_do_bench_runs_a_kernel_and_returns_its_times(device):
    """Published programs use it this way; every call runs the kernel, and each measured call gives one time."""
    numbers, calls = torch.zeros(64), []

    def launch():
        calls.append(1)
        add_one[(1,)](numbers, 64, 64, num_warps=1)

    times = triton.testing.do_bench(launch, warmup=1, rep=1, return_mode="all")
    assert times and all(time > 0 for time in times)
    assert len(calls) > len(times) and numbers.tolist() == [len(calls)] * 64
    assert len(device.drain_launches()) == len(calls)
    assert triton.testing.do_bench(launch, warmup=1, rep=1) > 0
    low, high = triton.testing.do_bench(launch, warmup=1, rep=1, quantiles=[0.0, 1.0])
    assert 0 < low <= high


def test_events_take_the_hosts_time(device, monkeypatch):
    clock = iter([5_000_000, 7_500_000, 9_000_000, 9_000_000])
    monkeypatch.setattr(timing.time, "perf_counter_ns", lambda: next(clock))
    interface = triton.runtime.driver.active.get_device_interface()
    start, end = interface.Event(enable_timing=True), interface.Event(enable_timing=True)
    with pytest.raises(RuntimeError, match="recorded"):
        start.elapsed_time(end)
    start.record()
    end.record()
    interface.synchronize()
    assert start.elapsed_time(end) == 2.5 and end.query()
    start.record()
    end.record()
    assert start.elapsed_time(end) > 0, "callers divide by the time"
    with pytest.raises(ValueError, match="enable_timing"):
        start.elapsed_time(interface.Event())


def test_graphs_are_refused_by_name(device):
    emulator.activate("gfx942")  # a second time: refused once
    with pytest.raises(NotImplementedError, match=r"triton\.testing\.do_bench_cudagraph needs a GPU.*use .*do_bench"):
        triton.testing.do_bench_cudagraph(lambda: None)


def test_other_drivers_are_not_refused(device, monkeypatch):
    refusing = timing._refusing("do_bench_cudagraph", lambda fn: fn())
    monkeypatch.setattr(triton.runtime.driver.active, "_interface", torch.cpu)
    assert refusing(lambda: "measured") == "measured"
