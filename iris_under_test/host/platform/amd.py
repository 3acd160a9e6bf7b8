"""Shared by ROCm and the emulated AMD device: the calls that only AMD's runtime has, and compute dies."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from .base import Runtime

__all__ = ["CLOCK_HZ", "AmdRuntime", "xcd_count"]

CLOCK_HZ = 100_000_000
"""Ticks per second of s_memrealtime."""

# Data-centre GPUs built of eight compute dies (MI300 and MI350 series).
_ARCHES_OF_8_XCDS = ("gfx942", "gfx950")


def xcd_count(arch: str) -> int:
    """Return the compute dies of an undivided GPU of an architecture, such as ``gfx942`` or ``gfx942:xnack-``."""
    return 8 if arch.split(":")[0] in _ARCHES_OF_8_XCDS else 1


class AmdRuntime(Runtime):
    """Abstract base of AMD's runtime and the emulated AMD device's; callers test for it with ``isinstance``."""

    @abstractmethod
    def export_dmabuf(self, ptr: int, size: int) -> int: ...
    @abstractmethod
    def import_dmabuf(self, fd: int, size: int) -> tuple[Any, int]: ...
    @abstractmethod
    def destroy_external_memory(self, memory: Any) -> None: ...
    @abstractmethod
    def granularity(self, device: int) -> int: ...
    @abstractmethod
    def mem_create(self, size: int, device: int) -> Any: ...
    @abstractmethod
    def mem_release(self, handle: Any) -> None: ...
    @abstractmethod
    def mem_export(self, handle: Any) -> int: ...
    @abstractmethod
    def mem_import(self, fd: int) -> Any: ...
    @abstractmethod
    def mem_address_reserve(self, size: int, alignment: int, address: int) -> int: ...
    @abstractmethod
    def mem_address_free(self, ptr: int, size: int) -> None: ...
    @abstractmethod
    def mem_map(self, ptr: int, size: int, offset: int, handle: Any) -> None: ...
    @abstractmethod
    def mem_unmap(self, ptr: int, size: int) -> None: ...
    @abstractmethod
    def mem_set_access(self, ptr: int, size: int, device: int, flags: int) -> None: ...
