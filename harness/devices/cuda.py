"""Hopper (sm_90)."""

from __future__ import annotations

from harness.devices import inventory
from harness.devices.gpu import Gpu


class Cuda(Gpu):
    """An NVIDIA GPU under CUDA."""

    name = "cuda"
    lanes = 32

    def missing(self) -> str | None:
        """A CUDA build of torch, a driver with its library, and a GPU of this arch; asked in a child process."""
        return inventory.unfit(self.name, self.arch)
