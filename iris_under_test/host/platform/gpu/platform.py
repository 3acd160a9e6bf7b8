"""The base of CUDA's and ROCm's platforms, since torch.cuda serves both. Heaps come from one of two providers."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any

import torch
import torch.distributed as dist

from iris_under_test.host.distributed.helpers import exchange, hosts
from iris_under_test.host.platform.base import SymmetricMemory, VirtualMemory

from .ipc import IpcMemory
from .symmetric_memory import TorchSymmetricMemory

__all__ = ["PROVIDERS", "PROVIDER_VARIABLE", "GpuPlatform"]

PROVIDER_VARIABLE = "IRIS_HEAP_PROVIDER"
PROVIDERS = ("symmetric_memory", "ipc")


class GpuPlatform(ABC):
    """Base of both. A rank's GPU is its number modulo the visible ones. Kernels run on Triton's own driver.

    ``provider``: ``"symmetric_memory"`` (torch's symmetric memory) or ``"ipc"`` (torch's CUDA and HIP interprocess
    handles); None takes it from the environment variable ``IRIS_HEAP_PROVIDER``, or else the first, which torch refuses
    to ranks that share a GPU: for those the second. A heap is refused, with a ValueError on every rank, where there is
    no such provider or ranks have different ones.
    """

    binding: str
    """The Python package of the GPU's driver."""

    def __init__(self, provider: str | None = None) -> None:
        self._provider = provider

    @property
    def provider(self) -> str:
        """The one that heaps come from."""
        return self._provider or os.environ.get(PROVIDER_VARIABLE) or PROVIDERS[_gpus_are_shared()]

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
        # torch's rendezvous is for the world alone: members who have had another number of them wait for ever. It
        # is also for one host.
        if self.provider == "ipc" or group is not None or len(set(hosts())) > 1:
            return IpcMemory(size, rank, num_ranks, self.device(world_rank), group)
        return TorchSymmetricMemory(size, rank, num_ranks, self.device(world_rank))

    def virtual_memory(self, rank: int, num_ranks: int) -> VirtualMemory:
        """RuntimeError where the binding of the GPU's driver is not installed."""
        device = self.device(rank)
        torch.cuda.set_device(device)
        torch.empty(1, device=device)  # the drivers want a context
        try:
            return self.open_memory(device)
        except ImportError as error:
            raise RuntimeError(f"the allocator vmem needs the package {self.binding}: {error}") from error

    def name(self) -> str:
        return torch.cuda.get_device_name()

    def gpu_facts(self, gpu_id: int) -> dict[str, Any]:
        properties: Any = torch.cuda.get_device_properties(gpu_id)
        bus = f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
        return {"name": properties.name, "uuid": str(properties.uuid), "pci_bus_id": bus, **self.link_facts(bus)}

    @abstractmethod
    def open_memory(self, device: torch.device) -> VirtualMemory:
        """The memory of ``device``. ImportError where the binding of the GPU's driver is not installed."""

    @abstractmethod
    def link_facts(self, bus: str) -> dict[str, Any]:
        """``fabric`` and ``links`` of the GPU at this PCI address, as ``GPUInfo`` has them."""

    def synchronize(self, stream: Any = None) -> None:
        if stream is None:
            torch.cuda.synchronize()
        else:
            stream.synchronize()


def _gpus_are_shared() -> bool:
    """Return True if torchrun's environment has more ranks on this host than there are GPUs."""
    if not dist.is_initialized():
        return False
    return int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size())) > torch.cuda.device_count()


def _check_provider(provider: str, group: dist.ProcessGroup | None) -> None:
    mine = PROVIDERS.index(provider) if provider in PROVIDERS else -1
    chosen = [index for (index,) in exchange([mine], group, "choosing a provider")]
    if mine < 0:
        raise ValueError(f"there is no heap provider {provider!r}: use one of {', '.join(PROVIDERS)}")
    if len(set(chosen)) > 1:
        named = {rank: PROVIDERS[index] if index >= 0 else "none such" for rank, index in enumerate(chosen)}
        raise ValueError(f"the heap provider must be the same on every rank, got {named}")
