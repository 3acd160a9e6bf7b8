"""The emulated device's fabric: memory files, opened by their owner's process id; ranks must share a host."""

from __future__ import annotations

from iris_under_test.drivers.base import (
    BaseFabricDriver,
    DriverError,
    DriverNotSupported,
    LocalAllocation,
    PeerMapping,
)
from iris_under_test.host.platform.emulated.runtime import EmulatedRuntime

from .handles import check_handle, check_size

__all__ = ["EmulatedFabricDriver"]


class EmulatedFabricDriver(BaseFabricDriver):
    """See ``base.BaseFabricDriver``. Its handles are the interprocess handles of the emulated runtime."""

    def __init__(self, runtime: EmulatedRuntime) -> None:
        self._device = runtime
        self._runtime: EmulatedRuntime | None = None
        self._live: set[int] = set()

    def initialize(self, ordinal: int) -> None:
        if ordinal != self._device.device_id():
            raise DriverNotSupported(f"this process's emulated device is {self._device.device_id()}, not {ordinal}")
        self._runtime = self._device

    def allocate_exportable(self, size: int) -> LocalAllocation:
        check_size(size)
        runtime = self._ready()
        granularity = runtime.granularity(0)
        size = -(-size // granularity) * granularity
        try:
            address = runtime.malloc(size)
        except RuntimeError as error:
            raise DriverError(str(error)) from error
        self._live.add(address)
        return LocalAllocation(address, size, address)

    def export_handle(self, allocation: LocalAllocation) -> bytes:
        runtime = self._ready()
        self._check_live(allocation.va)
        return bytes(runtime.ipc_handle(allocation.va))

    def import_and_map(self, peer: int, handle_bytes: bytes, size: int) -> PeerMapping:
        check_handle(handle_bytes)
        check_size(size)
        runtime = self._ready()
        try:
            address = runtime.open_ipc_handle(handle_bytes)
        except RuntimeError as error:
            raise DriverError(f"memory of rank {peer}: {error}") from error
        _, there = runtime.address_range(address)
        if there != size:
            runtime.close_ipc_handle(address)
            raise DriverError(f"rank {peer}'s allocation has {there} bytes, not {size}")
        self._live.add(address)
        return PeerMapping(peer, "emulated_fabric", address, size, address)

    def cleanup_import(self, mapping: PeerMapping) -> None:
        runtime = self._ready()
        self._check_live(mapping.remote_va)
        runtime.close_ipc_handle(mapping.remote_va)
        self._live.remove(mapping.remote_va)

    def cleanup_local(self, allocation: LocalAllocation) -> None:
        runtime = self._ready()
        self._check_live(allocation.va)
        runtime.free(allocation.va)
        self._live.remove(allocation.va)

    def _ready(self) -> EmulatedRuntime:
        if self._runtime is None:
            raise DriverError("the fabric driver is not initialised: call initialize(ordinal) first")
        return self._runtime

    def _check_live(self, address: int) -> None:
        if address not in self._live:
            raise DriverError(f"{address:#x} is not memory of this driver, or was freed before")
