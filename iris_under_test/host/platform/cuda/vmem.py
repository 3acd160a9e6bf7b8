"""CUDA's virtual memory management (CUDA driver API, "Virtual Memory Management"), through cuda-bindings.

Memory is passed on as POSIX file descriptors, which need no more than a common host. What a rank maps of a peer is
memory of the peer's GPU, for its own GPU to read and write: access is the importer's to give, for each mapping.
"""

from __future__ import annotations

import errno
from typing import Any

import torch

from iris_under_test.host.platform.base import SharedMemory
from iris_under_test.host.platform.gpu.vmem import shared_or_none, tensor_over

__all__ = ["CudaVirtualMemory"]


class CudaVirtualMemory:
    """See ``base.VirtualMemory``. Handles are the driver's own."""

    largest_chunk: int | None = None

    def __init__(self, device: torch.device) -> None:
        from cuda.bindings import driver

        self._driver = driver
        self._device = device
        self._descriptor = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        self._wanted = driver.CUmemAllocationProp()
        self._wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        self._wanted.location = self._location()
        self._wanted.requestedHandleTypes = self._descriptor
        recommended = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
        self.granularity = int(self._call("cuMemGetAllocationGranularity", self._wanted, recommended))

    def reserve(self, size: int, owner: int) -> int:
        try:
            return int(self._call("cuMemAddressReserve", size, 0, 0, 0))
        except RuntimeError as error:
            raise OSError(errno.ENOMEM, str(error)) from error

    def release(self, address: int, size: int) -> None:
        self._call("cuMemAddressFree", address, size)

    def create(self, size: int) -> Any:
        return self._call("cuMemCreate", size, self._wanted, 0)

    def destroy(self, handle: Any) -> None:
        self._call("cuMemRelease", handle)

    def export(self, handle: Any) -> int:
        return int(self._call("cuMemExportToShareableHandle", handle, self._descriptor, 0))

    def adopt(self, descriptor: int, size: int) -> Any:
        return self._call("cuMemImportFromShareableHandle", descriptor, self._descriptor)

    def map(self, address: int, size: int, handle: Any, owner: int) -> None:
        self._call("cuMemMap", address, size, 0, handle, 0)
        access = self._driver.CUmemAccessDesc()
        access.location = self._location()
        access.flags = self._driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        try:
            self._call("cuMemSetAccess", address, size, [access], 1)
        except RuntimeError:
            self.unmap(address, size)
            raise

    def unmap(self, address: int, size: int) -> None:
        torch.cuda.synchronize(self._device)  # kernels in flight may use it
        self._call("cuMemUnmap", address, size)

    def tensor(self, address: int, size: int, owner: object) -> torch.Tensor:
        return tensor_over(address, size, self._device, owner)

    def share(self, tensor: torch.Tensor) -> SharedMemory | None:
        """Memory that was made by ``cuMemCreate`` for export, such as torch's expandable segments or another heap's;
        what ``cudaMalloc`` gave cannot be mapped a second time."""
        # Of mapped memory, the driver's "allocation" is one mapping.
        base, size = map(int, self._call("cuMemGetAddressRange", tensor.data_ptr()))
        try:
            handle = self._call("cuMemRetainAllocationHandle", tensor.data_ptr())
        except RuntimeError:
            return None
        return shared_or_none(self, handle, base, size, tensor)

    def _location(self) -> Any:
        location = self._driver.CUmemLocation()
        location.type = self._driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        location.id = self._device.index
        return location

    def _call(self, name: str, *arguments: Any) -> Any:
        """Call the function; return its values without the status, as a list if there are several. RuntimeError if it
        failed."""
        status, *values = getattr(self._driver, name)(*arguments)
        if status != self._driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"{name}: {status.name}")
        return values if len(values) > 1 else values[0] if values else None
