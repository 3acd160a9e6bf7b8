"""The emulated device: heaps in shared memory, each mapped at an address of its own in every process.

A rank's heap is an anonymous memory file. Its (process id, descriptor) go round by torch.distributed, and peers open it
through ``/proc``; nothing has a name in the file system, and once the last process that maps it ends, it is gone. Ranks
must share a host and a process-id namespace.

Addresses are chosen, not left to the kernel, so that wrong address arithmetic shows: all bases in a process differ, no
two processes map a heap at the same address, neighbouring heaps are more than 4 GiB apart (32-bit offsets cannot
reach) and unevenly spaced (a mixed-up pair of ranks lands nowhere). Every base is a multiple of 2 MiB.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import weakref
from typing import Any

import torch

from iris_under_test.host.distributed.helpers import agree, exchange

__all__ = ["EmulatedPlatform"]

_ARENA = 0x1000_0000_0000
_MIB = 1 << 20
_GIB = 1 << 30
_GRAIN = 2 * _MIB
_ATTEMPTS = 64
_MAP_FIXED_NOREPLACE = 0x100000
_MAP_NORESERVE = 0x4000
_MAP_FAILED = ctypes.c_void_p(-1).value


class EmulatedPlatform:
    """Tensors on the CPU, kernels on Triton's active (emulating) driver, each rank its own device."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    def device(self, rank: int) -> torch.device:
        return torch.device("cpu")

    def device_id(self, rank: int) -> int:
        return rank

    def map_symmetric_memory(self, size: int, rank: int, num_ranks: int) -> EmulatedMemory:
        return EmulatedMemory(size, rank, num_ranks, self._driver)

    def synchronize(self, stream: Any = None) -> None:
        """Nothing to wait for: a launch returns when its kernel has ended."""


class EmulatedMemory:
    """This rank's segment and its peers'; see ``base.SymmetricMemory``.

    The driver is told of each segment (``register_memory``), as a HIP program registers host memory. Own tensors may
    outlive ``close``: their segment is unmapped when the last of them is gone.
    """

    pool: torch.Tensor
    bases: list[int]

    def __init__(self, size: int, rank: int, num_ranks: int, driver: Any) -> None:
        self.bases = []
        mapped: dict[int, int] = {}
        announced: list[int] = []
        self._finalizer = weakref.finalize(self, _release, mapped, announced, size, driver)
        descriptor = -1
        try:
            error: Exception | None = None
            try:
                descriptor = _memory_file(size, rank)
            except (OSError, OverflowError) as failure:
                error = ValueError(f"cannot allocate a heap of {size} bytes: {failure}")
            agree(error, f"allocating a heap of {size} bytes")

            inode = os.fstat(descriptor).st_ino
            peers = exchange([os.getpid(), descriptor, inode])
            try:
                for owner in range(num_ranks):
                    mapped[owner] = _map_peer(*peers[owner], size=size, viewer=rank, owner=owner, num_ranks=num_ranks)
            except OSError as failure:
                error = ValueError(f"cannot map heaps of {size} bytes: {failure}")
            # Also the point after which no peer needs our descriptor any more.
            agree(error, "mapping the peers' heaps")
        except BaseException:
            self._finalizer()
            raise
        finally:
            if descriptor >= 0:
                os.close(descriptor)

        self.bases = [mapped[owner] for owner in range(num_ranks)]
        self.pool = _tensor_over(mapped.pop(rank), size)
        if hasattr(driver, "register_memory"):
            for owner, base in enumerate(self.bases):
                peer = None if owner == rank else owner
                driver.register_memory(base, size, f"symmetric heap of rank {owner}", peer=peer)
                announced.append(base)

    def close(self) -> None:
        self._finalizer()


def _release(mapped: dict[int, int], announced: list[int], size: int, driver: Any) -> None:
    while announced:
        driver.unregister_memory(announced.pop())
    while mapped:
        _unmap(mapped.popitem()[1], size)


def _memory_file(size: int, rank: int) -> int:
    descriptor = os.memfd_create(f"iris-heap-rank{rank}", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _map_peer(pid: int, descriptor: int, inode: int, *, size: int, viewer: int, owner: int, num_ranks: int) -> int:
    opened = os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.fstat(opened).st_ino != inode:
            raise OSError(errno.ESTALE, f"process {pid} of rank {owner} is not visible: ranks must share a host")
        return _map(opened, size, _address(size, viewer, owner, num_ranks))
    finally:
        os.close(opened)


def _address(size: int, viewer: int, owner: int, num_ranks: int) -> int:
    """Where ``viewer`` maps the heap of ``owner``; see the module docstring for what the terms are good for."""
    spread = _GRAIN * (num_ranks * num_ranks + 4 * num_ranks)
    stride = -(-(size + 4 * _GIB + spread) // _GRAIN) * _GRAIN
    return _ARENA + owner * stride + _GRAIN * (owner * owner + 2 * viewer + 1)


def _map(descriptor: int, size: int, address: int) -> int:
    """Maps the file at ``address``, or a whole number of TiB above where that is taken (a second instance)."""
    libc = _libc()
    for attempt in range(_ATTEMPTS):
        wanted = address + (attempt << 40)
        flags = mmap.MAP_SHARED | _MAP_FIXED_NOREPLACE | _MAP_NORESERVE
        got = libc.mmap(wanted, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0)
        if got == wanted:
            return wanted
        if got != _MAP_FAILED:
            # A kernel older than the flag takes the address as a hint.
            _unmap(got, size)
        elif ctypes.get_errno() != errno.EEXIST:
            code = ctypes.get_errno()
            raise OSError(code, f"mmap of {size} bytes at {wanted:#x}: {os.strerror(code)}")
    raise OSError(errno.EEXIST, f"no free address for a heap of {size} bytes after {_ATTEMPTS} attempts")


def _unmap(address: int, size: int) -> None:
    if _libc().munmap(address, size) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"munmap of {size} bytes at {address:#x}: {os.strerror(code)}")


def _tensor_over(address: int, size: int) -> torch.Tensor:
    """A uint8 tensor over mapped memory, which is unmapped when the last tensor on it is gone."""
    memory = (ctypes.c_ubyte * size).from_address(address)
    # Not at exit: tensors may still be in use by other exit handlers, and the kernel unmaps anyway.
    weakref.finalize(memory, _unmap, address, size).atexit = False
    return torch.frombuffer(memory, dtype=torch.uint8)


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc
