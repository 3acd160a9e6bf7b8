"""NVIDIA GPUs: what is particular to them."""

from __future__ import annotations

from typing import Any

import torch

from iris_under_test.drivers.base import BaseFabricDriver
from iris_under_test.host.platform.base import Runtime, VirtualMemory
from iris_under_test.host.platform.gpu.platform import GpuPlatform

from .nvml import nvml_facts
from .runtime import CudaRuntime
from .vmem import CudaVirtualMemory

__all__ = ["CudaPlatform"]


class CudaPlatform(GpuPlatform):
    """See ``base.Platform``."""

    clock_hz = 1_000_000_000  # %globaltimer counts nanoseconds
    binding = "cuda-bindings"

    @classmethod
    def of(cls, driver: Any) -> CudaPlatform | None:
        return cls() if driver.get_active_torch_device().type == "cuda" and torch.version.hip is None else None

    def xcd_count(self) -> int:
        return 1

    def runtime(self) -> Runtime:
        return CudaRuntime()

    def fabric_driver(self) -> BaseFabricDriver:
        # Not at import: the drivers' package imports this one.
        from iris_under_test.drivers.fabric.nvidia import NvidiaFabricDriver

        return NvidiaFabricDriver()

    def open_memory(self, device: torch.device) -> VirtualMemory:
        return CudaVirtualMemory(device)

    def link_facts(self, bus: str) -> dict[str, Any]:
        return nvml_facts(bus)
