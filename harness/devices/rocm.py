"""MI300X, MI325X (gfx942) and MI350 (gfx950)."""

from __future__ import annotations

from harness.devices import inventory
from harness.devices.gpu import Gpu


class Rocm(Gpu):
    """An AMD GPU under ROCm."""

    name = "rocm"
    lanes = 64

    def missing(self) -> str | None:
        """A ROCm build of torch, a driver that may be used, and a GPU of this arch; asked in a child process."""
        return inventory.unfit(self.name, self.arch)
