"""``iris_under_test.device.utils``: its code on every target, and the suite's checks of it on planted faults."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language.target_info import is_hip

from conformance.device import test_clock, test_place
from conformance.support.cases import HostCase
from harness import emulator
from iris_under_test.device import utils

TARGETS = {
    "gfx942": GPUTarget("hip", "gfx942", 64),
    "gfx950": GPUTarget("hip", "gfx950", 64),
    "sm_90": GPUTarget("cuda", 90, 32),
}


@triton.jit
def kernel(out):
    start = utils.read_realtime()
    tl.store(out + 1, utils.get_cu_id())
    tl.store(out + 2, utils.get_xcc_id())
    tl.store(out, utils.read_realtime() - start)


@pytest.mark.parametrize("name", TARGETS)
def test_code(name):
    emulator.activate(name if name.startswith("gfx") else "gfx942")
    if name == "sm_90":
        from harness.isa.compile_only import target

        with target("cuda", 90):
            text = kernel[(1,)](torch.zeros(3, dtype=torch.int64), num_warps=1).asm["ptx"]
        assert text.count("%globaltimer;") == 2
        assert text.count("%smid;") == 1
        return
    source = ASTSource(kernel, {"out": "*i64"}, {})
    text = triton.compile(source, target=TARGETS[name], options={"num_warps": 1}).asm["amdgcn"]
    emulator.deactivate()
    lines = [line.strip() for line in text.splitlines()]
    reads = [i for i, line in enumerate(lines) if line.startswith("s_memrealtime")]
    assert len(reads) >= 2, "one for each in the source; LLVM may copy the end of a kernel for its other lanes"
    assert all(lines[i + 1].startswith("s_waitcnt lgkmcnt(0)") for i in reads)
    assert sum("HW_REG_XCC_ID, 0, 4" in line for line in lines) == 1
    assert sum("HW_REG_HW_ID, 8, 8" in line for line in lines) == 1


# -- planted faults ----------------------------------------------------------------------------------------------------


@triton.jit
def slow_clock():
    return utils.read_realtime() // 8


@triton.jit
def backward_clock():
    return -utils.read_realtime()


@triton.jit
def one_read():
    """A pure read, for comparison: the compiler merges all of them into one."""
    return tl.inline_asm_elementwise("s_memrealtime $0", "=s", [], dtype=tl.int64, is_pure=True, pack=1)


@triton.jit
def nowhere():
    return tl.full([], 0, tl.int32)


@triton.jit
def wavefront_slot():
    """HW_ID from bit 0."""
    return tl.inline_asm_elementwise("s_getreg_b32 $0, hwreg(4, 0, 8)", "=s", [], dtype=tl.int32, is_pure=True, pack=1)


@triton.jit
def whole_register():
    return utils.get_cu_id() << 8 if is_hip() else utils.get_cu_id()


@pytest.fixture
def finding():
    """``finding(module of the suite, language, **replaced)``: what its check finds on the emulated device."""
    emulator.activate()

    def run(suite, language, **replaced):
        names = {"read_realtime": utils.read_realtime, "get_cu_id": utils.get_cu_id, "get_xcc_id": utils.get_xcc_id}
        planted = ModuleType("planted.device.utils")
        vars(planted).update(names | replaced)
        device = SimpleNamespace(name="emulated", torch_device=torch.device("cpu"), synchronize=lambda: None)
        env = SimpleNamespace(rank=0, device=device, module={".device.utils": planted}.__getitem__)
        env.in_library = lambda function: function(env)
        return suite.run(env, HostCase("planted", (language,)))

    yield run
    emulator.deactivate()


@pytest.mark.parametrize("language", test_clock.CLOCKS)
def test_the_library_passes(finding, language):
    assert finding(test_clock, language) is None
    assert finding(test_place, language) is None


@pytest.mark.parametrize(
    ("fault", "message"),
    [(slow_clock, "time between launches"), (backward_clock, "strictly increasing"), (one_read, "strictly increasing")],
)
def test_a_wrong_clock_is_found(finding, fault, message):
    assert message in finding(test_clock, "triton", read_realtime=fault)["what"]


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"get_cu_id": nowhere}, "number of different places"),
        ({"get_cu_id": wavefront_slot}, "number of different places"),
        ({"get_cu_id": whole_register}, "places"),
        ({"get_xcc_id": nowhere}, "dies, in turn"),
        ({"get_cu_id": nowhere, "get_xcc_id": nowhere}, "more than one compute unit"),
    ],
)
def test_a_wrong_place_is_found(finding, replaced, message):
    assert message in finding(test_place, "triton", **replaced)["what"]
