"""The device under the host side: one file per platform, chosen by Triton's active driver."""

from __future__ import annotations

from .base import Platform, SharedMemory, SymmetricMemory, VirtualMemory

__all__ = ["Platform", "SharedMemory", "SymmetricMemory", "VirtualMemory", "current"]


def current() -> Platform:
    """The platform of Triton's active driver: the emulated device is the one whose tensors live on the CPU.

    Raises:
        RuntimeError: Triton has no active driver (no GPU, no emulated device activated).
    """
    from triton.runtime import driver

    active = driver.active
    if active.get_active_torch_device().type == "cpu":
        from .emulated import EmulatedPlatform

        return EmulatedPlatform(active)
    from .gpu import GpuPlatform

    return GpuPlatform()
