"""Memory of the emulated GPUs for the Python side: allocation, and the regions that kernels may access.

A memory source of ``EmulatedDriver``: kernels reach what the program allocated, opened or mapped through HIP without
registering it.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any, NamedTuple

from harness.emulated_machine.hip import loading
from harness.errors import HarnessError

TORCH = "torch.cuda"
"""Kind of the regions that ``allocate`` made: torch's segments, whose tensors are accessible one by one."""

_ACCESSIBLE, _RESERVED = 0, 1
_peers: dict[int, tuple[int, int, int]] = {}
_changes = 0


class _Row(ctypes.Structure):
    """``struct row`` of native/machine.h."""

    _fields_ = [
        ("address", ctypes.c_uint64), ("size", ctypes.c_uint64), ("access", ctypes.c_uint64),
        ("device", ctypes.c_int32), ("state", ctypes.c_int32), ("foreign", ctypes.c_int32), ("place", ctypes.c_int32),
        ("made_by", ctypes.c_char * 40), ("ended_by", ctypes.c_char * 40),
    ]  # fmt: skip


class Region(NamedTuple):
    """``nbytes`` at ``address`` on ``device``; ``kind`` is the call that made it, ``peer`` the owner if it is another
    process or device."""

    address: int
    nbytes: int
    device: int
    kind: str
    peer: int | None


def allocate(nbytes: int, device: int, fine_grained: bool = False) -> int:
    """Return the address of new memory of ``device``, zeroed, that every device may access.

    MemoryError if the device has not that much left; HarnessError for any other failure.
    """
    address = ctypes.c_void_p()
    _check(
        _library().harness_hip_allocate(ctypes.byref(address), ctypes.c_size_t(nbytes), device, fine_grained), nbytes
    )
    return int(address.value or 0)


def free(address: int) -> None:
    """Free what ``allocate`` returned. HarnessError if ``address`` is not the beginning of an allocation."""
    _check(_library().harness_hip_free(ctypes.c_void_p(address)), 0)


def regions() -> list[Region]:
    """Return the memory that kernels of the calling thread's current device may access."""
    return [region for region, problem in _rows() if problem is None] + [
        Region(address, nbytes, device, "peer", peer) for address, (nbytes, device, peer) in _peers.items()
    ]


def inaccessible() -> list[tuple[int, int, str]]:
    """Return (address, bytes, reason) of memory that kernels may not access: freed, closed, reserved or not granted."""
    return [(region.address, region.nbytes, problem) for region, problem in _rows() if problem is not None]


def generation() -> int:
    """Return a number that changes whenever ``regions`` does, also by a change of the current device."""
    return int(_library().harness_hip_generation()) << 20 | _changes & 0xFFFFF


def device_of(address: int) -> int:
    """Return the device of this process whose memory holds ``address``; -1 if none does."""
    for start, (size, device, _) in _peers.items():
        if start <= address < start + size:
            return device
    return int(_library().harness_hip_device_of(ctypes.c_void_p(address)))


def obstacle(address: int, nbytes: int) -> str:
    """Return why ``nbytes`` at ``address`` cannot be accessed, as a part of a sentence; empty if they can be."""
    left = int(_library().harness_hip_accessible(ctypes.c_void_p(address)))
    for start, (size, _, _) in _peers.items():
        if start <= address < start + size:
            left = max(left, start + size - address)
    if left >= nbytes:
        return ""
    for region, problem in _rows():
        if region.address <= address < region.address + region.nbytes and not left:
            return f"there is {problem or region.kind + ' memory'}"
    return f"the memory there ends after {left} bytes" if left else "no memory of the emulated machine is there"


def place_of(device: int) -> int:
    """Return the number of a device of this process among all GPUs of the machine."""
    return int(_library().harness_hip_place(device))


def used(device: int) -> int:
    """Return the bytes that this process has allocated on ``device``."""
    return int(_library().harness_hip_used(device))


def functions(*names: str) -> list[int]:
    """Return the addresses of functions of the library, for torch's C++ part."""
    return [int(ctypes.cast(getattr(_library(), name), ctypes.c_void_p).value or 0) for name in names]


def share(address: int) -> tuple[str, int, int]:
    """Return (path of the memory in /proc, its bytes, the offset of ``address`` in it) for another process."""
    size, offset = ctypes.c_size_t(), ctypes.c_size_t()
    descriptor = _library().harness_hip_file(ctypes.c_void_p(address), ctypes.byref(size), ctypes.byref(offset))
    if descriptor < 0:
        raise ValueError(f"{address:#x} is not memory of an emulated GPU")
    return f"/proc/{os.getpid()}/fd/{descriptor}", size.value, offset.value


def add_peer(address: int, nbytes: int, device: int, peer: int) -> None:
    """Add a mapping of another rank's memory that was made without HIP to ``regions``."""
    global _changes
    _peers[address] = nbytes, device, peer
    _changes += 1


def remove_peer(address: int) -> None:
    """Undo ``add_peer``."""
    global _changes
    del _peers[address]
    _changes += 1


def _rows() -> list[tuple[Region, str | None]]:
    """Return all ranges, each with the reason why the current device may not access it, or None."""
    library = _library()
    room = 256
    while True:
        rows = (_Row * room)()
        count = library.harness_hip_ranges(rows, ctypes.c_size_t(room))
        if count <= room:
            break
        room = 2 * count
    current = ctypes.c_int()
    library.hipGetDevice(ctypes.byref(current))
    place = library.harness_hip_place(current.value)
    return [_described(row, current.value, place) for row in rows[:count]]


def _described(row: _Row, current: int, place: int) -> tuple[Region, str | None]:
    kind, ended_by = row.made_by.decode(), row.ended_by.decode()
    remote = row.foreign or (row.place >= 0 and row.place != place)
    region = Region(row.address, row.size, row.device, kind, row.place if remote else None)
    if row.state == _ACCESSIBLE:
        if row.access >> current & 1:
            return region, None
        if kind == "hipMemMap":
            return region, f"mapped by hipMemMap, without access for device {current}: see hipMemSetAccess"
        return region, f"{kind} memory of device {row.device}, to which device {current} has no peer access"
    if row.state == _RESERVED:
        return region, "reserved by hipMemAddressReserve, without memory mapped there"
    ending = {"hipIpcCloseMemHandle": "closed", "hipMemUnmap": "unmapped"}.get(ended_by, "freed")
    return region, f"{kind} memory, {ending} by {ended_by}" if ended_by != TORCH else f"{kind} memory, freed"


def _check(error: int, nbytes: int) -> None:
    if not error:
        return
    library = _library()
    library.hipGetLastError()
    library.hipGetErrorString.restype = ctypes.c_char_p
    text = library.hipGetErrorString(error).decode()
    if error == 2:
        raise MemoryError(f"the emulated GPU cannot allocate {nbytes} bytes: {text}")
    raise HarnessError(f"memory of the emulated GPU: {text}")


@functools.cache
def _library() -> Any:
    library = loading.library()
    library.harness_hip_generation.restype = ctypes.c_uint64
    library.harness_hip_ranges.restype = ctypes.c_size_t
    library.harness_hip_used.restype = ctypes.c_size_t
    library.harness_hip_accessible.restype = ctypes.c_size_t
    return library
