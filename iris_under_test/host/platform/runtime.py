"""The runtime behind ``hip``: one class per device, each in a file of its own, and what torch knows of a GPU."""

from __future__ import annotations

from typing import Any, Protocol

import torch

__all__ = ["AmdRuntime", "Runtime", "TorchRuntime", "current"]


class Runtime(Protocol):
    """What every device's runtime does; ``hip`` says what each means. Constructing one does no work."""

    name: str

    def set_device(self, device: int) -> None: ...
    def device_id(self) -> int: ...
    def device_count(self) -> int: ...
    def cu_count(self, device: int) -> int: ...
    def arch(self, device: int) -> str: ...
    def wall_clock_khz(self, device: int) -> int: ...
    def xcc_count(self, device: int) -> int: ...
    def malloc(self, size: int, fine_grained: bool = False) -> int: ...
    def free(self, ptr: int) -> None: ...
    def address_range(self, ptr: int) -> tuple[int, int]: ...
    def ipc_handle(self, ptr: int) -> bytes: ...
    def open_ipc_handle(self, handle: bytes) -> int: ...
    def close_ipc_handle(self, ptr: int) -> None: ...


class AmdRuntime:
    """What AMD's runtime, and the emulated AMD device's, do beside that. A base class, to be told by."""

    def export_dmabuf(self, ptr: int, size: int) -> int:
        raise NotImplementedError

    def import_dmabuf(self, fd: int, size: int) -> tuple[Any, int]:
        raise NotImplementedError

    def destroy_external_memory(self, memory: Any) -> None:
        raise NotImplementedError

    def granularity(self, device: int) -> int:
        raise NotImplementedError

    def mem_create(self, size: int, device: int) -> Any:
        raise NotImplementedError

    def mem_release(self, handle: Any) -> None:
        raise NotImplementedError

    def mem_export(self, handle: Any) -> int:
        raise NotImplementedError

    def mem_import(self, fd: int) -> Any:
        raise NotImplementedError

    def mem_address_reserve(self, size: int, alignment: int, address: int) -> int:
        raise NotImplementedError

    def mem_address_free(self, ptr: int, size: int) -> None:
        raise NotImplementedError

    def mem_map(self, ptr: int, size: int, offset: int, handle: Any) -> None:
        raise NotImplementedError

    def mem_unmap(self, ptr: int, size: int) -> None:
        raise NotImplementedError

    def mem_set_access(self, ptr: int, size: int, device: int) -> None:
        raise NotImplementedError


class TorchRuntime:
    """What torch.cuda knows, on CUDA and ROCm alike."""

    def set_device(self, device: int) -> None:
        torch.cuda.set_device(device)

    def device_id(self) -> int:
        return torch.cuda.current_device()

    def device_count(self) -> int:
        return torch.cuda.device_count()

    def cu_count(self, device: int) -> int:
        return int(torch.cuda.get_device_properties(device).multi_processor_count)


def current() -> Runtime:
    """The runtime of Triton's active driver. RuntimeError where none is active."""
    from triton.runtime import driver

    active = driver.active
    if active.get_active_torch_device().type == "cpu":
        from .runtime_emulated import EmulatedRuntime

        return EmulatedRuntime(active)
    if torch.version.hip is not None:
        from .runtime_rocm import RocmRuntime

        return RocmRuntime()
    from .runtime_cuda import CudaRuntime

    return CudaRuntime()
