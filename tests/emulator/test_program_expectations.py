"""Ordinary Triton programs get what they expect of a device beyond correct results."""

import contextvars
import gc
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.language import target_info
from triton.tools.tensor_descriptor import TensorDescriptor

from fixtures.findings import Findings
from harness import emulator
from harness.emulator import DeviceAssert, KernelTrap, MemoryFault, NoProgress
from harness.isa.compile_only import target
from harness.telemetry import EmulatedRecorder, launches_by_kernel
from tests.emulator import printing_kernels


@triton.jit
def copy(source, target, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(target + i, tl.load(source + i))


@triton.jit
def through_descriptor(descriptor, row, out, SIZE: tl.constexpr):
    tile = descriptor.load([row, 0])
    i = tl.arange(0, SIZE)
    tl.store(out + i[:, None] * SIZE + i[None, :], tile)
    descriptor.store([row, 0], tile + 1)


@triton.jit
def scaled_through_descriptor(scaled, out, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    tl.store(out + i[:, None] * SIZE + i[None, :], scaled[1].load([0, 0]) * scaled[0])


@triton.jit
def copy_from_address(address, target, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(target + i, tl.load(address.to(tl.pointer_type(tl.float32)) + i))


@triton.jit
def copy_from_table(table, target, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    source = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    tl.store(target + tl.program_id(0) * BLOCK + i, tl.load(source + i))


@triton.jit
def spilling_product(source, out, BLOCK: tl.constexpr):
    """Multiply a tile that is too large for the registers of one wavefront."""
    i = tl.arange(0, BLOCK)
    tile = tl.load(source + i[:, None] * BLOCK + i[None, :])
    tl.store(out + i[:, None] * BLOCK + i[None, :], tl.dot(tile, tile))


class Foreign:
    """A tensor of another library, which has an address and a dtype."""

    dtype = torch.float32

    def __init__(self, tensor):
        self.data_ptr = tensor.data_ptr


@pytest.fixture
def device():
    yield emulator.activate()
    emulator.deactivate()


# -- exceptions --------------------------------------------------------------------------------------------------------


def test_a_failed_device_assert_is_a_runtime_error(device):
    with pytest.raises(RuntimeError, match="not negative") as error:
        printing_kernels.print_and_assert[(1,)](torch.ones(1, dtype=torch.int32), debug=True)
    assert type(error.value) is DeviceAssert


@pytest.mark.parametrize("kind", [KernelTrap, MemoryFault, NoProgress])
def test_a_fault_of_a_kernel_is_a_runtime_error(kind):
    assert issubclass(kind, RuntimeError)


def test_a_fault_of_a_kernel_is_not_a_refused_argument():
    """A library that must raise RuntimeError for an argument must not pass because its kernel faults."""

    def fault():
        raise MemoryFault("4-byte access outside")

    findings = Findings(0)
    findings.raises("a call", (MemoryFault, RuntimeError), fault)
    findings.raises("a call", Exception, fault)
    assert findings.first is None
    findings.raises("a call", RuntimeError, fault)
    assert "exception for a call" in str(findings.first)


# -- the backend -------------------------------------------------------------------------------------------------------


def test_the_amd_backend_is_active_while_the_emulated_driver_is():
    def is_active():
        return triton.backends.backends["amd"].driver.is_active()

    before = is_active()
    emulator.activate()
    assert is_active()
    emulator.activate()
    emulator.deactivate()
    assert is_active() == before


# -- arguments ---------------------------------------------------------------------------------------------------------


def test_reinterpreted_tensors(device):
    source, target = torch.arange(64, dtype=torch.int8), torch.zeros(64, dtype=torch.uint8)
    copy[(1,)](triton.reinterpret(source, tl.uint8), triton.reinterpret(target, tl.int8), BLOCK=64)
    assert target.tolist() == source.tolist()


@pytest.mark.parametrize("padding", ["zero", "nan"])
def test_tensor_descriptors(device, padding):
    """Rows that lie past the shape are padded on loads and dropped on stores."""
    x, y = torch.rand(24, 16), torch.zeros(16, 16)
    before = x.clone()
    through_descriptor[(1,)](TensorDescriptor(x, [20, 16], [16, 1], [16, 16], padding), 16, y, SIZE=16)
    assert torch.equal(y[:4], before[16:20])
    assert bool((y[4:].isnan() if padding == "nan" else y[4:] == 0).all())
    assert torch.equal(x[16:20], before[16:20] + 1)
    assert torch.equal(x[20:], before[20:])


def test_a_tensor_descriptor_in_a_tuple(device):
    x, y = torch.rand(16, 16), torch.zeros(16, 16)
    descriptor = TensorDescriptor.from_tensor(x, [16, 16])
    scaled_through_descriptor[(1,)]((3.0, descriptor), y, SIZE=16)
    assert torch.equal(y, x * 3.0)


def test_an_address_passed_as_an_integer(device):
    source, target = torch.rand(64), torch.zeros(64)
    copy_from_address[(1,)](source.data_ptr(), target, BLOCK=64)
    assert torch.equal(source, target)


def test_an_address_of_a_tensor_from_before_this_process_was_forked(device):
    source, target = torch.rand(64), torch.zeros(64)
    gc.freeze()  # as the process does from which ranks are forked
    try:
        copy_from_address[(1,)](source.data_ptr(), target, BLOCK=64)
    finally:
        gc.unfreeze()
    assert torch.equal(source, target)


def test_an_object_with_only_an_address(device):
    source, target = torch.rand(64), torch.zeros(64)
    copy[(1,)](Foreign(source), target, BLOCK=64)
    assert torch.equal(source, target)


def test_a_table_of_addresses(device):
    sources, target = [torch.rand(64) for _ in range(3)], torch.zeros(3, 64)
    copy_from_table[(3,)](torch.tensor([source.data_ptr() for source in sources]), target, BLOCK=64)
    assert torch.equal(torch.stack(sources), target)


def test_an_address_gives_access_to_one_tensor_only(device):
    """Past its end the kernel faults, even if the next bytes belong to another live tensor."""
    whole = np.zeros(256, np.float32)
    first, second = torch.from_numpy(whole[:64]), torch.from_numpy(whole[64:])
    assert second.data_ptr() == first.data_ptr() + first.nbytes
    with pytest.raises(MemoryFault, match="a tensor passed by its address"):
        copy_from_address[(1,)](first.data_ptr(), torch.zeros(128), BLOCK=128)


def test_an_address_of_other_memory_must_be_registered(device):
    memory, target = np.ones(64, np.float32), torch.zeros(64)
    with pytest.raises(MemoryFault, match=r"argument address is 0x\w+, .* driver\.register_memory\("):
        copy_from_address[(1,)](memory.ctypes.data, target, BLOCK=64)
    device.register_memory(memory.ctypes.data, memory.nbytes, "memory of NumPy")
    copy_from_address[(1,)](memory.ctypes.data, target, BLOCK=64)
    assert target.tolist() == [1.0] * 64


# -- records -----------------------------------------------------------------------------------------------------------


def test_launch_records_are_bounded_and_their_sums_are_exact(device):
    def launches(limit):
        device.records.limit = limit
        recorder = EmulatedRecorder(device.drain_launches)
        recorder.begin()
        for i in range(7):
            copy[(1 + i,)](torch.zeros(64), torch.zeros(64), BLOCK=64)
            copy_from_address[(1,)](torch.zeros(64), torch.zeros(64), BLOCK=64)
        return recorder.end(), recorder.launches

    wanted, every = launches(100)
    window, records = launches(3)
    assert (len(every), len(records)) == (14, 3 + 2)
    assert {**window, "seconds": 0} == {**wanted, "seconds": 0}
    assert launches_by_kernel(records) == launches_by_kernel(every)
    assert [record.launches for record in records[2:]] == [1, 1, 1]


# -- compiled kernels --------------------------------------------------------------------------------------------------


def test_registers_and_spills_of_a_compiled_kernel(device):
    kernel = spilling_product.warmup(torch.float32, torch.float32, BLOCK=128, num_warps=1, grid=(1,))
    assert kernel.run is not None  # loads the kernel, without a launch
    listing = kernel.asm["amdgcn"]
    assert kernel.n_regs == int(re.search(r"\.vgpr_count:\s+(\d+)", listing)[1]) > 128
    assert kernel.n_spills == int(re.search(r"\.private_segment_fixed_size: (\d+)", listing)[1]) // 4 > 0


def test_scratch_memory_comes_from_the_programs_allocator(device, monkeypatch):
    kernel = copy.warmup(torch.float32, torch.float32, BLOCK=64, grid=(1,))
    x, y = torch.rand(64), torch.zeros(64)
    kernel[(1, 1, 1)](x, y, 64)
    assert torch.equal(x, y)
    monkeypatch.setattr(kernel.run.arguments, "scratch", ((128, 16), (0, 1)))
    with pytest.raises(RuntimeError, match="no allocator was set"):
        kernel[(3, 1, 1)](x, y, 64)
    calls = []

    def allocate(size, align, stream):
        calls.append((size, align, stream))
        return torch.empty(size, dtype=torch.int8)

    def launch():
        triton.set_allocator(allocate)
        kernel[(3, 1, 1)](x, y, 64)

    contextvars.copy_context().run(launch)
    assert calls == [(3 * 128, 16, 0)]


def test_hooks_and_benchmarks(device):
    x, y, seen = torch.rand(64), torch.zeros(64), []

    def enter(metadata):
        seen.append(metadata.get()["name"])

    hooks = triton.knobs.runtime.launch_enter_hook
    hooks.add(enter)
    try:
        copy[(1,)](x, y, BLOCK=64)
    finally:
        hooks.remove(enter)
    assert seen == ["copy"]
    assert triton.testing.do_bench(lambda: copy[(1,)](x, y, BLOCK=64), warmup=1, rep=2) > 0


def test_a_kernel_that_outlives_the_device_is_not_unloaded_by_another_driver(device, monkeypatch):
    unloaded = []
    utils = SimpleNamespace(unload_module=unloaded.append)
    monkeypatch.setattr(triton.runtime.driver, "_default", SimpleNamespace(utils=utils, launcher_cls="another's"))
    kernel = copy.warmup(torch.float32, torch.float32, BLOCK=32, grid=(1,))
    assert kernel.run is not None
    emulator.deactivate()
    active = triton.runtime.driver.active
    active.utils.unload_module(kernel.module)  # as Triton does when the kernel is collected
    with target("cuda", 90):
        compiled_only = copy.warmup(torch.float32, torch.float32, BLOCK=32, grid=(1,))
        assert compiled_only.run is not None
    active.utils.unload_module(compiled_only.module)
    assert unloaded == []
    active.utils.unload_module(7)
    assert (unloaded, active.launcher_cls) == ([7], "another's")


def test_code_compiled_after_the_device_knows_no_target_where_there_is_no_gpu(monkeypatch):
    """As before the device: Triton's ``current_target`` is None without a GPU, and the GPU's target with one."""

    def no_gpu():
        raise RuntimeError("0 active drivers ([]). There should only be one.")

    emulator.activate()
    emulator.deactivate()
    monkeypatch.setattr(triton.runtime.driver, "_default", None)
    monkeypatch.setattr(sys.modules["triton.runtime.driver"], "_create_driver", no_gpu)
    assert target_info.current_target() is None
    gpu = SimpleNamespace(get_current_target=lambda: "sm_90")
    monkeypatch.setattr(triton.runtime.driver, "_default", gpu)
    assert target_info.current_target() == "sm_90"
