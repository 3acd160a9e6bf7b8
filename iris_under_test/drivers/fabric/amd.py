"""AMD's fabric driver: as in upstream Iris, no AMD GPU that this library serves shares memory beyond its node."""

from __future__ import annotations

from typing import NoReturn

from iris_under_test.drivers.base import BaseFabricDriver, DriverNotSupported, LocalAllocation, PeerMapping

__all__ = ["AmdFabricDriver"]


class AmdFabricDriver(BaseFabricDriver):
    """Every function raises DriverNotSupported."""

    def initialize(self, ordinal: int) -> NoReturn:
        raise DriverNotSupported(f"AMD device {ordinal} has no fabric that memory is shared over")

    def allocate_exportable(self, size: int) -> NoReturn:
        self.initialize(0)

    def export_handle(self, allocation: LocalAllocation) -> NoReturn:
        self.initialize(0)

    def import_and_map(self, peer: int, handle_bytes: bytes, size: int) -> NoReturn:
        self.initialize(0)

    def cleanup_import(self, mapping: PeerMapping) -> NoReturn:
        self.initialize(0)

    def cleanup_local(self, allocation: LocalAllocation) -> NoReturn:
        self.initialize(0)
