"""Fabric handles: their form, the checks of every driver, and their way through a collective as tensors."""

from __future__ import annotations

import torch

__all__ = ["HANDLE_BYTES", "check_handle", "check_size", "handle_to_tensor", "tensor_to_handle"]

HANDLE_BYTES = 64
"""Length of a fabric handle: CU_IPC_HANDLE_SIZE, which fabric handles have too."""


def handle_to_tensor(handle: bytes, device: torch.device | str = "cpu") -> torch.Tensor:
    """Return the handle as a uint8 tensor of shape (64,), for a collective. ValueError for another length."""
    check_handle(handle)
    return torch.tensor(list(handle), dtype=torch.uint8, device=device)


def tensor_to_handle(tensor: torch.Tensor) -> bytes:
    """Return the handle of a tensor of ``handle_to_tensor``. ValueError unless it is uint8 and has 64 elements."""
    if tensor.dtype != torch.uint8 or tensor.numel() != HANDLE_BYTES:
        raise ValueError(
            f"a fabric handle is {HANDLE_BYTES} elements of torch.uint8, got {tensor.numel()} of {tensor.dtype}"
        )
    return bytes(tensor.flatten().tolist())


def check_size(size: int) -> None:
    """Raise ValueError unless ``size`` is positive."""
    if size <= 0:
        raise ValueError(f"an allocation must have a positive number of bytes, got {size}")


def check_handle(handle_bytes: bytes) -> None:
    """Raise ValueError unless the handle has 64 bytes."""
    if len(handle_bytes) != HANDLE_BYTES:
        raise ValueError(f"a fabric handle has {HANDLE_BYTES} bytes, got {len(handle_bytes)}")
