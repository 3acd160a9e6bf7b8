"""What the host side asks of a platform."""

from __future__ import annotations

from typing import Any, Protocol

import torch

__all__ = ["Platform", "SymmetricMemory", "warp_size", "xcd_count"]

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


class Platform(Protocol):
    """A kind of device. Constructing one does no work."""

    def device(self, rank: int) -> torch.device:
        """The device that tensors of ``rank`` live on."""

    def device_id(self, rank: int) -> int:
        """The ordinal of ``rank``'s device."""

    def map_symmetric_memory(self, size: int, rank: int, num_ranks: int) -> SymmetricMemory:
        """Collective: allocates ``size`` bytes on each rank and maps every rank's memory into every process."""

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
