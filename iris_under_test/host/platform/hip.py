"""What a program asks of the GPU's runtime beside torch: ``iris_under_test.hip``.

The name is that of the reference, which is written for HIP; here the functions serve whichever device Triton's active
driver stands for: ROCm through hip-python, CUDA through cuda-bindings, and the emulated device. ``device`` is an
ordinal among this process's visible devices, None the current one. Addresses are ints, sizes bytes.

``RuntimeError`` where the runtime refuses, with its own words; where no driver is active; and for the functions in the
second half, which are AMD's, on CUDA. ``ModuleNotFoundError`` names the binding where it is not installed; the first
group of functions needs none. None of them is collective, and none keeps what a caller does not give back.
"""

from __future__ import annotations

from typing import Any

from .runtime import AmdRuntime, Runtime, current

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

# The device


def set_device(device: int) -> None:
    """Makes it this process's current device. ValueError if there is none of that ordinal."""
    runtime = current()
    _ordinal(runtime, device)
    runtime.set_device(device)


def get_device_id() -> int:
    """The current device's ordinal; on the emulated device, where each rank is a device of its own, the rank."""
    return current().device_id()


def count_devices() -> int:
    """The visible devices; on the emulated device the ranks."""
    return current().device_count()


def get_cu_count(device: int | None = None) -> int:
    """Compute units (AMD) or streaming multiprocessors."""
    runtime = current()
    return runtime.cu_count(_ordinal(runtime, device))


def get_arch_string(device: int | None = None) -> str:
    """As in ``gfx942`` (without feature flags) or ``sm_90``."""
    runtime = current()
    return runtime.arch(_ordinal(runtime, device))


def get_wall_clock_rate(device: int | None = None) -> int:
    """kHz of the clock that ``device.utils.read_realtime`` reads."""
    runtime = current()
    return runtime.wall_clock_khz(_ordinal(runtime, device))


def get_num_xcc(device: int | None = None) -> int:
    """Compute dies that work is spread over: 8 on MI300X and MI350 as a whole, 1 on CUDA."""
    runtime = current()
    return runtime.xcc_count(_ordinal(runtime, device))


def get_rocm_version() -> tuple[int, int]:
    """Major and minor of the ROCm that torch was built for; (-1, -1) elsewhere. Needs no device and no driver."""
    import torch

    if torch.version.hip is None:
        return -1, -1
    major, minor = torch.version.hip.split(".")[:2]
    return int(major), int(minor)


# Memory


def hip_malloc(size: int) -> int:
    """The address of ``size`` new bytes of the current device."""
    return current().malloc(_positive(size))


def malloc_fine_grained(size: int) -> int:
    """As ``hip_malloc``, of memory that is coherent among devices within a kernel; on CUDA all device memory is."""
    return current().malloc(_positive(size), fine_grained=True)


def hip_free(ptr: int) -> None:
    """Gives memory of the two functions above back."""
    current().free(ptr)


def get_address_range(ptr: int) -> tuple[int, int]:
    """``(base, size)`` of the allocation that ``ptr`` points into."""
    return current().address_range(ptr)


def get_ipc_handle(ptr: int) -> bytes:
    """64 bytes by which another process on this host opens the whole allocation that ``ptr`` points into."""
    return current().ipc_handle(ptr)


def open_ipc_handle(handle: bytes) -> int:
    """Where the allocation behind another process's handle is mapped in this one.

    Raises:
        ValueError: not 64 bytes.
        RuntimeError: the allocation is gone, or is this process's own.
    """
    if len(handle) != 64:
        raise ValueError(f"an interprocess handle has 64 bytes, got {len(handle)}")
    return current().open_ipc_handle(handle)


def close_ipc_handle(ptr: int) -> None:
    """Unmaps what ``open_ipc_handle`` mapped."""
    current().close_ipc_handle(ptr)


# AMD's alone: memory as file descriptors


def export_dmabuf_handle(ptr: int, size: int) -> int:
    """A DMA-BUF descriptor, the caller's to close, for ``size`` bytes at ``ptr``.

    Also on ROCm it stands for the whole allocation: what imports it adds ``ptr - get_address_range(ptr)[0]``.
    """
    return _amd("DMA-BUF export").export_dmabuf(ptr, _positive(size))


def import_dmabuf_handle(fd: int, size: int) -> tuple[Any, int]:
    """``(memory, address)``: ``size`` bytes behind a DMA-BUF descriptor, mapped here.

    The descriptor stays the caller's; ``destroy_external_memory(memory)`` unmaps it.
    """
    return _amd("DMA-BUF import").import_dmabuf(fd, _positive(size))


def destroy_external_memory(memory: Any) -> None:
    """Takes ``import_dmabuf_handle`` back."""
    _amd("external memory").destroy_external_memory(memory)


# AMD's alone: virtual memory. Sizes and addresses are multiples of the granularity.


def get_allocation_granularity(device: int | None = None) -> int:
    """Bytes; what physical memory is handed out and mapped in multiples of."""
    runtime = _amd("virtual memory")
    return runtime.granularity(_ordinal(runtime, device))


def mem_create(size: int, device: int | None = None) -> Any:
    """A handle of ``size`` bytes of physical memory, exportable as a descriptor; ``mem_release`` gives it back."""
    runtime = _amd("virtual memory")
    return runtime.mem_create(_positive(size), _ordinal(runtime, device))


def mem_release(handle: Any) -> None:
    """Gives a handle back. The memory stays as long as it is mapped."""
    _amd("virtual memory").mem_release(handle)


def mem_export_to_shareable_handle(handle: Any) -> int:
    """A file descriptor for the memory of a handle, the caller's to close."""
    return _amd("virtual memory").mem_export(handle)


def mem_import_from_shareable_handle(fd: int) -> Any:
    """A handle of the memory behind a descriptor, which stays the caller's."""
    return _amd("virtual memory").mem_import(fd)


def mem_address_reserve(size: int, alignment: int = 0, address: int = 0) -> int:
    """``size`` bytes of address range with nothing mapped; ``address`` is a wish."""
    return _amd("virtual memory").mem_address_reserve(_positive(size), alignment, address)


def mem_address_free(ptr: int, size: int) -> None:
    """Gives a whole reserved range back, with nothing mapped in it any more."""
    _amd("virtual memory").mem_address_free(ptr, _positive(size))


def mem_map(ptr: int, size: int, offset: int, handle: Any) -> None:
    """Maps ``size`` bytes of a handle's memory, from ``offset``, at ``ptr`` in a reserved range; no access as yet."""
    _amd("virtual memory").mem_map(ptr, _positive(size), offset, handle)


def mem_unmap(ptr: int, size: int) -> None:
    """Takes ``mem_map`` back; the range stays reserved."""
    _amd("virtual memory").mem_unmap(ptr, _positive(size))


def mem_set_access(ptr: int, size: int, device: int | None = None) -> None:
    """Lets a device read and write mapped memory.

    On ROCm each call is to start at the base of the reserved range and to reach over all that is mapped so far.
    """
    runtime = _amd("virtual memory")
    runtime.mem_set_access(ptr, _positive(size), _ordinal(runtime, device))


def _amd(what: str) -> AmdRuntime:
    runtime = current()
    if not isinstance(runtime, AmdRuntime):
        raise RuntimeError(f"{what} is there on AMD devices alone; the active device is {runtime.name}")
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
