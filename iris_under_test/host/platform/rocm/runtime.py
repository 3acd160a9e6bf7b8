"""ROCm's runtime, through hip-python."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from iris_under_test.host.platform.amd import AmdRuntime, xcd_count
from iris_under_test.host.platform.gpu.runtime import TorchRuntime

__all__ = ["RocmRuntime"]


class RocmRuntime(TorchRuntime, AmdRuntime):
    """See ``hip``."""

    name = "rocm"

    def arch(self, device: int) -> str:
        return str(torch.cuda.get_device_properties(device).gcnArchName).split(":")[0]

    def wall_clock_khz(self, device: int) -> int:
        return self._attribute("hipDeviceAttributeWallClockRate", device)

    def xcc_count(self, device: int) -> int:
        # ROCm has the attribute since 7.0; a GPU that is divided (CPX) has fewer than its kind.
        if int(str(torch.version.hip).split(".")[0]) >= 7:
            return self._attribute("hipDeviceAttributeNumberOfXccs", device)
        return xcd_count(self.arch(device))

    def malloc(self, size: int, fine_grained: bool = False) -> int:
        if fine_grained:
            return int(_call("hipExtMallocWithFlags", size, _hip().hipDeviceMallocFinegrained))
        return int(_call("hipMalloc", size))

    def free(self, ptr: int) -> None:
        _call("hipFree", ptr)

    def address_range(self, ptr: int) -> tuple[int, int]:
        base, size = _call("hipMemGetAddressRange", ptr)
        return int(base), int(size)

    def ipc_handle(self, ptr: int) -> bytes:
        handle = _call("hipIpcGetMemHandle", ptr)
        return ctypes.string_at(int(handle), handle.c_sizeof())

    def open_ipc_handle(self, handle: bytes) -> int:
        hip = _hip()
        opened = hip.hipIpcMemHandle_st.allocate()
        ctypes.memmove(int(opened), handle, opened.c_sizeof())
        return int(_call("hipIpcOpenMemHandle", opened, hip.hipIpcMemLazyEnablePeerAccess))

    def close_ipc_handle(self, ptr: int) -> None:
        _call("hipIpcCloseMemHandle", ptr)

    def export_dmabuf(self, ptr: int, size: int) -> int:
        fd = ctypes.c_int(-1)
        kind = _hip().hipMemRangeHandleType.hipMemRangeHandleTypeDmaBufFd
        _call("hipMemGetHandleForAddressRange", ctypes.addressof(fd), ptr, size, kind, 0)
        return fd.value

    def import_dmabuf(self, fd: int, size: int) -> tuple[Any, int]:
        hip = _hip()
        wanted = hip.hipExternalMemoryHandleDesc_st.allocate()
        wanted.type = hip.hipExternalMemoryHandleType.hipExternalMemoryHandleTypeOpaqueFd
        wanted.size = size
        wanted.handle.fd = fd  # it stays ours: ROCm maps a DMA-BUF and keeps no descriptor, unlike CUDA
        memory = _call("hipImportExternalMemory", wanted)
        whole = hip.hipExternalMemoryBufferDesc_st.allocate()
        whole.offset, whole.size, whole.flags = 0, size, 0
        try:
            return memory, int(_call("hipExternalMemoryGetMappedBuffer", memory, whole))
        except RuntimeError:
            self.destroy_external_memory(memory)
            raise

    def destroy_external_memory(self, memory: Any) -> None:
        _call("hipDestroyExternalMemory", memory)

    def granularity(self, device: int) -> int:
        recommended = _hip().hipMemAllocationGranularity_flags.hipMemAllocationGranularityRecommended
        return int(_call("hipMemGetAllocationGranularity", _properties(device), recommended))

    def mem_create(self, size: int, device: int) -> Any:
        return _call("hipMemCreate", size, _properties(device), 0)

    def mem_release(self, handle: Any) -> None:
        _call("hipMemRelease", handle)

    def mem_export(self, handle: Any) -> int:
        fd = ctypes.c_int(-1)
        kind = _hip().hipMemAllocationHandleType.hipMemHandleTypePosixFileDescriptor
        _call("hipMemExportToShareableHandle", ctypes.addressof(fd), handle, kind, 0)
        return fd.value

    def mem_import(self, fd: int) -> Any:
        kind = _hip().hipMemAllocationHandleType.hipMemHandleTypePosixFileDescriptor
        # Before ROCm 7.1 a pointer to the descriptor, since then, as on CUDA, the descriptor in a pointer's place: see
        # PyTorch's CUDASymmetricMemory, which distinguishes the two by the same version.
        number = ctypes.c_int(fd)
        by_value = _version() >= (7, 1)
        return _call("hipMemImportFromShareableHandle", fd if by_value else ctypes.addressof(number), kind)

    def mem_address_reserve(self, size: int, alignment: int, address: int) -> int:
        return int(_call("hipMemAddressReserve", size, alignment, address, 0))

    def mem_address_free(self, ptr: int, size: int) -> None:
        _call("hipMemAddressFree", ptr, size)

    def mem_map(self, ptr: int, size: int, offset: int, handle: Any) -> None:
        _call("hipMemMap", ptr, size, offset, handle, 0)

    def mem_unmap(self, ptr: int, size: int) -> None:
        _call("hipMemUnmap", ptr, size)

    def mem_set_access(self, ptr: int, size: int, device: int, flags: int) -> None:
        hip = _hip()
        access = hip.hipMemAccessDesc.allocate()
        access.location.type = hip.hipMemLocationType.hipMemLocationTypeDevice
        access.location.id = device
        access.flags = hip.hipMemAccessFlags(flags)
        _call("hipMemSetAccess", ptr, size, access, 1)

    def _attribute(self, name: str, device: int) -> int:
        return int(_call("hipDeviceGetAttribute", getattr(_hip().hipDeviceAttribute_t, name), device))


def _hip() -> Any:
    from hip import hip

    return hip


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in str(torch.version.hip).split(".")[:2])


def _properties(device: int) -> Any:
    hip = _hip()
    properties = hip.hipMemAllocationProp.allocate()
    # GPUs cache pinned memory, each for itself: what a peer changes under a running kernel is seen for certain only in
    # memory that is not cached, to be had since ROCm 7.2 (rocSHMEM takes it from the same version on).
    kinds = hip.hipMemAllocationType
    properties.type = kinds.hipMemAllocationTypeUncached if _version() >= (7, 2) else kinds.hipMemAllocationTypePinned
    properties.location.type = hip.hipMemLocationType.hipMemLocationTypeDevice
    properties.location.id = device
    # Its second word, requestedHandleTypes, is in a nameless union that the binding has no name for either.
    wanted = ctypes.c_int(hip.hipMemAllocationHandleType.hipMemHandleTypePosixFileDescriptor)
    ctypes.memmove(int(properties) + ctypes.sizeof(wanted), ctypes.byref(wanted), ctypes.sizeof(wanted))
    return properties


def _call(name: str, *arguments: Any) -> Any:
    """Call the function; return its values without the status: None, a value or a tuple. RuntimeError if it failed."""
    hip = _hip()
    status, *values = getattr(hip, name)(*arguments)
    if status != hip.hipError_t.hipSuccess:
        raise RuntimeError(f"{name}: {hip.hipError_t(status).name}")
    return tuple(values) if len(values) > 1 else values[0] if values else None
