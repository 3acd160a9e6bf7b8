"""Mappings of memory files at addresses of our choice, for the emulated device.

Addresses are chosen, not left to the kernel, so that wrong address arithmetic shows: all bases in a process differ, no
two processes map a heap at the same address, neighbouring heaps are more than 4 GiB apart (32-bit offsets cannot
reach) and unevenly spaced (a mixed-up pair of ranks lands nowhere). A multiple of 4 GiB lies inside each heap, near its
beginning, at another place in each, so that the lower halves of bases differ, and the upper halves of a heap's
addresses, as in a large heap: arithmetic that loses a borrow or the upper half is wrong even in a small one. So a base
is a multiple of a page only.

All functions raise OSError with the system's message. Sizes are bytes, multiples of a page except at a file's end.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import mmap
import os
import weakref

import torch

__all__ = ["Mapping", "heap_address", "map_file", "memory_file", "place", "reserve", "tensor_over", "unmap", "vacate"]

_ARENA = 0x1000_0000_0000
_GIB = 1 << 30
_PAGE = 4096
_STEP = 128 * _GIB
_ATTEMPTS = 800  # as many steps as the address space has from there on
_NO_ACCESS = 0  # PROT_NONE, which mmap has no name for before Python 3.13
_MAP_FIXED = 0x10
_MAP_FIXED_NOREPLACE = 0x100000
_MAP_NORESERVE = 0x4000
_MAP_FAILED = ctypes.c_void_p(-1).value
_ACCESSIBLE = mmap.PROT_READ | mmap.PROT_WRITE
_RESERVED = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE


def heap_address(size: int, viewer: int, owner: int, num_ranks: int) -> int:
    """Return the address at which ``viewer`` maps the heap of ``owner``; the module docstring explains the terms."""
    multiples = size // (4 * _GIB) + 3 + num_ranks  # of 4 GiB, from one owner to the next
    crossed = _ARENA + 4 * _GIB * (1 + owner * multiples + owner * owner + viewer)
    pages = max(1, size // _PAGE)
    before = 1 + pages // 16 + (5 * owner + 3 * viewer) % max(1, pages // 16)
    return crossed - _PAGE * min(before, max(1, pages - 1))


def memory_file(size: int, rank: int) -> int:
    """Return the descriptor of a new memory file; ``rank`` is in its name, which /proc shows."""
    descriptor = os.memfd_create(f"iris-heap-rank{rank}", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def map_file(descriptor: int, size: int, address: int) -> int:
    """Map the file at ``address``, or some steps of 128 GiB above where that is taken (a second instance)."""
    return _somewhere(address, size, _ACCESSIBLE, mmap.MAP_SHARED | _MAP_NORESERVE, descriptor)


def reserve(size: int, address: int) -> int:
    """Reserve addresses whose use faults, at ``address`` or some steps of 128 GiB above."""
    return _somewhere(address, size, _NO_ACCESS, _RESERVED, -1)


def place(descriptor: int, size: int, address: int) -> None:
    """Map the file at an address inside a reservation."""
    _mmap(address, size, _ACCESSIBLE, mmap.MAP_SHARED | _MAP_FIXED | _MAP_NORESERVE, descriptor)


def vacate(address: int, size: int) -> None:
    """Undo ``place``: the addresses are reserved again, and fault."""
    _mmap(address, size, _NO_ACCESS, _RESERVED | _MAP_FIXED, -1)


def unmap(address: int, size: int) -> None:
    """Unmap the addresses."""
    if _libc().munmap(address, size) != 0:
        raise _last_error(f"munmap of {size} bytes at {address:#x}")


class Mapping:
    """A mapping of ``size`` bytes at ``address``, unmapped with the last reference to it."""

    def __init__(self, address: int, size: int) -> None:
        # Not at exit: tensors may still be in use by other exit handlers, and the kernel unmaps anyway.
        weakref.finalize(self, unmap, address, size).atexit = False


def tensor_over(address: int, size: int, owner: object) -> torch.Tensor:
    """A 1-D uint8 tensor over mapped memory, which keeps ``owner`` alive."""
    memory = (ctypes.c_ubyte * size).from_address(address)
    memory.owner = owner  # type: ignore[attr-defined]
    return torch.frombuffer(memory, dtype=torch.uint8)


def _somewhere(address: int, size: int, protection: int, flags: int, descriptor: int) -> int:
    for attempt in range(_ATTEMPTS):
        wanted = address + attempt * _STEP
        try:
            got = _mmap(wanted, size, protection, flags | _MAP_FIXED_NOREPLACE, descriptor)
        except FileExistsError:
            continue
        if got == wanted:
            return wanted
        # A kernel older than the flag takes the address as a hint.
        unmap(got, size)
    raise OSError(errno.EEXIST, f"no free address for a heap of {size} bytes after {_ATTEMPTS} attempts")


def _mmap(address: int, size: int, protection: int, flags: int, descriptor: int) -> int:
    got = _libc().mmap(address, size, protection, flags, descriptor, 0)
    if got == _MAP_FAILED:
        raise _last_error(f"mmap of {size} bytes at {address:#x}")
    return int(got)


def _last_error(doing: str) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, f"{doing}: {os.strerror(code)}")


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc
