"""Memory in use on a GPU, and the processes that use it, read without a GPU context."""

from __future__ import annotations

from harness.devices.gpu_kind import GpuInfo
from harness.devices.table import gpu_kind


def memory_in_use(gpu: GpuInfo) -> int:
    """Return the bytes in use, by ``GpuKind.memory_in_use`` of its kind."""
    return gpu_kind(gpu.device).memory_in_use(gpu)


def users_of(gpu: GpuInfo) -> list[tuple[int, int | None]]:
    """Return the processes that use it, by ``GpuKind.users_of`` of its kind."""
    return gpu_kind(gpu.device).users_of(gpu)
