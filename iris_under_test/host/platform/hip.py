"""Call of the GPU runtime that torch does not offer: ``iris_under_test.hip``.

The module has upstream Iris's name, which was written for HIP. Here the functions serve the device of Triton's active
driver: ROCm through hip-python, CUDA through cuda-bindings, and the emulated device. A device argument is an ordinal
among this process's visible devices; None is the current one. Addresses are ints, sizes are bytes.

Every function raises ``RuntimeError`` where the runtime fails, with the runtime's own message, and where no driver is
active. The functions for descriptors and virtual memory exist on AMD devices and the emulated device only; on CUDA they
raise ``RuntimeError``. ``ModuleNotFoundError`` names a binding that is not installed; the functions about the device
need none. No function is collective, and none frees what a caller does not free.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

from .access import (
    hipMemAccessDesc,
    hipMemAccessFlagsProtNone,
    hipMemAccessFlagsProtRead,
    hipMemAccessFlagsProtReadWrite,
    hipMemLocation,
    hipMemLocationTypeDevice,
)
from .amd import AmdRuntime
from .base import Runtime
from .kinds import current

__all__ = [
    "close_ipc_handle",
    "count_devices",
    "destroy_external_memory",
    "export_dmabuf_handle",
    "get_address_range",
    "get_allocation_granularity",
    "get_arch_string",
    "get_cu_count",
    "get_device_id",
    "get_ipc_handle",
    "get_num_xcc",
    "get_rocm_version",
    "get_wall_clock_rate",
    "hipMemAccessDesc",
    "hipMemAccessFlagsProtNone",
    "hipMemAccessFlagsProtRead",
    "hipMemAccessFlagsProtReadWrite",
    "hipMemLocation",
    "hipMemLocationTypeDevice",
    "hip_free",
    "hip_malloc",
    "import_dmabuf_handle",
    "malloc_fine_grained",
    "mem_address_free",
    "mem_address_reserve",
    "mem_create",
    "mem_export_to_shareable_handle",
    "mem_import_from_shareable_handle",
    "mem_map",
    "mem_release",
    "mem_set_access",
    "mem_unmap",
    "open_ipc_handle",
    "set_device",
]

IPC_HANDLE_BYTES = 64

# The device


def set_device(device_id: int) -> None:
    """Make a device this process's current one. ValueError if no device has that ordinal."""
    runtime = _runtime()
    _ordinal(runtime, device_id)
    runtime.set_device(device_id)


def get_device_id() -> int:
    """Return the current device's ordinal; on the emulated device, where each rank is its own device, the rank."""
    return _runtime().device_id()


def count_devices() -> int:
    """Return the number of visible devices; on the emulated device the number of ranks."""
    return _runtime().device_count()


def get_cu_count(device: int | None = None) -> int:
    """Return the number of compute units (AMD) or streaming multiprocessors (NVIDIA)."""
    runtime = _runtime()
    return runtime.cu_count(_ordinal(runtime, device))


def get_arch_string(device_id: int | None = None) -> str:
    """Return the architecture, such as ``gfx942`` (without feature flags) or ``sm_90``."""
    runtime = _runtime()
    return runtime.arch(_ordinal(runtime, device_id))


def get_wall_clock_rate(device_id: int | None = None) -> int:
    """Return the rate, in kHz, of the clock that ``device.utils.read_realtime`` reads."""
    runtime = _runtime()
    return runtime.wall_clock_khz(_ordinal(runtime, device_id))


def get_num_xcc(device_id: int | None = None) -> int:
    """Return the number of compute dies that work is spread over: 8 on a whole MI300X or MI350, 1 on CUDA."""
    runtime = _runtime()
    return runtime.xcc_count(_ordinal(runtime, device_id))


def get_rocm_version() -> tuple[int, int]:
    """Return major and minor of the ROCm that torch was built for; (-1, -1) elsewhere. Needs no device, no driver."""
    import torch

    if torch.version.hip is None:
        return -1, -1
    major, minor = torch.version.hip.split(".")[:2]
    return int(major), int(minor)


# Memory


def hip_malloc(size: int) -> int:
    """Allocate ``size`` bytes on the current device and return their address."""
    return _runtime().malloc(_positive(size))


def malloc_fine_grained(size: int) -> int:
    """Allocate memory that is coherent among devices while a kernel runs; on CUDA all device memory is."""
    return _runtime().malloc(_positive(size), fine_grained=True)


def hip_free(ptr: int) -> None:
    """Free memory of ``hip_malloc`` or ``malloc_fine_grained``."""
    _runtime().free(ptr)


def get_address_range(ptr: int) -> tuple[int, int]:
    """Return ``(base, size)`` of the allocation that ``ptr`` points into."""
    return _runtime().address_range(ptr)


def get_ipc_handle(ptr: int, rank: int | None = None) -> bytes:
    """Return 64 bytes by which another process on this host opens the allocation that ``ptr`` points into.

    The handle stands for the whole allocation, from its base. ``rank`` is the caller's; error messages name it.
    """
    with _naming(rank):
        return _runtime().ipc_handle(ptr)


def open_ipc_handle(handle: bytes | Sequence[int], rank: int | None = None) -> int:
    """Map the allocation of another process's handle into this process; return its base address.

    ``handle`` is what ``get_ipc_handle`` returned, or its 64 values, such as a uint8 array or tensor in which it was
    sent. ``rank`` is the rank that owns the memory; error messages name it.

    Raises:
        ValueError: the handle does not have 64 bytes.
        RuntimeError: the allocation was freed, or belongs to this process.
    """
    handle = bytes(handle)
    if len(handle) != IPC_HANDLE_BYTES:
        raise ValueError(f"an interprocess handle has {IPC_HANDLE_BYTES} bytes, got {len(handle)}")
    with _naming(rank):
        return _runtime().open_ipc_handle(handle)


def close_ipc_handle(ptr: int) -> None:
    """Unmap what ``open_ipc_handle`` mapped."""
    _runtime().close_ipc_handle(ptr)


# AMD devices only: memory as file descriptors


def export_dmabuf_handle(ptr: int, size: int) -> tuple[int, int, int]:
    """Export the memory at ``ptr`` as a DMA-BUF: return ``(fd, base, size)``.

    The descriptor ``fd``, which the caller closes, stands for the whole allocation or mapping that holds the ``size``
    bytes at ``ptr``. The returned ``base`` and ``size`` are those of that allocation, so the importer passes the
    returned size, and ``ptr - base`` as the offset.

    Raises:
        RuntimeError: the memory cannot be exported, or the ``size`` bytes do not lie in one allocation.
    """
    runtime = _amd("DMA-BUF export")
    fd = runtime.export_dmabuf(ptr, _positive(size))
    try:
        return fd, *runtime.address_range(ptr)
    except BaseException:
        os.close(fd)
        raise


def import_dmabuf_handle(fd: int, size: int, offset: int = 0) -> tuple[Any, int]:
    """Map the memory of a DMA-BUF: return ``(memory, address)``.

    ``size`` is the number of bytes to map, from the start of the exported allocation; ``address`` is that of byte
    ``offset`` among them. The descriptor stays the caller's. ``destroy_external_memory(memory)`` unmaps.

    Raises:
        ValueError: ``size`` is not positive, or ``offset`` is not in [0, size).
    """
    _positive(size)
    if not 0 <= offset < size:
        raise ValueError(f"offset must be in [0, {size}), the bytes that are mapped, got {offset}")
    memory, address = _amd("DMA-BUF import").import_dmabuf(fd, size)
    return memory, address + offset


def destroy_external_memory(memory: Any) -> None:
    """Unmap what ``import_dmabuf_handle`` mapped."""
    _amd("external memory").destroy_external_memory(memory)


# AMD devices only: virtual memory. Sizes and addresses are multiples of the granularity.


def get_allocation_granularity(device_id: int | None = None) -> int:
    """Return the granularity in bytes: physical memory is allocated and mapped in multiples of it."""
    runtime = _amd("virtual memory")
    return runtime.granularity(_ordinal(runtime, device_id))


def mem_create(size: int, device_id: int | None = None) -> Any:
    """Allocate ``size`` bytes of physical memory and return its handle, which ``mem_release`` releases.

    The memory can be exported as a file descriptor.
    """
    runtime = _amd("virtual memory")
    return runtime.mem_create(_positive(size), _ordinal(runtime, device_id))


def mem_release(handle: Any) -> None:
    """Release a handle. The memory stays as long as it is mapped."""
    _amd("virtual memory").mem_release(handle)


def mem_export_to_shareable_handle(handle: Any) -> int:
    """Return a file descriptor for the memory of a handle; the caller closes it."""
    return _amd("virtual memory").mem_export(handle)


def mem_import_from_shareable_handle(fd: int) -> Any:
    """Return a handle of the memory behind a descriptor. The descriptor stays the caller's."""
    return _amd("virtual memory").mem_import(fd)


def mem_address_reserve(size: int, alignment: int = 0, address: int = 0) -> int:
    """Reserve ``size`` bytes of addresses, with nothing mapped, at ``address`` if that is free; return the start."""
    return _amd("virtual memory").mem_address_reserve(_positive(size), alignment, address)


def mem_address_free(ptr: int, size: int) -> None:
    """Free a whole reserved range in which nothing is mapped any more."""
    _amd("virtual memory").mem_address_free(ptr, _positive(size))


def mem_map(ptr: int, size: int, offset: int, handle: Any) -> None:
    """Map ``size`` bytes of a handle's memory, from ``offset``, at ``ptr`` in a reserved range.

    No device has access before ``mem_set_access``.
    """
    _amd("virtual memory").mem_map(ptr, _positive(size), offset, handle)


def mem_unmap(ptr: int, size: int) -> None:
    """Unmap what one ``mem_map`` mapped; the range stays reserved."""
    _amd("virtual memory").mem_unmap(ptr, _positive(size))


def mem_set_access(ptr: int, size: int, desc: hipMemAccessDesc | Sequence[hipMemAccessDesc] | None = None) -> None:
    """Set the access that devices have to mapped memory.

    ``desc`` is an access descriptor, or several, each with a device and flags; None lets the current device read and
    write. On ROCm each call must start at the base of the reserved range and cover all that is mapped so far.

    Raises:
        ValueError: a descriptor names a location that is not a visible device, or unknown flags.
        RuntimeError: not all of the memory is mapped; on the emulated device also a descriptor for read access only,
            which that device does not enforce.
    """
    runtime = _amd("virtual memory")
    _positive(size)
    if desc is None:
        desc = hipMemAccessDesc.read_write(runtime.device_id())
    descs = [desc] if isinstance(desc, hipMemAccessDesc) else list(desc)
    for each in descs:
        each.check()
        _ordinal(runtime, each.location.id)
    for each in descs:
        runtime.mem_set_access(ptr, size, each.location.id, each.flags)


def _runtime() -> Runtime:
    return current().runtime()


def _amd(feature: str) -> AmdRuntime:
    runtime = _runtime()
    if not isinstance(runtime, AmdRuntime):
        raise RuntimeError(f"{feature} is available on AMD devices only; the active device is {runtime.name}")
    return runtime


def _ordinal(runtime: Runtime, device: int | None) -> int:
    if device is None:
        return runtime.device_id()
    if not 0 <= device < runtime.device_count():
        raise ValueError(f"device must be in [0, {runtime.device_count()}), got {device}")
    return device


def _positive(size: int) -> int:
    if size <= 0:
        raise ValueError(f"a size must be a positive number of bytes, got {size}")
    return size


@contextlib.contextmanager
def _naming(rank: int | None) -> Iterator[None]:
    """Name the rank in what the runtime raises."""
    try:
        yield
    except RuntimeError as error:
        if rank is None:
            raise
        raise RuntimeError(f"memory of rank {rank}: {error}") from error
