"""What every fabric driver asks of its arguments."""

from __future__ import annotations

from . import HANDLE_BYTES

__all__ = ["check_handle", "check_size"]


def check_size(size: int) -> None:
    if size <= 0:
        raise ValueError(f"an allocation must have a positive number of bytes, got {size}")


def check_handle(handle_bytes: bytes) -> None:
    if len(handle_bytes) != HANDLE_BYTES:
        raise ValueError(f"a fabric handle has {HANDLE_BYTES} bytes, got {len(handle_bytes)}")
