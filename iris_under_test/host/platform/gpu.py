"""CUDA and ROCm: torch.cuda serves both. Heaps come from one of two providers, each in a file of its own."""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed as dist

from iris_under_test.host.distributed.helpers import exchange

from .base import SymmetricMemory, VirtualMemory

__all__ = ["PROVIDERS", "PROVIDER_VARIABLE", "GpuPlatform"]

PROVIDER_VARIABLE = "IRIS_HEAP_PROVIDER"
PROVIDERS = ("symmetric_memory", "ipc")


class GpuPlatform:
    """A rank's GPU is its number modulo the visible ones. Kernels run on Triton's own driver.

    ``provider``: ``"symmetric_memory"`` (torch's symmetric memory) or ``"ipc"`` (torch's CUDA and HIP interprocess
    handles); None takes it from the environment variable ``IRIS_HEAP_PROVIDER``, or else the first, which torch refuses
    to ranks that share a GPU: for those the second. A heap is refused, with a ValueError on every rank, where there is
    no such provider or ranks have different ones.
    """

    def __init__(self, provider: str | None = None) -> None:
        self.provider = provider or os.environ.get(PROVIDER_VARIABLE) or PROVIDERS[_gpus_are_shared()]

    def device(self, rank: int) -> torch.device:
        return torch.device("cuda", self.device_id(rank))

    def device_id(self, rank: int) -> int:
        return rank % torch.cuda.device_count()

    def make_current(self, rank: int) -> None:
        torch.cuda.set_device(self.device_id(rank))

    def map_symmetric_memory(
        self, size: int, rank: int, num_ranks: int, group: dist.ProcessGroup | None = None
    ) -> SymmetricMemory:
        world_rank = rank if group is None else dist.get_rank()
        self.make_current(world_rank)
        _check_provider(self.provider, group)
        # torch's rendezvous is for the world alone: members who have had another number of them wait for ever.
        if self.provider == "ipc" or group is not None:
            from .ipc import IpcMemory

            return IpcMemory(size, rank, num_ranks, self.device(world_rank), group)
        from .symmetric_memory import TorchSymmetricMemory

        return TorchSymmetricMemory(size, rank, num_ranks, self.device(world_rank))

    def virtual_memory(self, rank: int, num_ranks: int) -> VirtualMemory:
        from .gpu_vmem import open_gpu

        return open_gpu(self.device(rank))

    def synchronize(self, stream: Any = None) -> None:
        if stream is None:
            torch.cuda.synchronize()
        else:
            stream.synchronize()


def _gpus_are_shared() -> bool:
    """Whether there are more ranks on this host, as torchrun tells it, than GPUs."""
    if not dist.is_initialized():
        return False
    return int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size())) > torch.cuda.device_count()


def _check_provider(provider: str, group: dist.ProcessGroup | None) -> None:
    mine = PROVIDERS.index(provider) if provider in PROVIDERS else -1
    told = [index for (index,) in exchange([mine], group, "choosing a provider")]
    if mine < 0:
        raise ValueError(f"there is no heap provider {provider!r}: use one of {', '.join(PROVIDERS)}")
    if len(set(told)) > 1:
        named = {rank: PROVIDERS[index] if index >= 0 else "none such" for rank, index in enumerate(told)}
        raise ValueError(f"the heap provider must be the same on every rank, got {named}")
