"""CUDA's runtime: the driver API, through cuda-bindings, in the contexts that torch has."""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from iris_under_test.host.platform.gpu.runtime import TorchRuntime

__all__ = ["CudaRuntime"]

IPC_HANDLE_BYTES = 64  # CU_IPC_HANDLE_SIZE
_LAZY_ENABLE_PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS


class CudaRuntime(TorchRuntime):
    """See ``hip``."""

    name = "cuda"

    def arch(self, device: int) -> str:
        major, minor = torch.cuda.get_device_capability(device)
        return f"sm_{major}{minor}"

    def wall_clock_khz(self, device: int) -> int:
        return 1_000_000  # %globaltimer counts nanoseconds: PTX ISA, special registers

    def xcc_count(self, device: int) -> int:
        return 1

    def malloc(self, size: int, fine_grained: bool = False) -> int:
        return int(_call("cuMemAlloc", size))

    def free(self, ptr: int) -> None:
        _call("cuMemFree", ptr)

    def address_range(self, ptr: int) -> tuple[int, int]:
        base, size = _call("cuMemGetAddressRange", ptr)
        return int(base), int(size)

    def ipc_handle(self, ptr: int) -> bytes:
        handle = _call("cuIpcGetMemHandle", ptr)  # the binding's structure: it shows nothing but where it lies
        return ctypes.string_at(handle.getPtr(), IPC_HANDLE_BYTES)

    def open_ipc_handle(self, handle: bytes) -> int:
        from cuda.bindings import driver

        opened = driver.CUipcMemHandle()
        ctypes.memmove(opened.getPtr(), handle, IPC_HANDLE_BYTES)
        return int(_call("cuIpcOpenMemHandle", opened, _LAZY_ENABLE_PEER_ACCESS))

    def close_ipc_handle(self, ptr: int) -> None:
        _call("cuIpcCloseMemHandle", ptr)


def _call(name: str, *arguments: Any) -> Any:
    """Call the function; return its values without the status: None, a value or a tuple. RuntimeError if it failed."""
    from cuda.bindings import driver

    torch.cuda.mem_get_info()  # makes torch's context of the current device this thread's
    status, *values = getattr(driver, name)(*arguments)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{name}: {status.name}")
    return tuple(values) if len(values) > 1 else values[0] if values else None
