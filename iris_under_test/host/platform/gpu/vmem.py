"""Helpers for the virtual memory of CUDA and ROCm."""

from __future__ import annotations

import os
from typing import Any

import torch

from iris_under_test.host.platform.base import SharedMemory, VirtualMemory

__all__ = ["shared_or_none", "tensor_over"]


def tensor_over(address: int, size: int, device: torch.device, owner: object) -> torch.Tensor:
    """A 1-D uint8 tensor over ``size`` bytes of mapped memory, which keeps ``owner`` alive."""
    return torch.as_tensor(_Array(address, size, owner), device=device)


def shared_or_none(
    memory: VirtualMemory, handle: Any, base: int, size: int, tensor: torch.Tensor
) -> SharedMemory | None:
    """Return the result of ``VirtualMemory.share`` for a handle to the ``size`` bytes at ``base``, where the tensor is.

    None, and the handle is destroyed, unless the tensor ends there too, the memory has whole granules, and it can be
    exported to the peers: finding that out when they need it would be too late.
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
        # By this interface torch takes another owner's GPU memory, on ROCm too; the storage keeps this object.
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 2,
        }
