"""ROCm's virtual memory management, through the calls of ``iris_under_test.hip``; descriptors are DMA-BUFs.

This works around a check of ROCm's runtime (its source, ``hip_vm.cpp``): ``hipMemSetAccess`` compares the given
size with the sizes of the range's first mappings, one after the other: a grant for one mapping passes if it has the
size of the first one, a grant from the range's start passes if all before it is mapped. So memory is mapped in chunks
of one size, and where that does not do (a second mapping of other memory), access is granted from the start.
"""

from __future__ import annotations

import errno
import os
from typing import Any

import torch

from iris_under_test.host.platform.access import hipMemAccessFlagsProtReadWrite
from iris_under_test.host.platform.amd import AmdRuntime
from iris_under_test.host.platform.base import SharedMemory
from iris_under_test.host.platform.gpu.vmem import shared_or_none, tensor_over

__all__ = ["RocmVirtualMemory"]

_SMALLEST_CHUNK = 2 << 20  # a page table's leaf on these GPUs; some versions report 4096


class RocmVirtualMemory:
    """See ``base.VirtualMemory``. Handles are the runtime's own."""

    def __init__(self, device: torch.device, runtime: AmdRuntime) -> None:
        self._device = device
        self._runtime = runtime
        self._index = device.index or 0
        self.granularity = max(runtime.granularity(self._index), _SMALLEST_CHUNK)
        self.largest_chunk: int | None = self.granularity
        self._ranges: dict[int, int] = {}

    def reserve(self, size: int, owner: int) -> int:
        try:
            address = self._runtime.mem_address_reserve(size, self.granularity, 0)
        except RuntimeError as error:
            raise OSError(errno.ENOMEM, str(error)) from error
        self._ranges[address] = size
        return address

    def release(self, address: int, size: int) -> None:
        self._runtime.mem_address_free(address, size)
        del self._ranges[address]

    def create(self, size: int) -> Any:
        return self._runtime.mem_create(size, self._index)

    def destroy(self, handle: Any) -> None:
        self._runtime.mem_release(handle)

    def export(self, handle: Any) -> int:
        return self._runtime.mem_export(handle)

    def adopt(self, descriptor: int, size: int) -> Any:
        return self._runtime.mem_import(descriptor)

    def map(self, address: int, size: int, handle: Any, owner: int) -> None:
        self._runtime.mem_map(address, size, 0, handle)
        try:
            self._grant(address, size)
        except RuntimeError:
            self.unmap(address, size)
            raise

    def unmap(self, address: int, size: int) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # kernels in flight may use it
        self._runtime.mem_unmap(address, size)

    def tensor(self, address: int, size: int, owner: object) -> torch.Tensor:
        return tensor_over(address, size, self._device, owner)

    def share(self, tensor: torch.Tensor) -> SharedMemory | None:
        """The whole allocation that the tensor lies in, by its DMA-BUF; None where the runtime exports none, or none of
        what it imports, or where the allocation is not one of whole granules."""
        try:
            base, size = self._runtime.address_range(tensor.data_ptr())
            if size % self.granularity:
                return None
            descriptor = self._runtime.export_dmabuf(base, size)
            try:
                handle = self._runtime.mem_import(descriptor)
            finally:
                os.close(descriptor)
        except RuntimeError:
            return None
        return shared_or_none(self, handle, base, size, tensor)

    def _grant(self, address: int, size: int) -> None:
        try:
            self._runtime.mem_set_access(address, size, self._index, hipMemAccessFlagsProtReadWrite)
        except RuntimeError:
            start = max(base for base in self._ranges if base <= address)
            self._runtime.mem_set_access(start, address + size - start, self._index, hipMemAccessFlagsProtReadWrite)
