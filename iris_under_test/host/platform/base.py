"""What the host side asks of a platform."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist

__all__ = ["Platform", "SharedMemory", "SymmetricMemory", "VirtualMemory", "warp_size", "xcd_count"]

# AMD data-centre GPUs built of eight compute dies (MI300 and MI350 series).
_ARCHES_OF_8_XCDS = ("gfx942", "gfx950")


class SymmetricMemory(Protocol):
    """One rank's heap and the mappings of its peers' heaps in this process."""

    pool: torch.Tensor
    """1-D uint8 tensor over the own heap."""

    bases: list[int]
    """Address of each rank's heap in this process; all divisible by 4096."""

    def close(self) -> None:
        """Unmaps the peers and gives the own heap back once its last tensor is gone. Idempotent, not collective."""


@dataclass(frozen=True)
class SharedMemory:
    """Memory that is mapped somewhere already: a handle to it, its ``size`` in bytes (whole granules), and the byte
    ``start`` at which the tensor begins that it was found by. ``drop`` gives the handle back."""

    handle: int
    size: int
    start: int
    drop: Callable[[], None]


class VirtualMemory(Protocol):
    """A device's memory apart from the addresses at which it is mapped. Not collective; addresses and sizes are
    multiples of ``granularity``; memory lives while it has a handle, a descriptor or a mapping. Raises OSError or
    RuntimeError with the driver's reason.
    """

    granularity: int
    """Bytes, a power of two."""

    largest_chunk: int | None
    """Bytes that are created and mapped at once, at most; None for any number."""

    def reserve(self, size: int, owner: int) -> int:
        """The address of a new range for the heap of rank ``owner``, in which nothing is mapped. OSError where there is
        none of that size."""

    def release(self, address: int, size: int) -> None:
        """Gives a range back in which nothing is mapped any more."""

    def create(self, size: int) -> int:
        """A handle to new memory of this rank's device."""

    def destroy(self, handle: int) -> None:
        """Gives the handle back."""

    def export(self, handle: int) -> int:
        """A file descriptor that stands for the memory in other processes; the caller closes it."""

    def adopt(self, descriptor: int, size: int) -> int:
        """A handle to the memory that another process has exported."""

    def map(self, address: int, size: int, handle: int, owner: int) -> None:
        """Maps the memory at an address of a range of rank ``owner``, for this rank's device to read and write."""

    def unmap(self, address: int, size: int) -> None:
        """Takes back one ``map``."""

    def tensor(self, address: int, size: int, owner: object) -> torch.Tensor:
        """A 1-D uint8 tensor over mapped memory; it keeps ``owner`` alive."""

    def share(self, tensor: torch.Tensor) -> SharedMemory | None:
        """The memory under a tensor that this library did not map; None where that cannot be mapped twice."""


class Platform(Protocol):
    """A kind of device. Constructing one does no work."""

    def device(self, rank: int) -> torch.device:
        """The device that tensors of ``rank`` live on."""

    def device_id(self, rank: int) -> int:
        """The ordinal of ``rank``'s device."""

    def make_current(self, rank: int) -> None:
        """Makes ``rank``'s device this process's current one, which is where collectives and launches look."""

    def map_symmetric_memory(
        self, size: int, rank: int, num_ranks: int, group: dist.ProcessGroup | None = None
    ) -> SymmetricMemory:
        """Allocates ``size`` bytes on each rank and maps every rank's memory into every process. Collective over
        ``group`` (default: the world); ``rank`` and ``num_ranks`` are this rank's place in it and its size."""

    def virtual_memory(self, rank: int, num_ranks: int) -> VirtualMemory:
        """The memory of ``rank``'s device. Raises RuntimeError where it cannot be managed."""

    def synchronize(self, stream: Any = None) -> None:
        """Waits for the work of ``stream``, or of the whole device."""


def warp_size() -> int:
    """Lanes per warp of the active target."""
    from triton.runtime import driver

    return int(driver.active.get_current_target().warp_size)


def xcd_count() -> int:
    """Compute dies of the active target: 8 on MI300 and MI350, else 1, also where no driver is active."""
    from triton.runtime import driver

    try:
        target = driver.active.get_current_target()
    except RuntimeError:
        # Triton's way of saying that no driver is active; a Config may be written on such a machine.
        return 1
    return 8 if str(target.arch).split(":")[0] in _ARCHES_OF_8_XCDS else 1
