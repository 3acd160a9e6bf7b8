"""Virtual memory of GPUs: what CUDA's and ROCm's have in common, and which of them it is."""

from __future__ import annotations

import os
from typing import Any

import torch

from .base import SharedMemory, VirtualMemory

__all__ = ["open_gpu", "shared_or_none", "tensor_over"]


def open_gpu(device: torch.device) -> VirtualMemory:
    """The memory of ``device``. RuntimeError where the binding of the GPU's driver is not installed."""
    torch.cuda.set_device(device)
    torch.empty(1, device=device)  # the drivers want a context
    try:
        if torch.version.hip is None:
            from .cuda_vmem import CudaVirtualMemory

            return CudaVirtualMemory(device)
        from .rocm_vmem import RocmVirtualMemory
        from .runtime_rocm import RocmRuntime

        return RocmVirtualMemory(device, RocmRuntime())
    except ImportError as error:
        package = "cuda-bindings" if torch.version.hip is None else "hip-python"
        raise RuntimeError(f"the allocator vmem needs the package {package}: {error}") from error


def tensor_over(address: int, size: int, device: torch.device, owner: object) -> torch.Tensor:
    """A 1-D uint8 tensor over ``size`` bytes of mapped memory, which keeps ``owner`` alive."""
    return torch.as_tensor(_Array(address, size, owner), device=device)


def shared_or_none(
    memory: VirtualMemory, handle: Any, base: int, size: int, tensor: torch.Tensor
) -> SharedMemory | None:
    """What ``VirtualMemory.share`` gives for a handle to the ``size`` bytes at ``base``, in which the tensor starts.

    None, and the handle is given back, unless the tensor ends there too, the memory is one of whole granules, and the
    peers can have it: to find that out when they are to get it would be too late.
    """
    start = tensor.data_ptr() - base
    if size % memory.granularity == 0 and start + tensor.nbytes <= size:
        try:
            os.close(memory.export(handle))
        except RuntimeError:
            pass
        else:
            return SharedMemory(handle, size, start, lambda: memory.destroy(handle))
    memory.destroy(handle)
    return None


class _Array:
    def __init__(self, address: int, size: int, owner: object) -> None:
        self.owner = owner
        # What torch takes from whoever has GPU memory, on ROCm too; it keeps this object with the storage.
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 2,
        }
