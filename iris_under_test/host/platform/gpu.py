"""CUDA and ROCm: torch.cuda serves both. Heaps come from one of two providers, each in a file of its own."""

from __future__ import annotations

import os
from typing import Any

import torch

from .base import SymmetricMemory, VirtualMemory

__all__ = ["PROVIDERS", "PROVIDER_VARIABLE", "GpuPlatform"]

PROVIDER_VARIABLE = "IRIS_HEAP_PROVIDER"
PROVIDERS = ("symmetric_memory", "ipc")


class GpuPlatform:
    """One GPU per rank: the rank modulo the visible GPUs. Kernels run on Triton's own driver.

    ``provider``: ``"symmetric_memory"`` (torch's symmetric memory, the default) or ``"ipc"`` (torch's CUDA and HIP
    interprocess handles); None takes it from the environment variable ``IRIS_HEAP_PROVIDER``.

    Raises:
        ValueError: no such provider.
    """

    def __init__(self, provider: str | None = None) -> None:
        self.provider = provider or os.environ.get(PROVIDER_VARIABLE) or PROVIDERS[0]
        if self.provider not in PROVIDERS:
            raise ValueError(f"there is no heap provider {self.provider!r}: use one of {', '.join(PROVIDERS)}")

    def device(self, rank: int) -> torch.device:
        return torch.device("cuda", self.device_id(rank))

    def device_id(self, rank: int) -> int:
        return rank % torch.cuda.device_count()

    def make_current(self, rank: int) -> None:
        torch.cuda.set_device(self.device_id(rank))

    def map_symmetric_memory(self, size: int, rank: int, num_ranks: int) -> SymmetricMemory:
        self.make_current(rank)
        if self.provider == "ipc":
            from .ipc import IpcMemory

            return IpcMemory(size, rank, num_ranks, self.device(rank))
        from .symmetric_memory import TorchSymmetricMemory

        return TorchSymmetricMemory(size, rank, num_ranks, self.device(rank))

    def virtual_memory(self, rank: int, num_ranks: int) -> VirtualMemory:
        from .gpu_vmem import open_gpu

        return open_gpu(self.device(rank))

    def synchronize(self, stream: Any = None) -> None:
        if stream is None:
            torch.cuda.synchronize()
        else:
            stream.synchronize()
