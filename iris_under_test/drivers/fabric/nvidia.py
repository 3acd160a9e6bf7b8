"""NVIDIA's fabric (NVLink across nodes, as in GB200 NVL72): CUDA virtual memory with fabric handles.

See the CUDA driver API, "Virtual Memory Management" and CU_MEM_HANDLE_TYPE_FABRIC, which needs the GPUs' fabric manager
and the IMEX service with a channel for this user.
"""

from __future__ import annotations

import contextlib
from typing import Any

from iris_under_test.drivers.base import (
    BaseFabricDriver,
    CudaFabricError,
    CudaFabricNotSupported,
    LocalAllocation,
    PeerMapping,
)

from .handles import HANDLE_BYTES, check_handle, check_size, handle_to_tensor, tensor_to_handle

__all__ = [
    "HANDLE_BYTES",
    "CudaFabricError",
    "CudaFabricNotSupported",
    "NvidiaFabricDriver",
    "handle_to_tensor",
    "tensor_to_handle",
]

_TRANSPORT = "cuda_fabric"


class NvidiaFabricDriver(BaseFabricDriver):
    """See ``base.BaseFabricDriver``; errors are CudaFabricError and CudaFabricNotSupported. Needs cuda-bindings."""

    def __init__(self) -> None:
        self._cuda: Any = None
        self._ordinal = -1
        self._granularity = 0
        self._live: set[int] = set()

    def initialize(self, ordinal: int) -> None:
        if self._cuda is not None and ordinal == self._ordinal:
            return
        try:
            from cuda.bindings import driver
        except ModuleNotFoundError as error:
            raise CudaFabricNotSupported(f"cuda-bindings is not installed: {error}") from error
        try:
            status, *_ = driver.cuInit(0)
        except RuntimeError as error:  # raised by cuda-bindings without libcuda
            raise CudaFabricNotSupported(f"there is no CUDA driver: {error}") from error
        if status != driver.CUresult.CUDA_SUCCESS:
            raise CudaFabricNotSupported(f"cuInit: {status.name}")
        self._cuda = driver
        try:
            device = self._call("cuDeviceGet", ordinal)
            wanted = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED
            if not self._call("cuDeviceGetAttribute", wanted, device):
                raise CudaFabricNotSupported(f"CUDA device {ordinal} has no fabric handles")
            context = self._call("cuDevicePrimaryCtxRetain", device)
            self._call("cuCtxSetCurrent", context)
            self._ordinal = ordinal
            minimum = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
            self._granularity = int(self._call("cuMemGetAllocationGranularity", self._properties(), minimum))
            self._probe()
        except BaseException:
            self._cuda = None
            raise

    def allocate_exportable(self, size: int) -> LocalAllocation:
        check_size(size)
        self._ready()
        size = -(-size // self._granularity) * self._granularity
        handle = self._call("cuMemCreate", size, self._properties(), 0)
        address = self._map(handle, size)
        return LocalAllocation(address, size, handle)

    def export_handle(self, allocation: LocalAllocation) -> bytes:
        self._ready()
        self._check_live(allocation.va)
        return bytes(self._call("cuMemExportToShareableHandle", allocation.handle, self._fabric, 0).data)

    def import_and_map(self, peer: int, handle_bytes: bytes, size: int) -> PeerMapping:
        check_handle(handle_bytes)
        check_size(size)
        cuda = self._ready()
        fabric_handle = cuda.CUmemFabricHandle()
        fabric_handle.data = handle_bytes
        # By its address: the binding would take an object for a value in a pointer's place, as a descriptor is.
        handle = self._call("cuMemImportFromShareableHandle", fabric_handle.getPtr(), self._fabric)
        return PeerMapping(peer, _TRANSPORT, self._map(handle, size), size, handle)

    def cleanup_import(self, mapping: PeerMapping) -> None:
        self._unmap(mapping.remote_va, mapping.size, mapping.handle)

    def cleanup_local(self, allocation: LocalAllocation) -> None:
        self._unmap(allocation.va, allocation.size, allocation.handle)

    def _probe(self) -> None:
        """Allocate and export once: a device may have fabric handles while its machine has no fabric."""
        try:
            handle = self._call("cuMemCreate", self._granularity, self._properties(), 0)
        except CudaFabricError as error:
            raise CudaFabricNotSupported(
                f"CUDA device {self._ordinal} gives no memory for a fabric ({error}): is the IMEX service running?"
            ) from error
        try:
            self._call("cuMemExportToShareableHandle", handle, self._fabric, 0)
        except CudaFabricError as error:
            raise CudaFabricNotSupported(f"CUDA device {self._ordinal} exports to no fabric: {error}") from error
        finally:
            self._call("cuMemRelease", handle)

    def _map(self, handle: Any, size: int) -> int:
        """Map the handle for this device at new addresses; release the handle if that fails."""
        cuda = self._cuda
        with contextlib.ExitStack() as undo:
            undo.callback(self._call, "cuMemRelease", handle)
            address = int(self._call("cuMemAddressReserve", size, self._granularity, 0, 0))
            undo.callback(self._call, "cuMemAddressFree", address, size)
            self._call("cuMemMap", address, size, 0, handle, 0)
            undo.callback(self._call, "cuMemUnmap", address, size)
            access = cuda.CUmemAccessDesc()
            access.location = self._properties().location
            access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
            self._call("cuMemSetAccess", address, size, [access], 1)
            undo.pop_all()
        self._live.add(address)
        return address

    def _unmap(self, address: int, size: int, handle: Any) -> None:
        self._ready()
        self._check_live(address)
        self._live.remove(address)
        self._call("cuMemUnmap", address, size)
        self._call("cuMemAddressFree", address, size)
        self._call("cuMemRelease", handle)

    @property
    def _fabric(self) -> Any:
        return self._cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_FABRIC

    def _properties(self) -> Any:
        cuda = self._cuda
        properties = cuda.CUmemAllocationProp()
        properties.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = self._ordinal
        properties.requestedHandleTypes = self._fabric
        return properties

    def _call(self, name: str, *arguments: Any) -> Any:
        status, *values = getattr(self._cuda, name)(*arguments)
        if status != self._cuda.CUresult.CUDA_SUCCESS:
            raise CudaFabricError(f"{name}: {status.name}")
        return values[0] if values else None

    def _ready(self) -> Any:
        if self._cuda is None:
            raise CudaFabricError("the fabric driver is not initialised: call initialize(ordinal) first")
        return self._cuda

    def _check_live(self, address: int) -> None:
        if address not in self._live:
            raise CudaFabricError(f"{address:#x} is not memory of this driver, or was freed before")
