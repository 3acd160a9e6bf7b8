"""Memory of a GPU in two processes: one exports it through its driver's library, the other maps it.

    owner     exports = calls.export(address)          plain data for another process
    other     mapping = calls.mapped([...], device)    the same memory, at an address of its own

CUDA's driver API and HIP have the same calls under different prefixes; a kind of GPU names its library with
``GpuKind.memory_calls``. The drivers have two ways, for two kinds of memory:

    allocations (cudaMalloc, hipMalloc)                  an IPC handle, for the whole allocation
    virtual memory (cuMemCreate; torch's symmetric memory) a file descriptor, for each mapping of the address range

Facts: CUDA Driver API, "Memory Management" and "Virtual Memory Management"; HIP API, the functions of the same names.
Both processes need a current context on the GPU, which torch makes.
"""

from __future__ import annotations

import ctypes
import functools
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.errors import HarnessError

HANDLE_BYTES = 64
"""Bytes of an IPC handle."""

_DESCRIPTOR, _ON_DEVICE, _READ_WRITE, _PEER_ACCESS, _BUFFER_ID = 1, 1, 3, 1, 7
"""A handle of the type POSIX file descriptor; a location of the type device; access; the flag for opening a handle; the
attribute with the number of an address's memory. Both drivers have the same values."""


class DriverError(HarnessError):
    """A call of the driver's library failed."""


@dataclass(frozen=True)
class Export:
    """Memory for another process: ``size`` bytes, which start at ``base`` in the process that has them.

    ``number``: the driver's for this memory, which no other memory of that process has or will have. Either ``handle``
    names the allocation, or ``descriptor`` is a file descriptor of that process.
    """

    base: int
    size: int
    number: int
    handle: bytes = b""
    descriptor: int = -1

    def plain(self) -> list[Any]:
        """Return it as plain data."""
        return [self.base, self.size, self.number, self.handle, self.descriptor]

    @classmethod
    def of(cls, plain: Any) -> Export:
        """Return the export that a process sent as plain data. HarnessError if it has another form."""
        types = [int, int, int, bytes, int]
        if not isinstance(plain, list) or [type(part) for part in plain] != types or not _possible(*plain):
            raise HarnessError(f"expected an export of memory, got {plain!r:.200}")
        return cls(*plain)


def _possible(base: int, size: int, number: int, handle: bytes, descriptor: int) -> bool:
    named = (len(handle) == HANDLE_BYTES and descriptor == -1) or (not handle and 0 <= descriptor < 1 << 31)
    return named and base > 0 and size > 0 and base + size < 1 << 64 and 0 <= number < 1 << 64


class Mapped:
    """Memory of another process in this one: ``size`` bytes at ``address``, until ``close`` or the object's end."""

    def __init__(self, address: int, size: int, undo: Callable[[], None]) -> None:
        self.address = address
        self.size = size
        self._end = weakref.finalize(self, undo)
        self._end.atexit = False  # the driver frees what a process has mapped, and may have ended by then
        # By this interface torch takes another owner's memory, also under ROCm; its tensors keep this object.
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 2,
        }

    def close(self) -> None:
        """Unmap it. Idempotent. No work of the device may use it any more."""
        self._end()


class _Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * HANDLE_BYTES)]


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _Access(ctypes.Structure):
    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


_word, _bytes, _number = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int
_SIGNATURES: Mapping[str, tuple[Any, ...]] = {
    "MemGetAddressRange": (ctypes.POINTER(_word), ctypes.POINTER(_bytes), _word),
    "PointerGetAttribute": (ctypes.POINTER(_word), _number, _word),
    "IpcGetMemHandle": (ctypes.POINTER(_Handle), _word),
    "IpcOpenMemHandle": (ctypes.POINTER(_word), _Handle, ctypes.c_uint),
    "IpcCloseMemHandle": (_word,),
    "MemRetainAllocationHandle": (ctypes.POINTER(_word), _word),
    "MemExportToShareableHandle": (ctypes.POINTER(_number), _word, _number, _word),
    "MemImportFromShareableHandle": (ctypes.POINTER(_word), ctypes.c_void_p, _number),
    "MemAddressReserve": (ctypes.POINTER(_word), _bytes, _bytes, _word, _word),
    "MemAddressFree": (_word, _bytes),
    "MemMap": (_word, _bytes, _bytes, _word, _word),
    "MemSetAccess": (_word, _bytes, ctypes.POINTER(_Access), _bytes),
    "MemUnmap": (_word, _bytes),
    "MemRelease": (_word,),
}


@dataclass(frozen=True)
class MemoryCalls:
    """The calls of one driver's library, all on the current device of torch.

    ``library``: its file; ``prefix``: of the functions' names; ``versions``: endings of those names that have one;
    ``error_name``: the function that names a status; ``by_value``: whether a descriptor is passed in a pointer's place,
    else a pointer to it.
    """

    library: str
    prefix: str
    error_name: str
    versions: Mapping[str, str] = field(default_factory=dict)
    by_value: bool = True

    def export(self, address: int) -> Export | None:
        """Return the memory around an address of this process for another one; None if the driver does not export it.

        A descriptor is the caller's to close.
        """
        base, size, number, memory = _word(), _bytes(), _word(), _word()
        if self._status("MemGetAddressRange", ctypes.byref(base), ctypes.byref(size), address):
            return None
        self._call("PointerGetAttribute", ctypes.byref(number), _BUFFER_ID, address)
        if self._status("MemRetainAllocationHandle", ctypes.byref(memory), address) == 0:
            descriptor = _number(-1)
            status = self._status("MemExportToShareableHandle", ctypes.byref(descriptor), memory, _DESCRIPTOR, 0)
            self._call("MemRelease", memory)
            return None if status else Export(base.value, size.value, number.value, descriptor=descriptor.value)
        handle = _Handle()
        if self._status("IpcGetMemHandle", ctypes.byref(handle), base):
            return None
        return Export(base.value, size.value, number.value, bytes(handle.bytes))

    def opened(self, export: Export) -> Mapped:
        """Map an allocation that another process exported by its handle, with the size by this process's driver.

        DriverError if it cannot be mapped.
        """
        opened = _word()
        self._call("IpcOpenMemHandle", ctypes.byref(opened), _Handle.from_buffer_copy(export.handle), _PEER_ACCESS)
        undone = [("IpcCloseMemHandle", (opened.value,))]
        base, size = _word(), _bytes()
        try:
            self._call("MemGetAddressRange", ctypes.byref(base), ctypes.byref(size), opened)
        except DriverError:
            self._undo(undone)
            raise
        return Mapped(opened.value, base.value + size.value - opened.value, lambda: self._undo(undone))

    def joined(self, pieces: Sequence[tuple[int, int]], device: int) -> Mapped:
        """Map virtual memory that another process exported as descriptors, one piece after the other.

        ``pieces``: a descriptor of this process and a size each; ``device``: the ordinal of the GPU that shall reach
        them. The driver refuses a size beyond the memory's. DriverError if they cannot be mapped.
        """
        total = sum(size for _, size in pieces)
        start = _word()
        self._call("MemAddressReserve", ctypes.byref(start), total, 0, 0, 0)
        undone: list[tuple[str, tuple[int, ...]]] = [("MemAddressFree", (start.value, total))]
        mapped = Mapped(start.value, total, lambda: self._undo(undone))
        place = start.value
        try:
            for descriptor, size in pieces:
                memory, number = _word(), _number(descriptor)
                passed = ctypes.c_void_p(descriptor if self.by_value else ctypes.addressof(number))
                self._call("MemImportFromShareableHandle", ctypes.byref(memory), passed, _DESCRIPTOR)
                undone.append(("MemRelease", (memory.value,)))
                self._call("MemMap", place, size, 0, memory, 0)
                undone.append(("MemUnmap", (place, size)))
                access = _Access(_Location(_ON_DEVICE, device), _READ_WRITE)
                self._call("MemSetAccess", place, size, ctypes.byref(access), 1)
                place += size
        except DriverError:
            mapped.close()
            raise
        return mapped

    def _undo(self, calls: Sequence[tuple[str, tuple[int, ...]]]) -> None:
        for name, arguments in reversed(calls):
            self._call(name, *arguments)

    def _call(self, name: str, *arguments: Any) -> None:
        if status := self._status(name, *arguments):
            text = ctypes.c_char_p()
            getattr(_loaded(self.library), self.error_name)(status, ctypes.byref(text))
            reason = (text.value or b"").decode() or f"status {status}"
            raise DriverError(f"{self.prefix}{name} of {os.path.basename(self.library)} failed: {reason}")

    def _status(self, name: str, *arguments: Any) -> int:
        function = getattr(_loaded(self.library), f"{self.prefix}{name}{self.versions.get(name, '')}")
        function.argtypes = _SIGNATURES[name]
        return int(function(*arguments))


@functools.cache
def _loaded(library: str) -> ctypes.CDLL:
    return ctypes.CDLL(library)
