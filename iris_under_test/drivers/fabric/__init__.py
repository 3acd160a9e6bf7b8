"""Memory that the ranks of a rack share over its fabric, by handles of 64 bytes."""

from __future__ import annotations

from iris_under_test.drivers.base import (
    BaseFabricDriver,
    CudaFabricError,
    CudaFabricNotSupported,
    DriverError,
    DriverNotSupported,
    LocalAllocation,
    PeerMapping,
)
from iris_under_test.host.platform import current

from .handles import HANDLE_BYTES, handle_to_tensor, tensor_to_handle

__all__ = [
    "HANDLE_BYTES",
    "BaseFabricDriver",
    "CudaFabricError",
    "CudaFabricNotSupported",
    "DriverError",
    "DriverNotSupported",
    "LocalAllocation",
    "PeerMapping",
    "get_fabric_driver",
    "handle_to_tensor",
    "tensor_to_handle",
]


def get_fabric_driver() -> BaseFabricDriver:
    """Return the driver for the device of Triton's active driver; call its ``initialize`` first.

    Raises:
        RuntimeError: Triton has no active driver.
    """
    return current().fabric_driver()
