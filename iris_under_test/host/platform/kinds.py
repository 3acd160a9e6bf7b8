"""The kinds of device, and which of them is active. A further kind is a class in a file of its own, and a line here."""

from __future__ import annotations

from triton.runtime import driver

from .base import Platform
from .cuda.platform import CudaPlatform
from .emulated.platform import EmulatedPlatform
from .rocm.platform import RocmPlatform

__all__ = ["PLATFORMS", "current", "xcd_count"]

PLATFORMS: list[type[Platform]] = [
    EmulatedPlatform,
    RocmPlatform,
    CudaPlatform,
]


def current() -> Platform:
    """The platform of Triton's active driver.

    Raises:
        RuntimeError: Triton has no active driver (no GPU, no emulated device activated), or one of another kind.
    """
    active = driver.active
    for kind in PLATFORMS:
        if (platform := kind.of(active)) is not None:
            return platform
    kinds = ", ".join(kind.__name__ for kind in PLATFORMS)
    raise RuntimeError(f"Triton's active driver {active!r} is of none of the known kinds of device: {kinds}")


def xcd_count() -> int:
    """Compute dies of the active device, 1 where no driver is active."""
    try:
        return current().xcd_count()
    except RuntimeError:
        # Triton raises it where no driver is active; a Config may be written on such a machine.
        return 1
