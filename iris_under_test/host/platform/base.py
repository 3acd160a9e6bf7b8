"""The interface of a platform, a kind of device: the host side reaches all that is particular to a kind through it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist

from iris_under_test.drivers.base import BaseFabricDriver

__all__ = ["Platform", "Runtime", "SharedMemory", "SymmetricMemory", "VirtualMemory", "warp_size"]


class SymmetricMemory(Protocol):
    """One rank's heap and the mappings of its peers' heaps in this process."""

    pool: torch.Tensor
    """1-D uint8 tensor over this rank's heap."""

    bases: list[int]
    """Address of each rank's heap in this process; all divisible by 4096."""

    def close(self) -> None:
        """Unmap the peers, and free this rank's heap once its last tensor is gone. Idempotent, not collective."""


@dataclass(frozen=True)
class SharedMemory:
    """Memory that is mapped somewhere already: a handle to it, its ``size`` in bytes (whole granules), and the byte
    ``start`` at which the tensor begins that it was found by. ``drop`` gives the handle back."""

    handle: Any
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
        """Free a range in which nothing is mapped any more."""

    def create(self, size: int) -> Any:
        """A handle to new memory of this rank's device."""

    def destroy(self, handle: Any) -> None:
        """Release the handle."""

    def export(self, handle: Any) -> int:
        """A file descriptor that stands for the memory in other processes; the caller closes it."""

    def adopt(self, descriptor: int, size: int) -> Any:
        """A handle to the memory that another process has exported."""

    def map(self, address: int, size: int, handle: Any, owner: int) -> None:
        """Map the memory at an address of a range of rank ``owner``, for this rank's device to read and write."""

    def unmap(self, address: int, size: int) -> None:
        """Unmap what one ``map`` mapped."""

    def tensor(self, address: int, size: int, owner: object) -> torch.Tensor:
        """A 1-D uint8 tensor over mapped memory; it keeps ``owner`` alive."""

    def share(self, tensor: torch.Tensor) -> SharedMemory | None:
        """The memory under a tensor that this library did not map; None where that cannot be mapped twice."""


class Runtime(Protocol):
    """The calls of every device's runtime; ``hip`` documents them. Constructing one does no work."""

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


class Platform(Protocol):
    """A kind of device. Constructing one does no work. A further kind is a class like this, and a line in ``kinds``."""

    clock_hz: int
    """Ticks per second of what ``device.utils.read_realtime`` reads."""

    @classmethod
    def of(cls, driver: Any) -> Platform | None:
        """The platform, if Triton's active ``driver`` is one of this kind."""

    def name(self) -> str:
        """Return the name of this process's current device."""

    def xcd_count(self) -> int:
        """Compute dies that programs are spread over; 1 for a GPU that is one die."""

    def runtime(self) -> Runtime:
        """Return the runtime that ``hip`` calls."""

    def fabric_driver(self) -> BaseFabricDriver:
        """Return the fabric driver; the caller initialises it."""

    def gpu_facts(self, gpu_id: int) -> dict[str, Any]:
        """``name``, ``uuid``, ``pci_bus_id``, ``fabric`` and ``links`` of a visible device, as ``GPUInfo`` has them;
        what is not known is not there."""

    def device(self, rank: int) -> torch.device:
        """The device that tensors of ``rank`` live on."""

    def device_id(self, rank: int) -> int:
        """The ordinal of ``rank``'s device."""

    def make_current(self, rank: int) -> None:
        """Make ``rank``'s device this process's current one, which collectives and launches use."""

    def map_symmetric_memory(
        self, size: int, rank: int, num_ranks: int, group: dist.ProcessGroup | None = None
    ) -> SymmetricMemory:
        """Allocate ``size`` bytes on each rank and map every rank's memory into every process of its host; the base of
        a rank on another host is 0. Collective over ``group`` (default: the world); ``rank`` and ``num_ranks`` are this
        rank's place in it and its size."""

    def virtual_memory(self, rank: int, num_ranks: int) -> VirtualMemory:
        """The memory of ``rank``'s device. Raises RuntimeError where it cannot be managed."""

    def synchronize(self, stream: Any = None) -> None:
        """Wait for the work of ``stream``, or of the whole device."""


def warp_size() -> int:
    """Lanes per warp of the active target."""
    from triton.runtime import driver

    return int(driver.active.get_current_target().warp_size)
