"""CUDA's runtime, through cuda-bindings."""

from __future__ import annotations

from typing import Any

import torch

from .runtime import TorchRuntime

__all__ = ["CudaRuntime"]


class CudaRuntime(TorchRuntime):
    """See ``hip``. Uses the context that torch has on the current device."""

    name = "cuda"

    def arch(self, device: int) -> str:
        major, minor = torch.cuda.get_device_capability(device)
        return f"sm_{major}{minor}"

    def wall_clock_khz(self, device: int) -> int:
        return 1_000_000  # %globaltimer counts nanoseconds: PTX ISA, special registers

    def xcc_count(self, device: int) -> int:
        return 1

    def malloc(self, size: int, fine_grained: bool = False) -> int:
        return int(_call("cudaMalloc", size))

    def free(self, ptr: int) -> None:
        _call("cudaFree", ptr)

    def address_range(self, ptr: int) -> tuple[int, int]:
        from cuda.bindings import driver

        torch.cuda.current_stream()  # the driver needs the context
        status, base, size = driver.cuMemGetAddressRange(ptr)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"cuMemGetAddressRange({ptr:#x}): {status.name}")
        return int(base), int(size)

    def ipc_handle(self, ptr: int) -> bytes:
        return bytes(_call("cudaIpcGetMemHandle", ptr).reserved)

    def open_ipc_handle(self, handle: bytes) -> int:
        from cuda.bindings import runtime

        opened = runtime.cudaIpcMemHandle_t()
        opened.reserved = handle
        return int(_call("cudaIpcOpenMemHandle", opened, runtime.cudaIpcMemLazyEnablePeerAccess))

    def close_ipc_handle(self, ptr: int) -> None:
        _call("cudaIpcCloseMemHandle", ptr)


def _call(name: str, *arguments: Any) -> Any:
    """What the function returns beside its status; RuntimeError where that is not success."""
    from cuda.bindings import runtime

    torch.cuda.init()
    status, *values = getattr(runtime, name)(*arguments)
    if status != runtime.cudaError_t.cudaSuccess:
        runtime.cudaGetLastError()  # told here, and not by whoever asks next
        raise RuntimeError(f"{name}: {status.name}")
    return values[0] if values else None
