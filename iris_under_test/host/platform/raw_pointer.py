"""Tensors over memory that torch did not allocate."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import torch

__all__ = ["CUDAArrayInterface", "tensor_from_ptr"]

# Bits travel as integers of the same width: the interface knows no bfloat16 and no 8-bit float.
_CARRIERS = {1: "|u1", 2: "<i2", 4: "<i4", 8: "<i8", 16: "<c16"}
_AS_THEMSELVES = {
    torch.bool: "|b1", torch.int8: "|i1", torch.uint8: "|u1", torch.int16: "<i2", torch.int32: "<i4",
    torch.int64: "<i8", torch.float16: "<f2", torch.float32: "<f4", torch.float64: "<f8", torch.complex64: "<c8",
    torch.complex128: "<c16",
}  # fmt: skip
_QUANTISED = (torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4)


class CUDAArrayInterface:
    """``size_bytes`` of device memory at ``ptr``, as an array for torch, CuPy, Numba and others.

    The memory must stay where it is as long as the array is used; nothing here keeps it. An element type that the
    interface has no name for (bfloat16, the 8-bit floats, unsigned 16 to 64 bit) is advertised as integers of the same
    width, whose bits are those of the elements (in upstream Iris bfloat16 is advertised as float16, another number for
    the same bits); ``tensor_from_ptr`` gives the type itself. On the emulated device, whose memory the CPU reads, it is
    an array interface without CUDA.

    Raises:
        ValueError: a negative or misaligned pointer, a size that is not a whole number of elements or not that of
            ``shape``, a quantised ``dtype``, a device that the active driver does not drive.
        RuntimeError: no driver is active.
    """

    def __init__(
        self,
        ptr: int,
        size_bytes: int,
        dtype: torch.dtype = torch.uint8,
        device: torch.device | str = "cuda",
        shape: Sequence[int] | None = None,
    ) -> None:
        self.ptr = ptr
        self.size_bytes = size_bytes
        self.dtype = dtype
        self.device = _resolve(device)
        self.shape = _checked_shape(ptr, size_bytes, dtype, shape)
        interface: dict[str, Any] = {
            "shape": self.shape,
            "typestr": _AS_THEMSELVES.get(dtype) or _CARRIERS[dtype.itemsize],
            "data": (ptr, False),
            "strides": None,
            "version": 3,
        }
        if self.device.type == "cuda":
            self.__cuda_array_interface__ = interface
        else:
            self.__array_interface__ = interface


def tensor_from_ptr(
    ptr: int,
    size_bytes: int,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cuda",
    shape: Sequence[int] | None = None,
) -> torch.Tensor:
    """A contiguous tensor over ``size_bytes`` of memory at ``ptr``, one-dimensional without ``shape``.

    Reads and writes go to that memory, in ``dtype``'s own bits for every dtype. Nothing keeps the memory: it must
    outlive the tensor. ``device="cuda"`` is the active device, also the emulated one.

    Raises:
        ValueError: as ``CUDAArrayInterface``; the memory is another device's.
        RuntimeError: no driver is active.
    """
    here = _resolve(device)
    shape = _checked_shape(ptr, size_bytes, dtype, shape)
    if size_bytes == 0:
        return torch.empty(shape, dtype=dtype, device=here)
    if here.type == "cuda":
        raw = torch.as_tensor(CUDAArrayInterface(ptr, size_bytes, device=here), device=here)
        if raw.data_ptr() != ptr:  # torch has copied it there
            raise ValueError(f"the memory at {ptr:#x} is not on {here}")
    else:
        raw = torch.frombuffer((ctypes.c_ubyte * size_bytes).from_address(ptr), dtype=torch.uint8)
    return raw.view(dtype).view(shape)


def _resolve(device: torch.device | str) -> torch.device:
    """The device with an index, as tensors have it; "cuda" is whatever the active driver drives."""
    from triton.runtime import driver

    wanted, active = torch.device(device), driver.active.get_active_torch_device()
    if active.type == "cpu":
        if wanted in {torch.device("cpu"), torch.device("cuda")}:
            return torch.device("cpu")
    elif wanted.type == "cuda":
        index: Any = wanted.index  # None is possible, which torch's stubs do not know
        return torch.device("cuda", torch.cuda.current_device() if index is None else index)
    raise ValueError(f"device {device} is not the active driver's, whose tensors are on {active}")


def _checked_shape(ptr: int, size_bytes: int, dtype: torch.dtype, shape: Sequence[int] | None) -> tuple[int, ...]:
    if dtype in _QUANTISED:
        raise ValueError(f"dtype {dtype} is more than the bits of its elements: it cannot be wrapped")
    if size_bytes < 0 or size_bytes % dtype.itemsize:
        raise ValueError(f"{size_bytes} bytes are not a whole number of {dtype}, of {dtype.itemsize} bytes each")
    if ptr < 0 or ptr % dtype.itemsize or (ptr == 0 and size_bytes):
        raise ValueError(f"pointer {ptr:#x} is null or not aligned to {dtype}, of {dtype.itemsize} bytes")
    count = size_bytes // dtype.itemsize
    shape = (count,) if shape is None else tuple(shape)
    if any(extent < 0 for extent in shape) or math.prod(shape) != count:
        raise ValueError(f"shape {shape} is not that of {count} elements of {dtype} in {size_bytes} bytes")
    return shape
