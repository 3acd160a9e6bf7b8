"""The emulated device's runtime: memory files, mapped; descriptors and handles as AMD's runtime has them.

A table of this process has what is mapped, as a driver's would; what kernels may access is registered with Triton's
active driver.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from iris_under_test.host.platform.access import hipMemAccessFlagsProtNone, hipMemAccessFlagsProtRead
from iris_under_test.host.platform.amd import AmdRuntime, xcd_count

from . import mappings

__all__ = ["EmulatedRuntime"]

_ARENA = 0x3000_0000_0000
_APART = 1 << 30
_GRANULARITY = 64 << 10
_HANDLE = struct.Struct("<5q24x")  # process, descriptor, inode, size, rank


@dataclass(frozen=True)
class _Memory:
    """One mapping. ``origin``: which function made it, and so which one takes it back. The descriptor is ours."""

    origin: str
    size: int
    descriptor: int


_mapped: dict[int, _Memory] = {}
_reserved: dict[int, int] = {}
_next_address = _ARENA


class EmulatedRuntime(AmdRuntime):
    """Runtime calls on the emulated device, for ``host.platform.hip``. ``driver``: Triton's active driver."""

    name = "emulated"

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    def set_device(self, device: int) -> None:
        if device != self.device_id():
            raise ValueError(f"this process's emulated device is {self.device_id()}, its rank, and no other: {device}")

    def device_id(self) -> int:
        return dist.get_rank() if dist.is_initialized() else 0

    def device_count(self) -> int:
        return dist.get_world_size() if dist.is_initialized() else 1

    def cu_count(self, device: int) -> int:
        return int(self._driver.utils.get_device_properties(0)["multiprocessor_count"])

    def arch(self, device: int) -> str:
        return str(self._driver.get_current_target().arch)

    def wall_clock_khz(self, device: int) -> int:
        return 100_000  # s_memrealtime counts at 100 MHz

    def xcc_count(self, device: int) -> int:
        return xcd_count(self.arch(device))

    def malloc(self, size: int, fine_grained: bool = False) -> int:
        with _refusals(f"malloc of {size} bytes"):
            return self._map("malloc", mappings.memory_file(size, self.device_id()), size, None)

    def free(self, ptr: int) -> None:
        self._unmap("malloc", ptr)

    def address_range(self, ptr: int) -> tuple[int, int]:
        for base, memory in _mapped.items():
            if base <= ptr < base + memory.size:
                return base, memory.size
        # The heap's and torch's own memory: what the system has mapped there as one piece.
        with open("/proc/self/maps", encoding="utf-8") as maps:
            for line in maps:
                start, stop = (int(text, 16) for text in line.split(" ", 1)[0].split("-"))
                if start <= ptr < stop:
                    return start, stop - start
        raise RuntimeError(f"nothing is mapped at {ptr:#x}")

    def ipc_handle(self, ptr: int) -> bytes:
        _, memory = self._allocation(ptr)
        inode = os.fstat(memory.descriptor).st_ino
        return _HANDLE.pack(os.getpid(), memory.descriptor, inode, memory.size, self.device_id())

    def open_ipc_handle(self, handle: bytes) -> int:
        process, descriptor, inode, size, rank = _HANDLE.unpack(handle)
        if process == os.getpid():
            raise RuntimeError("an interprocess handle of this very process cannot be opened in it")
        with _refusals(f"opening memory of rank {rank}, process {process}"):
            opened = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
            if os.fstat(opened).st_ino != inode:
                os.close(opened)
                raise RuntimeError(f"the memory of rank {rank}, process {process}, is there no more")
            return self._map("open_ipc_handle", opened, size, rank)

    def close_ipc_handle(self, ptr: int) -> None:
        self._unmap("open_ipc_handle", ptr)

    def export_dmabuf(self, ptr: int, size: int) -> int:
        for base, memory in _mapped.items():
            if base <= ptr < base + memory.size:
                break
        else:
            raise RuntimeError(
                f"{ptr:#x} is not in memory that hip allocated, imported or mapped; only such memory can be exported"
            )
        if ptr + size > base + memory.size:
            raise RuntimeError(f"{size} bytes at {ptr:#x} end beyond their allocation of {memory.size} at {base:#x}")
        return os.dup(memory.descriptor)

    def import_dmabuf(self, fd: int, size: int) -> tuple[int, int]:
        with _refusals(f"import of {size} bytes"):
            if size > (there := os.fstat(fd).st_size):
                raise RuntimeError(f"{size} bytes are to be imported of a memory that has {there}")
            address = self._map("import_dmabuf", os.dup(fd), size, -1)
        return address, address

    def destroy_external_memory(self, memory: int) -> None:
        self._unmap("import_dmabuf", memory)

    def granularity(self, device: int) -> int:
        return _GRANULARITY

    def mem_create(self, size: int, device: int) -> int:
        _whole_granules(size)
        with _refusals(f"memory of {size} bytes"):
            return mappings.memory_file(size, device)

    def mem_release(self, handle: int) -> None:
        with _refusals("release"):
            os.close(handle)

    def mem_export(self, handle: int) -> int:
        with _refusals("export"):
            return os.dup(handle)

    def mem_import(self, fd: int) -> int:
        with _refusals("import"):
            return os.dup(fd)

    def mem_address_reserve(self, size: int, alignment: int, address: int) -> int:
        _whole_granules(size)
        with _refusals(f"reserving {size} bytes"):
            start = mappings.reserve(size, address or _place_for(size, max(alignment, _GRANULARITY)))
        _reserved[start] = size
        return start

    def mem_address_free(self, ptr: int, size: int) -> None:
        if _reserved.get(ptr) != size or any(ptr <= base < ptr + size for base in _mapped):
            raise RuntimeError(f"{size} bytes at {ptr:#x} are not a reserved range, or something is mapped there")
        with _refusals("freeing addresses"):
            mappings.unmap(ptr, size)
        del _reserved[ptr]

    def mem_map(self, ptr: int, size: int, offset: int, handle: int) -> None:
        _whole_granules(ptr, size)
        if offset:
            raise RuntimeError(f"memory is mapped from its start, not from offset {offset}")
        if not any(base <= ptr and ptr + size <= base + room for base, room in _reserved.items()):
            raise RuntimeError(f"{size} bytes at {ptr:#x} are not reserved")
        if any(base < ptr + size and ptr < base + memory.size for base, memory in _mapped.items()):
            raise RuntimeError(f"something is mapped already within {size} bytes at {ptr:#x}")
        with _refusals("mapping"):
            if size > (there := os.fstat(handle).st_size):
                raise RuntimeError(f"{size} bytes are to be mapped of a memory that has {there}")
            mappings.place(handle, size, ptr)
            _mapped[ptr] = _Memory("mem_map", size, os.dup(handle))

    def mem_unmap(self, ptr: int, size: int) -> None:
        memory = _mapped.get(ptr)
        if memory is None or (memory.origin, memory.size) != ("mem_map", size):
            raise RuntimeError(f"{size} bytes at {ptr:#x} are not what one call has mapped")
        with _refusals("unmapping"):
            mappings.vacate(ptr, size)
        self._forget(ptr)

    def mem_set_access(self, ptr: int, size: int, device: int, flags: int) -> None:
        """Let kernels access the memory, or forbid it; the host may access what is mapped."""
        if flags == hipMemAccessFlagsProtRead:
            raise RuntimeError("the emulated device does not enforce read access only: set ProtReadWrite or ProtNone")
        parts = sorted((base, memory.size) for base, memory in _mapped.items() if ptr <= base < ptr + size)
        if sum(part for _, part in parts) != size:
            raise RuntimeError(f"not all of {size} bytes at {ptr:#x} is mapped")
        for base, part in parts:
            if flags == hipMemAccessFlagsProtNone:
                self._conceal(base)
            elif base not in _announced:
                self._announce(base, part, None)

    def _allocation(self, ptr: int) -> tuple[int, _Memory]:
        for base, memory in _mapped.items():
            if memory.origin == "malloc" and base <= ptr < base + memory.size:
                return base, memory
        raise RuntimeError(f"{ptr:#x} does not point into memory of malloc")

    def _map(self, origin: str, descriptor: int, size: int, rank: int | None) -> int:
        """Map the file, whose descriptor becomes ours. ``rank``: the owner, -1 for one unknown, None for this one."""
        try:
            address = mappings.map_file(descriptor, size, _place_for(size, _GRANULARITY))
        except OSError:
            os.close(descriptor)
            raise
        _mapped[address] = _Memory(origin, size, descriptor)
        self._announce(address, size, rank)
        return address

    def _unmap(self, origin: str, ptr: int) -> None:
        memory = _mapped.get(ptr)
        if memory is None or memory.origin != origin:
            raise RuntimeError(f"{ptr:#x} is not an address of {origin}, or was freed before")
        with _refusals("unmapping"):
            mappings.unmap(ptr, memory.size)
        self._forget(ptr)

    def _announce(self, address: int, size: int, rank: int | None) -> None:
        if hasattr(self._driver, "register_memory"):
            owner = "" if rank is None or rank < 0 else f" of rank {rank}"
            self._driver.register_memory(address, size, f"memory of the runtime{owner}", peer=rank)
            _announced[address] = self._driver

    def _forget(self, address: int) -> None:
        os.close(_mapped.pop(address).descriptor)
        self._conceal(address)

    def _conceal(self, address: int) -> None:
        if address in _announced:
            _announced.pop(address).unregister_memory(address)


_announced: dict[int, Any] = {}
"""The driver with which the memory at an address is registered."""


def _place_for(size: int, alignment: int) -> int:
    """A multiple of ``alignment``, which no earlier call gave, with nearly a GiB of nothing before it."""
    global _next_address
    start = (_next_address + _APART) // alignment * alignment
    if size < _ARENA:  # what is larger will be refused
        _next_address = start + size
    return start


def _whole_granules(*numbers: int) -> None:
    if any(number % _GRANULARITY for number in numbers):
        raise RuntimeError(f"{numbers} are not all multiples of the granularity {_GRANULARITY}")


@contextlib.contextmanager
def _refusals(doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RuntimeError(f"{doing}: {error}") from error
