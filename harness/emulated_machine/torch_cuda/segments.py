"""Mappings of the memory of other processes."""

from __future__ import annotations

import ctypes
import mmap
import os

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def map_descriptor(descriptor: int, nbytes: int) -> int:
    """Map ``nbytes`` of a file, shared, and return the address."""
    address = _libc.mmap(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, 0)
    if address is None or address == ctypes.c_void_p(-1).value:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot map {nbytes} bytes: {os.strerror(error)}")
    return int(address)


def unmap(address: int, nbytes: int) -> None:
    """Undo ``map_descriptor``."""
    _libc.munmap(address, nbytes)
