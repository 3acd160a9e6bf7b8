"""The interface of fabric drivers: export memory to other ranks as a handle, import and map theirs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

__all__ = [
    "BaseFabricDriver",
    "CudaFabricError",
    "CudaFabricNotSupported",
    "DriverError",
    "DriverNotSupported",
    "LocalAllocation",
    "PeerMapping",
]


class DriverError(RuntimeError):
    """A driver refused; the message holds its own words."""


class DriverNotSupported(DriverError):  # noqa: N818 - a published name
    """The machine, its driver or its binding cannot do it at all."""


class CudaFabricError(DriverError):
    """A CUDA driver call failed."""


class CudaFabricNotSupported(CudaFabricError, DriverNotSupported):  # noqa: N818 - a published name
    """The CUDA device has no fabric, or no part in one."""


@dataclass(frozen=True)
class LocalAllocation:
    """Own memory: ``size`` bytes, whole granules, mapped at ``va``; ``handle`` is the driver's own."""

    va: int
    size: int
    handle: Any


@dataclass(frozen=True)
class PeerMapping:
    """Memory of rank ``peer_rank``, ``size`` bytes, mapped here at ``remote_va``. ``handle`` is the driver's own."""

    peer_rank: int
    transport: str
    remote_va: int
    size: int
    handle: Any = None


class BaseFabricDriver(ABC):
    """Memory of one device for a fabric. Not collective and not thread-safe; handles travel by whatever the caller has.

    Every function but ``initialize`` raises DriverError before it, and where the driver refuses; DriverNotSupported is
    for what can never work here.
    """

    @abstractmethod
    def initialize(self, ordinal: int) -> None:
        """Select device ``ordinal``. Idempotent for the same one; DriverNotSupported where it has no fabric."""

    @abstractmethod
    def allocate_exportable(self, size: int) -> LocalAllocation:
        """Allocate at least ``size`` bytes, mapped for the device to read and write. ValueError unless positive."""

    @abstractmethod
    def export_handle(self, allocation: LocalAllocation) -> bytes:
        """``drivers.fabric.HANDLE_BYTES`` bytes by which peers import the allocation as long as it lives."""

    @abstractmethod
    def import_and_map(self, peer: int, handle_bytes: bytes, size: int) -> PeerMapping:
        """Map the peer's allocation of ``size`` bytes (the size in its ``LocalAllocation``) for this device.

        ValueError for a handle of another length, or a size that is not positive.
        """

    @abstractmethod
    def cleanup_import(self, mapping: PeerMapping) -> None:
        """Unmap it. DriverError if it was unmapped before."""

    @abstractmethod
    def cleanup_local(self, allocation: LocalAllocation) -> None:
        """Unmap and free the allocation; ranks that imported it may still use it. DriverError the second time."""
