"""AMD GPUs: what is particular to them."""

from __future__ import annotations

from typing import Any

import torch
from triton.runtime import driver as triton_driver

from iris_under_test.drivers.base import BaseFabricDriver
from iris_under_test.host.platform.amd import CLOCK_HZ, xcd_count
from iris_under_test.host.platform.base import Runtime, VirtualMemory
from iris_under_test.host.platform.gpu.platform import GpuPlatform

from .kfd import kfd_facts
from .runtime import RocmRuntime
from .vmem import RocmVirtualMemory

__all__ = ["RocmPlatform"]


class RocmPlatform(GpuPlatform):
    """See ``base.Platform``."""

    clock_hz = CLOCK_HZ
    binding = "hip-python"

    @classmethod
    def of(cls, driver: Any) -> RocmPlatform | None:
        return cls() if driver.get_active_torch_device().type == "cuda" and torch.version.hip is not None else None

    def xcd_count(self) -> int:
        return xcd_count(str(triton_driver.active.get_current_target().arch))

    def runtime(self) -> Runtime:
        return RocmRuntime()

    def fabric_driver(self) -> BaseFabricDriver:
        # Not at import: the drivers' package imports this one.
        from iris_under_test.drivers.fabric.amd import AmdFabricDriver

        return AmdFabricDriver()

    def open_memory(self, device: torch.device) -> VirtualMemory:
        return RocmVirtualMemory(device, RocmRuntime())

    def link_facts(self, bus: str) -> dict[str, Any]:
        return kfd_facts(bus)
