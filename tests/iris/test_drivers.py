"""Fabric drivers. The NVIDIA one on a stand-in for cuda-bindings; on GPUs: conformance/distributed."""

from __future__ import annotations

import os
import sys
import types
from enum import IntEnum

import pytest
import torch
from triton.runtime import driver

from harness import emulator
from iris_under_test import tensor_from_ptr
from iris_under_test.drivers import base
from iris_under_test.drivers.fabric import HANDLE_BYTES, get_fabric_driver, handle_to_tensor, tensor_to_handle
from iris_under_test.drivers.fabric.amd import AmdFabricDriver
from iris_under_test.drivers.fabric.emulated import EmulatedFabricDriver
from iris_under_test.drivers.fabric.nvidia import NvidiaFabricDriver

GRAIN = 2 << 20


class Result(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_NOT_PERMITTED = 800
    CUDA_ERROR_INVALID_VALUE = 1


def bag(**fields: object) -> types.SimpleNamespace:
    return types.SimpleNamespace(**fields)


class FabricHandle:
    """As cuda-bindings has it: its bytes, and where they are."""

    at: dict[int, FabricHandle] = {}

    def __init__(self) -> None:
        self.data = bytes(64)
        self.at[id(self)] = self

    def getPtr(self) -> int:  # noqa: N802 - the binding's
        return id(self)


class Cuda(types.ModuleType):
    """``cuda.bindings.driver`` as far as the driver uses it. ``refuses``: the call that fails, by name."""

    CUresult = Result
    CUdevice_attribute = bag(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED=128)
    CUmemAllocationGranularity_flags = bag(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED=1)
    CUmemAllocationHandleType = bag(CU_MEM_HANDLE_TYPE_FABRIC=8)
    CUmemAllocationType = bag(CU_MEM_ALLOCATION_TYPE_PINNED=1)
    CUmemLocationType = bag(CU_MEM_LOCATION_TYPE_DEVICE=1)
    CUmemAccess_flags = bag(CU_MEM_ACCESS_FLAGS_PROT_READWRITE=3)
    CUmemFabricHandle = FabricHandle

    def __init__(self) -> None:
        super().__init__("cuda.bindings.driver")
        self.refuses = ""
        self.fabric = 1
        self.memory: set[int] = set()
        self.ranges: dict[int, int] = {}
        self.mapped: dict[int, int] = {}
        self.open: set[int] = set()
        self._next = 1

    def CUmemAllocationProp(self):  # noqa: N802 - the binding's
        return bag(location=bag())

    def CUmemAccessDesc(self):  # noqa: N802 - the binding's
        return bag(location=None)

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments):
            if name == self.refuses:
                return (Result.CUDA_ERROR_NOT_PERMITTED, None)
            value = getattr(self, f"_{name}")(*arguments)
            return (Result.CUDA_SUCCESS,) if value is None else (Result.CUDA_SUCCESS, value)

        return call

    def _number(self) -> int:
        self._next += 1
        return self._next

    def _cuInit(self, flags):  # noqa: N802
        return None

    def _cuDeviceGet(self, ordinal):  # noqa: N802
        return ordinal

    def _cuDeviceGetAttribute(self, attribute, device):  # noqa: N802
        assert attribute == 128
        return self.fabric

    def _cuDevicePrimaryCtxRetain(self, device):  # noqa: N802
        return 77

    def _cuCtxSetCurrent(self, context):  # noqa: N802
        assert context == 77

    def _cuMemGetAllocationGranularity(self, properties, option):  # noqa: N802
        return GRAIN

    def _cuMemCreate(self, size, properties, flags):  # noqa: N802
        assert (properties.requestedHandleTypes, properties.location.id, size % GRAIN, flags) == (8, 3, 0, 0)
        self.memory.add(handle := self._number())
        return handle

    def _cuMemRelease(self, handle):  # noqa: N802
        self.memory.remove(handle)

    def _cuMemExportToShareableHandle(self, handle, kind, flags):  # noqa: N802
        assert handle in self.memory
        exported = FabricHandle()
        exported.data = handle.to_bytes(64, "little")
        return exported

    def _cuMemImportFromShareableHandle(self, pointer, kind):  # noqa: N802
        assert FabricHandle.at[pointer].data != bytes(64)
        self.memory.add(handle := self._number())
        return handle

    def _cuMemAddressReserve(self, size, alignment, address, flags):  # noqa: N802
        address = self._number() * GRAIN
        self.ranges[address] = size
        return address

    def _cuMemAddressFree(self, address, size):  # noqa: N802
        assert address not in self.mapped
        assert self.ranges.pop(address) == size

    def _cuMemMap(self, address, size, offset, handle, flags):  # noqa: N802
        assert (self.ranges[address], handle in self.memory) == (size, True)
        self.mapped[address] = size

    def _cuMemUnmap(self, address, size):  # noqa: N802
        assert self.mapped.pop(address) == size
        self.open.discard(address)

    def _cuMemSetAccess(self, address, size, access, count):  # noqa: N802
        assert (access[0].location.id, access[0].flags, count, self.mapped[address]) == (3, 3, 1, size)
        self.open.add(address)


@pytest.fixture
def cuda(monkeypatch):
    FabricHandle.at.clear()
    module = Cuda()
    package = types.ModuleType("cuda.bindings")
    package.driver = module
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", package)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", module)
    return module


def test_nvidia_round_trip(cuda):
    fabric = NvidiaFabricDriver()
    fabric.initialize(3)
    fabric.initialize(3)
    own = fabric.allocate_exportable(1)
    assert (own.size, cuda.mapped) == (GRAIN, {own.va: GRAIN})
    handle = fabric.export_handle(own)
    assert (type(handle), len(handle)) == (bytes, HANDLE_BYTES)
    theirs = fabric.import_and_map(5, handle, own.size)
    assert (theirs.peer_rank, theirs.transport, theirs.size) == (5, "cuda_fabric", GRAIN)
    assert cuda.open == {own.va, theirs.remote_va}
    fabric.cleanup_import(theirs)
    fabric.cleanup_local(own)
    for again in (lambda: fabric.cleanup_import(theirs), lambda: fabric.cleanup_local(own)):
        with pytest.raises(base.CudaFabricError, match="was freed before"):
            again()
    assert (cuda.memory, cuda.ranges, cuda.mapped, cuda.open) == (set(), {}, {}, set())


@pytest.mark.parametrize("refused", ["cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"])
def test_nvidia_leaves_nothing_when_a_call_fails(cuda, refused):
    fabric = NvidiaFabricDriver()
    fabric.initialize(3)
    own = fabric.allocate_exportable(GRAIN)
    handle = fabric.export_handle(own)
    before = cuda.memory.copy(), cuda.ranges.copy(), cuda.mapped.copy()
    cuda.refuses = refused
    for call in (lambda: fabric.allocate_exportable(GRAIN), lambda: fabric.import_and_map(1, handle, GRAIN)):
        with pytest.raises(base.CudaFabricError, match=f"{refused}: CUDA_ERROR_NOT_PERMITTED"):
            call()
    assert (cuda.memory, cuda.ranges, cuda.mapped) == before


@pytest.mark.parametrize(
    ("refused", "match"),
    [("cuInit", "cuInit"), ("cuMemCreate", "IMEX"), ("cuMemExportToShareableHandle", "exports to no fabric")],
)
def test_nvidia_without_a_fabric(cuda, refused, match):
    fabric, cuda.refuses = NvidiaFabricDriver(), refused
    with pytest.raises(base.CudaFabricNotSupported, match=match):
        fabric.initialize(3)
    assert cuda.memory == set()
    with pytest.raises(base.CudaFabricError, match="not initialised"):
        fabric.allocate_exportable(1)


def test_nvidia_devices_without_fabric_handles(cuda):
    cuda.fabric = 0
    with pytest.raises(base.CudaFabricNotSupported, match="device 3 has no fabric handles"):
        NvidiaFabricDriver().initialize(3)


def test_nvidia_without_the_binding(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(base.CudaFabricNotSupported, match="cuda-bindings is not installed"):
        NvidiaFabricDriver().initialize(0)


def test_amd_has_none():
    fabric = AmdFabricDriver()
    local, peer = base.LocalAllocation(1, 1, None), base.PeerMapping(1, "", 1, 1)
    for call in (
        lambda: fabric.initialize(2),
        lambda: fabric.allocate_exportable(1),
        lambda: fabric.export_handle(local),
        lambda: fabric.import_and_map(1, bytes(64), 1),
        lambda: fabric.cleanup_import(peer),
        lambda: fabric.cleanup_local(local),
    ):
        with pytest.raises(base.DriverNotSupported):
            call()


def test_errors_are_a_family():
    assert issubclass(base.CudaFabricNotSupported, base.CudaFabricError)
    assert issubclass(base.CudaFabricNotSupported, base.DriverNotSupported)
    assert issubclass(base.CudaFabricError, base.DriverError)
    assert issubclass(base.DriverNotSupported, base.DriverError)


@pytest.fixture
def emulated():
    emulator.activate("gfx942")
    before = len(os.listdir("/proc/self/fd"))
    try:
        fabric = get_fabric_driver()
        assert isinstance(fabric, EmulatedFabricDriver)
        with pytest.raises(base.DriverError, match="not initialised"):
            fabric.allocate_exportable(1)
        fabric.initialize(0)
        yield fabric
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        emulator.deactivate()


def test_emulated_own_memory(emulated):
    own = emulated.allocate_exportable(100_000)
    assert own.size == 2 << 16
    tensor_from_ptr(own.va, own.size).fill_(1)
    assert len(emulated.export_handle(own)) == HANDLE_BYTES
    emulated.cleanup_local(own)
    for call in (emulated.cleanup_local, emulated.export_handle):
        with pytest.raises(base.DriverError, match="was freed before"):
            call(own)


def test_emulated_bad_arguments(emulated):
    with pytest.raises(base.DriverNotSupported, match="not 1"):
        emulated.initialize(1)
    with pytest.raises(ValueError, match="-5"):
        emulated.allocate_exportable(-5)
    with pytest.raises(ValueError, match="63"):
        emulated.import_and_map(1, bytes(63), 1 << 16)
    with pytest.raises(ValueError, match="got 0"):
        emulated.import_and_map(1, bytes(64), 0)
    with pytest.raises(base.DriverError, match="memory of rank 1"):
        emulated.import_and_map(1, bytes(64), 1 << 16)
    with pytest.raises(base.DriverError):
        emulated.allocate_exportable(1 << 60)


def test_no_driver_is_an_error():
    driver._active = None
    if torch.cuda.is_available():
        pytest.skip("this machine's GPU is the active device")
    with pytest.raises(RuntimeError):
        get_fabric_driver()


def test_handles_as_tensors():
    handle = bytes(range(HANDLE_BYTES))
    tensor = handle_to_tensor(handle)
    assert (tensor.dtype, tuple(tensor.shape)) == (torch.uint8, (HANDLE_BYTES,))
    assert tensor_to_handle(tensor) == handle
    for wrong in (handle[1:], handle + b"\0", b""):
        with pytest.raises(ValueError, match=str(len(wrong))):
            handle_to_tensor(wrong)
    for wrong in (tensor[1:], tensor.to(torch.int8), torch.zeros(0, dtype=torch.uint8)):
        with pytest.raises(ValueError, match="64 elements"):
            tensor_to_handle(wrong)
