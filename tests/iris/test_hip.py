"""``iris_under_test.hip`` on the emulated device, in one process. ROCm: test_hip_rocm.py; CUDA: test_hip_cuda.py."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import driver

import iris_under_test
from harness import emulator
from harness.errors import KernelFault
from iris_under_test import hip
from iris_under_test.host.platform.emulated import runtime as runtime_emulated

GRAIN = 64 << 10


@triton.jit
def add_one_kernel(numbers, COUNT: tl.constexpr):
    """Example: [1, 2] becomes [2, 3]."""
    offsets = tl.arange(0, COUNT)
    tl.store(numbers + offsets, tl.load(numbers + offsets) + 1)


@pytest.fixture(autouse=True)
def _emulated():
    emulator.activate("gfx942")
    before = len(os.listdir("/proc/self/fd")), iris_heaps()
    try:
        yield
        assert (len(os.listdir("/proc/self/fd")), iris_heaps()) == before
        assert not runtime_emulated._mapped
        assert not runtime_emulated._reserved
        assert not runtime_emulated._announced
    finally:
        emulator.deactivate()


def iris_heaps() -> int:
    return Path("/proc/self/maps").read_text("utf-8").count("iris-heap")


def wrapped(ptr: int, count: int = 64) -> torch.Tensor:
    return iris_under_test.tensor_from_ptr(ptr, 4 * count, torch.int32)


def test_what_the_device_is():
    assert hip.get_arch_string() == "gfx942"
    assert (hip.get_device_id(), hip.count_devices()) == (0, 1)
    assert (hip.get_cu_count(), hip.get_cu_count(0)) == (304, 304)
    assert (hip.get_num_xcc(), hip.get_num_xcc(0)) == (8, 8)
    assert hip.get_wall_clock_rate() == 100_000
    assert hip.get_rocm_version() == (-1, -1)
    hip.set_device(0)
    for call in (hip.set_device, hip.get_cu_count, hip.get_arch_string, hip.get_num_xcc, hip.get_wall_clock_rate):
        with pytest.raises(ValueError, match="7"):
            call(7)


def test_no_driver_is_an_error():
    driver._active = None
    if torch.cuda.is_available():
        pytest.skip("this machine's GPU is the active device")
    with pytest.raises(RuntimeError):
        hip.get_device_id()


@pytest.mark.parametrize("allocate", [hip.hip_malloc, hip.malloc_fine_grained])
def test_kernels_reach_memory_until_it_is_freed(allocate):
    ptr = allocate(1000)
    numbers = wrapped(ptr)
    numbers.copy_(torch.arange(64))
    add_one_kernel[(1,)](numbers, 64)
    assert numbers.tolist() == list(range(1, 65))
    assert hip.get_address_range(ptr + 999) == (ptr, 1000)
    plain = Address(ptr)
    add_one_kernel[(1,)](plain, 64)
    hip.hip_free(ptr)
    with pytest.raises(KernelFault, match=hex(ptr)):
        add_one_kernel[(1,)](plain, 64)
    with pytest.raises(RuntimeError, match="was freed before"):
        hip.hip_free(ptr)


class Address:
    """An address alone, as kernels take it: no tensor registers its memory."""

    dtype = torch.int32

    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        return self.address


def test_sizes_and_pointers_that_cannot_be():
    for call in (hip.hip_malloc, hip.malloc_fine_grained, hip.mem_create):
        for size in (0, -1):
            with pytest.raises(ValueError, match=str(size)):
                call(size)
    with pytest.raises(RuntimeError):
        hip.hip_malloc(1 << 62)
    for call in (hip.hip_free, hip.get_address_range, hip.get_ipc_handle, hip.close_ipc_handle):
        with pytest.raises(RuntimeError, match="0x10"):
            call(0x10)


def test_the_range_of_memory_that_others_mapped():
    with mmap.mmap(-1, 1 << 22) as mapping:  # malloc's memory may be several mappings
        tensor = torch.frombuffer(mapping, dtype=torch.uint8)
        base, size = hip.get_address_range(tensor.data_ptr() + 5)
        assert base <= tensor.data_ptr()
        assert tensor.data_ptr() + tensor.numel() <= base + size
        del tensor


def test_interprocess_handles_are_for_other_processes():
    ptr = hip.hip_malloc(100)
    handle = hip.get_ipc_handle(ptr + 50)
    assert len(handle) == 64
    with pytest.raises(RuntimeError, match="this very process"):
        hip.open_ipc_handle(handle)
    with pytest.raises(ValueError, match="3"):
        hip.open_ipc_handle(b"abc")
    hip.hip_free(ptr)


def test_a_descriptor_is_a_second_mapping():
    ptr = hip.hip_malloc(8192)
    fd, base, size = hip.export_dmabuf_handle(ptr + 4096, 4096)
    assert (base, size) == (ptr, 8192)
    memory, again = hip.import_dmabuf_handle(fd, size)
    os.close(fd)
    assert again != ptr
    wrapped(ptr + 4096).fill_(7)
    add_one_kernel[(1,)](wrapped(again + 4096), 64)
    assert wrapped(ptr + 4096).tolist() == [8] * 64
    hip.hip_free(ptr)
    assert wrapped(again + 4096).tolist() == [8] * 64, "the memory stays while it is mapped somewhere"
    hip.destroy_external_memory(memory)
    with pytest.raises(RuntimeError, match="was freed before"):
        hip.destroy_external_memory(memory)


def test_descriptors_that_cannot_be():
    ptr = hip.hip_malloc(4096)
    with pytest.raises(RuntimeError, match="end beyond"):
        hip.export_dmabuf_handle(ptr + 1, 4096)
    fd, _, _ = hip.export_dmabuf_handle(ptr, 4096)
    with pytest.raises(RuntimeError, match="has 4096"):
        hip.import_dmabuf_handle(fd, 4097)
    os.close(fd)
    with pytest.raises(RuntimeError, match="Bad file"):
        hip.import_dmabuf_handle(fd, 4096)
    hip.hip_free(ptr)


def test_virtual_memory():
    """Two chunks in one range, the second one also somewhere else; kernels reach it once they have been let."""
    assert hip.get_allocation_granularity() == GRAIN
    start = hip.mem_address_reserve(4 * GRAIN)
    handles = [hip.mem_create(GRAIN), hip.mem_create(GRAIN)]
    for number, handle in enumerate(handles):
        hip.mem_map(start + number * GRAIN, GRAIN, 0, handle)
    plain = Address(start + GRAIN)
    with pytest.raises(KernelFault, match=hex(plain.address)):
        add_one_kernel[(1,)](plain, 64)
    hip.mem_set_access(start, 2 * GRAIN)
    add_one_kernel[(1,)](plain, 64)

    fd = hip.mem_export_to_shareable_handle(handles[1])
    imported = hip.mem_import_from_shareable_handle(fd)
    os.close(fd)
    hip.mem_map(start + 3 * GRAIN, GRAIN, 0, imported)
    assert wrapped(start + 3 * GRAIN).tolist() == [1] * 64

    for handle in (*handles, imported):
        hip.mem_release(handle)
    assert wrapped(start + GRAIN).tolist() == [1] * 64, "released, it stays while it is mapped"
    for number in (0, 1, 3):
        hip.mem_unmap(start + number * GRAIN, GRAIN)
    with pytest.raises(KernelFault, match=hex(plain.address)):
        add_one_kernel[(1,)](plain, 64)
    hip.mem_address_free(start, 4 * GRAIN)


def test_virtual_memory_that_cannot_be():
    start = hip.mem_address_reserve(2 * GRAIN)
    handle = hip.mem_create(GRAIN)
    hip.mem_map(start, GRAIN, 0, handle)
    for call, match in {
        "twice": (lambda: hip.mem_map(start, GRAIN, 0, handle), "mapped already"),
        "beyond the range": (lambda: hip.mem_map(start + 2 * GRAIN, GRAIN, 0, handle), "not reserved"),
        "more than there is": (lambda: hip.mem_map(start + GRAIN, 2 * GRAIN, 0, handle), "not reserved"),
        "an offset": (lambda: hip.mem_map(start + GRAIN, GRAIN, GRAIN, handle), "offset"),
        "half a granule": (lambda: hip.mem_map(start + GRAIN, 100, 0, handle), "granularity"),
        "access to nothing": (lambda: hip.mem_set_access(start, 2 * GRAIN), "not all"),
        "a part": (lambda: hip.mem_unmap(start, 2 * GRAIN), "one call"),
        "freeing what is mapped": (lambda: hip.mem_address_free(start, 2 * GRAIN), "mapped there"),
        "half a granule created": (lambda: hip.mem_create(100), "granularity"),
    }.values():
        with pytest.raises(RuntimeError, match=match):
            call()
    hip.mem_unmap(start, GRAIN)
    hip.mem_release(handle)
    with pytest.raises(RuntimeError, match="Bad file"):
        hip.mem_export_to_shareable_handle(handle)
    hip.mem_address_free(start, 2 * GRAIN)


def test_amd_functions_say_so_elsewhere(monkeypatch):
    """On CUDA: whatever the arguments, and before anything of CUDA is touched."""
    from iris_under_test.host.platform.cuda.runtime import CudaRuntime

    monkeypatch.setattr(hip, "_runtime", CudaRuntime)
    for call in (
        lambda: hip.export_dmabuf_handle(0, 1),
        lambda: hip.import_dmabuf_handle(0, 1),
        lambda: hip.destroy_external_memory(None),
        lambda: hip.get_allocation_granularity(0),
        lambda: hip.mem_create(1),
        lambda: hip.mem_release(None),
        lambda: hip.mem_export_to_shareable_handle(None),
        lambda: hip.mem_import_from_shareable_handle(0),
        lambda: hip.mem_address_reserve(1),
        lambda: hip.mem_address_free(0, 1),
        lambda: hip.mem_map(0, 1, 0, None),
        lambda: hip.mem_unmap(0, 1),
        lambda: hip.mem_set_access(0, 1),
    ):
        with pytest.raises(RuntimeError, match="AMD devices only; the active device is cuda"):
            call()
    assert hip.get_num_xcc.__doc__


@pytest.mark.parametrize(
    ("text", "simulated"), [("1", True), ("TRUE", True), ("yes", True), ("0", False), ("", False), (None, False)]
)
def test_simulation(monkeypatch, text, simulated):
    if text is None:
        monkeypatch.delenv("IRIS_SIMULATION", raising=False)
    else:
        monkeypatch.setenv("IRIS_SIMULATION", text)
    assert iris_under_test.is_simulation_env() is simulated


def test_device_of_a_rank():
    assert [iris_under_test.get_device_id_for_rank(rank) for rank in (0, 1, 9)] == [0, 1, 9]
    with pytest.raises(ValueError, match="-1"):
        iris_under_test.get_device_id_for_rank(-1)
