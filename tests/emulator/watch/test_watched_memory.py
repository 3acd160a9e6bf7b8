"""Kernels that print, assert, call and spill run in every watched mode: the host answers there too."""

import numpy as np
import pytest
import torch

from harness import emulator
from harness.emulator import DeviceAssert
from harness.emulator.driver.schedule import Scheduler
from harness.emulator.execution.allocations import Allocations
from harness.emulator.execution.launch import Launch
from harness.emulator.program.decode import decode
from harness.emulator.watch import make
from tests.emulator import memory_kernels, printing_kernels
from tests.emulator.single import listing


@pytest.fixture(params=["check", "weak", "race"])
def device(request):
    choices = None if request.param == "check" else 3
    yield emulator.activate("gfx942", mode=request.param, choices=choices)
    emulator.deactivate()


def test_printing(device, capsys):
    printing_kernels.print_scalars[(1,)](3, num_warps=2)
    lines = capsys.readouterr().out.splitlines()
    assert sorted(set(lines)) == ["pid (0, 0, 0) done", "pid (0, 0, 0) idx () turn: 1"]
    assert len(lines) == 4 * 64 * 2


def test_ranks_print_together(device, capsys):
    """No other process changes the memory there; only the host answers."""
    with emulator.concurrent_ranks(device) as ranks:
        for rank in (1, 0):
            with ranks.rank(rank):
                printing_kernels.print_scalars[(1,)](2, num_warps=1)
    assert len(capsys.readouterr().out.splitlines()) == 2 * 3 * 64


def test_asserting(device):
    """The compiled service code reuses registers of loads in flight: the data of the later load must stay."""
    x = torch.arange(128, dtype=torch.int32)
    printing_kernels.assert_below[(1,)](x, 128, 128, num_warps=2, debug=True)
    assert x.tolist() == list(range(1, 129))
    with pytest.raises(DeviceAssert, match="a value is too large") as caught:
        printing_kernels.assert_below[(1,)](x, 101, 128, num_warps=2, debug=True)
    assert (caught.value.where["wavefront"], caught.value.where["lane"]) == (1, 36)


def test_spilling(device):
    a, out = torch.arange(4096, dtype=torch.float32) % 7, torch.empty(4096)
    memory_kernels.running_sum[(1,)](a, out, 4096, num_warps=1, waves_per_eu=8)
    assert torch.equal(out, a.cumsum(0) * a.flip(0) + a)


@pytest.mark.parametrize("mode", ["check", "weak", "race"])
def test_copying_to_lds(mode):
    """Tiles are copied to LDS without registers: their data is there after the wait."""
    a, b = (torch.arange(64 * 128).view(64, 128) % 7 - 3).half(), (torch.arange(128 * 64).view(128, 64) % 5 - 2).half()
    try:
        for seed in range(2 if mode == "weak" else 1):
            emulator.activate("gfx950", mode=mode, choices=None if mode == "check" else seed)
            c = torch.empty(64, 64)
            code = memory_kernels.pipelined[(1,)](a, b, c, 128, 64, 64, 64, num_warps=4).asm["amdgcn"]
            assert " offen lds" in code
            assert torch.equal(c, a.float() @ b.float())
    finally:
        emulator.deactivate()


@pytest.mark.parametrize("seed", range(6))
def test_an_access_without_lanes_counts(seed):
    """vmcnt(1) waits for the first load: the second, out of its buffer's range in every lane, is in flight too."""
    memory = np.array([42, 0], np.uint32)
    address = memory.ctypes.data
    low, high = address & 0xFFFFFFFF, address >> 32
    text = listing(
        f"v_mov_b32_e32 v8, {low:#x}", f"v_mov_b32_e32 v9, {high:#x}", "v_mov_b32_e32 v10, 64", "s_mov_b64 exec, 1",
        f"s_mov_b32 s4, {low:#x}", f"s_mov_b32 s5, {high:#x}", "s_mov_b32 s6, 8", "s_mov_b32 s7, 0x27000",
        "global_load_dword v1, v[8:9], off", "buffer_load_dword v2, v10, s[4:7], 0 offen", "s_waitcnt vmcnt(1)",
        "v_add_u32_e32 v1, 1, v1", "s_waitcnt vmcnt(0)", "global_store_dword v[8:9], v1, off offset:4", "s_endpgm",
    )  # fmt: skip
    weak = make("weak", seed)
    program, kernarg = decode(text, watch=weak), np.zeros(8, np.uint8)
    launch = Launch(program, (1, 1, 1), 1, 0, kernarg, Allocations(), [(address, 8, "memory")])
    Scheduler([[launch]], weak, closed=True).run()
    assert memory.tolist() == [42, 43]
