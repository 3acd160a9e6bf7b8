"""Memory that the ranks of a rack share over its fabric, by handles of 64 bytes."""

from __future__ import annotations

import torch

from iris_under_test.drivers.base import BaseFabricDriver

__all__ = ["HANDLE_BYTES", "get_fabric_driver", "handle_to_tensor", "tensor_to_handle"]

HANDLE_BYTES = 64
"""Length of a fabric handle: CU_IPC_HANDLE_SIZE, which fabric handles have too."""


def get_fabric_driver() -> BaseFabricDriver:
    """The driver for the device of Triton's active driver, yet to be initialised.

    Raises:
        RuntimeError: Triton has no active driver.
    """
    from triton.runtime import driver

    if driver.active.get_active_torch_device().type == "cpu":
        from .emulated import EmulatedFabricDriver

        return EmulatedFabricDriver()
    if torch.version.hip is not None:
        from .amd import AmdFabricDriver

        return AmdFabricDriver()
    from .nvidia import NvidiaFabricDriver

    return NvidiaFabricDriver()


def handle_to_tensor(handle: bytes, device: torch.device | str = "cpu") -> torch.Tensor:
    """The handle as a uint8 tensor of shape (64,), for a collective. ValueError for another length."""
    if len(handle) != HANDLE_BYTES:
        raise ValueError(f"a fabric handle has {HANDLE_BYTES} bytes, got {len(handle)}")
    return torch.tensor(list(handle), dtype=torch.uint8, device=device)


def tensor_to_handle(tensor: torch.Tensor) -> bytes:
    """``handle_to_tensor`` taken back. ValueError unless the tensor is uint8 and has 64 elements."""
    if tensor.dtype != torch.uint8 or tensor.numel() != HANDLE_BYTES:
        raise ValueError(
            f"a fabric handle is {HANDLE_BYTES} elements of torch.uint8, got {tensor.numel()} of {tensor.dtype}"
        )
    return bytes(tensor.flatten().tolist())
