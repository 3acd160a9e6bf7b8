"""Records of launches, by Triton's hooks, on a driver that compiles for sm_90 and enqueues nothing."""

import threading

import pytest
import torch
from triton import knobs
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from harness.devices import cuda, launches
from harness.errors import HarnessError
from harness.isa import codes_of, executed, of_launch
from harness.isa.compile_only import target
from harness.telemetry import launches_by_kernel


@pytest.fixture
def recorder(monkeypatch):
    """Yield a new recorder, and restore Triton's hooks afterwards."""
    monkeypatch.setattr(launches, "_installed", None)
    for name in ("launch_enter_hook", "kernel_load_end_hook", "kernel_unload_hook"):
        if hasattr(knobs.runtime, name):
            monkeypatch.setattr(knobs.runtime, name, knobs.HookChain())
    monkeypatch.setattr(knobs.compilation, "listener", None)
    with target("cuda", 90):
        yield launches.install()


def kernels():
    """Return new functions, so that Triton loads their kernels again."""

    @gluon.jit
    def double(pointer, SPT: gl.constexpr):
        offsets = gl.arange(0, SPT * 32, layout=gl.BlockedLayout([SPT], [32], [1], [0]))
        gl.store(pointer + offsets, gl.load(pointer + offsets) * 2)

    @gluon.jit(launch_metadata=lambda grid, metadata, arguments: {"name": "renamed", "flops": 7})
    def described(pointer):
        gl.store(pointer, 1.0)

    return double, described


def memory():
    return torch.zeros(256)


def test_a_launch_leaves_its_kernel_grid_and_code(recorder):
    double, _ = kernels()
    double[(3, 2)](memory(), 4, num_warps=1)
    [launch] = recorder.drain()
    assert (launch.kernel, launch.grid, launch.stream) == ("double", (3, 2), 0)
    assert len(launch.hash) == 64
    assert ".target sm_90a" in launch.listing
    code = of_launch(launch)
    assert code.widths("local", "store") == {16: 1}
    assert recorder.drain() == []


@pytest.mark.skipif(not cuda.tool("nvdisasm"), reason="needs nvdisasm, of Triton's package or the PATH")
def test_machine_code_is_disassembled_when_somebody_asks(recorder):
    double, _ = kernels()
    double[(1,)](memory(), 4, num_warps=1)
    [launch] = recorder.drain()
    assert launch.code.without_sass is None
    assert "STG.E.128" in launch.sass
    listed, ran = codes_of(launch)
    assert (listed.language, ran.language) == ("ptx", "sass")
    assert listed.registers == ran.registers > 0


def test_without_a_disassembler_there_is_a_reason(recorder, monkeypatch):
    monkeypatch.setattr(cuda, "tool", lambda name: None)
    double, _ = kernels()
    double[(1,)](memory(), 4, num_warps=1)
    [launch] = recorder.drain()
    assert (launch.sass, launch.usage) == (None, "")
    assert "nvdisasm is neither" in launch.code.without_sass
    assert [code.language for code in codes_of(launch)] == ["ptx"]
    assert of_launch(launch).registers is None


def test_what_a_program_of_nvidias_complains_of_is_raised(tmp_path):
    broken = tmp_path / "kernel.cubin"
    broken.write_bytes(b"no cubin")
    code = launches.GpuCode("0" * 64, "kernel", {"kernel.cubin": str(broken)})
    if cuda.tool("nvdisasm"):
        with pytest.raises(HarnessError, match="ended with status"):
            _ = code.sass
    with pytest.raises(HarnessError, match=r"no \.amdgcn or \.ptx"):
        _ = code.listing


def test_amd_code_is_its_own_listing_and_has_no_sass(tmp_path):
    listing = tmp_path / "kernel.amdgcn"
    listing.write_text("the listing")
    code = launches.GpuCode("0" * 64, "kernel", {"kernel.amdgcn": str(listing), "kernel.hsaco": "nowhere"})
    assert (code.listing, code.sass, code.usage) == ("the listing", None, "")
    assert "amdgcn runs" in code.without_sass


def test_a_kernels_own_launch_metadata_stays(recorder):
    _, described = kernels()
    seen = []
    knobs.runtime.launch_enter_hook.add(lambda metadata: seen.append(metadata.get()))
    described[(5,)](memory(), num_warps=1)
    [launch] = recorder.drain()
    assert (launch.kernel, launch.grid) == ("described", (5,))
    assert (seen[0]["name"], seen[0]["flops"]) == ("renamed", 7)


def test_other_hooks_and_listeners_stay(monkeypatch):
    monkeypatch.setattr(launches, "_installed", None)
    for name in ("launch_enter_hook", "kernel_load_end_hook", "kernel_unload_hook"):
        if hasattr(knobs.runtime, name):
            monkeypatch.setattr(knobs.runtime, name, knobs.HookChain())
    called = []
    knobs.runtime.launch_enter_hook.add(lambda metadata: called.append("enter"))
    monkeypatch.setattr(knobs.compilation, "listener", lambda **event: called.append("compiled"))
    with target("cuda", 90):
        first = launches.install()
        assert launches.install() is first
        double, _ = kernels()
        double[(1,)](memory(), 4, num_warps=1)
    assert sorted(called) == ["compiled", "enter"]
    assert len(first.drain()) == 1


def test_a_kernel_that_was_loaded_before_is_an_error_of_the_harness(recorder):
    double, _ = kernels()
    double[(1,)](memory(), 4, num_warps=1)
    recorder._loaded.clear()
    with pytest.raises(HarnessError, match="double was loaded before"):
        double[(1,)](memory(), 4, num_warps=1)


def test_recent_is_text_of_the_last_launches_in_order(recorder):
    double, _ = kernels()
    for blocks in range(1, 21):
        double[(blocks,)](memory(), 4, num_warps=1)
    lines = recorder.recent()
    assert len(lines) == launches.RECENT
    assert lines[-1].startswith("launch 20: double[(20,)] ")
    assert lines[0].startswith("launch 5: double[(5,)] ")
    recorder.drain()
    assert recorder.recent() == lines, "what was drained was still launched"


def test_what_is_kept_is_bounded():
    recorder = launches.Launches(limit=10)
    recorder.loaded(None, 7, "kernel", {}, "0" * 64)
    for number in range(100):
        recorder.entered(_Metadata({"function": 7, "name": "kernel", "stream": number}))
    drained = recorder.drain()
    assert [launch.stream for launch in drained] == list(range(90, 100))
    assert drained[0].grid == ()
    recorder.unloaded(None, 7, "kernel", {}, "0" * 64)
    assert recorder._loaded == {}


class _Metadata:
    def __init__(self, plain):
        self._plain = plain

    def get(self):
        return self._plain


def test_recent_can_be_asked_for_while_others_launch():
    recorder = launches.Launches(limit=100)
    recorder.loaded(None, 7, "kernel", {}, "0" * 64)
    enough = threading.Event()
    launched = []

    def launch():
        while not enough.is_set():
            recorder.entered(_Metadata({"function": 7, "name": "kernel", "stream": 0}))
            launched.append(None)

    thread = threading.Thread(target=launch, daemon=True)
    thread.start()
    try:
        for _ in range(300):
            assert len(recorder.recent()) <= launches.RECENT
            recorder.drain()
    finally:
        enough.set()
        thread.join(timeout=10)
    recorder.entered(_Metadata({"function": 7, "name": "kernel", "stream": 0}))
    assert recorder.recent()[-1].startswith(f"launch {len(launched) + 1}:")


def test_launches_are_summed_like_those_of_the_emulated_device(recorder):
    double, _ = kernels()
    double[(1,)](memory(), 4, num_warps=1)
    double[(2,)](memory(), 4, num_warps=1)
    launched = recorder.drain()
    assert executed(launched).accesses == ()
    assert launches_by_kernel(launched) == {launched[0].hash: {"launches": 2, "accesses": [], "inexact": []}}
