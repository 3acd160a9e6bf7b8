"""Tensors on the symmetric heap, as functions of ``(heap, device, ...)``; ``Iris`` has the same as methods.

Common rules. All are collective in effect: every rank calls the same functions with the same sizes in the same order
(``SymmetricHeap.allocate`` checks it), except with ``out``, which allocates nothing. Sizes are varargs, one tuple or
list, or a tuple or list nested once; no size gives a 0-d tensor. Wrong arguments other than sizes are seen by each rank
for itself, before it waits for the others.

Raises, all of them:
    RuntimeError: ``device`` is not the instance's; ``out`` has another element count or dtype or lies off the heap;
        ranks disagree on the size.
    ValueError: ``layout`` is not ``torch.strided``; a size is negative.
    MemoryError: the heap is full.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .memory import SymmetricHeap

__all__ = ["arange", "empty", "full", "is_valid_device", "ones", "zeros", "zeros_like"]

Device = torch.device | str | int | None
Number = int | float | bool | complex


def zeros(
    heap: SymmetricHeap,
    device: torch.device,
    *size: Any,
    out: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
    layout: torch.layout = torch.strided,
    requested_device: Device = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """A tensor of zeros. ``dtype`` defaults to torch's default dtype."""
    return _filled(heap, device, _shape(size), 0, out, dtype, layout, requested_device, requires_grad)


def ones(
    heap: SymmetricHeap,
    device: torch.device,
    *size: Any,
    out: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
    layout: torch.layout = torch.strided,
    requested_device: Device = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """A tensor of ones. ``dtype`` defaults to torch's default dtype."""
    return _filled(heap, device, _shape(size), 1, out, dtype, layout, requested_device, requires_grad)


def full(
    heap: SymmetricHeap,
    device: torch.device,
    size: Sequence[int],
    fill_value: Number,
    *,
    out: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
    layout: torch.layout = torch.strided,
    requested_device: Device = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """A tensor of ``fill_value``; ``size`` is a tuple or list.

    Without ``dtype``: torch's default dtype for a float, int64 for an int and (unlike torch) for a bool.
    """
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"full: size must be a tuple or list, got {size!r}")
    if dtype is None:
        dtype = _inferred_dtype(fill_value)
    return _filled(heap, device, _shape((size,)), fill_value, out, dtype, layout, requested_device, requires_grad)


def empty(
    heap: SymmetricHeap,
    device: torch.device,
    *size: Any,
    out: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
    layout: torch.layout = torch.strided,
    requested_device: Device = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: torch.memory_format = torch.contiguous_format,
) -> torch.Tensor:
    """A tensor with unspecified contents. ``pin_memory`` is ignored.

    ``memory_format``: ``channels_last`` applies to 4-D and ``channels_last_3d`` to 5-D sizes; ignored otherwise.
    """
    shape = _shape(size)
    dtype = dtype or torch.get_default_dtype()
    _check_placement(device, layout, requested_device)
    if out is not None:
        return _into(heap, out, shape, dtype, None).requires_grad_(requires_grad)
    strides = None
    if memory_format is not torch.contiguous_format and min(shape, default=0) >= 0:
        strides = _strides(torch.empty(shape, device="meta"), memory_format)
    return _allocate(heap, shape, dtype, strides, None, requires_grad)


def zeros_like(
    heap: SymmetricHeap,
    device: torch.device,
    input: torch.Tensor,  # noqa: A002
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    requested_device: Device = None,
    requires_grad: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> torch.Tensor:
    """A tensor of zeros with the shape, dtype and strides that ``torch.zeros_like(input)`` would have.

    ``device=None`` means the input's device, so an input from elsewhere raises RuntimeError.
    """
    requested = input.device if requested_device is None else requested_device
    _check_placement(device, layout or input.layout, requested)
    shape = tuple(input.shape)
    return _allocate(heap, shape, dtype or input.dtype, _strides(input, memory_format), _filler(0), requires_grad)


def arange(
    heap: SymmetricHeap,
    device: torch.device,
    start: Number = 0,
    end: Number | None = None,
    step: Number = 1,
    *,
    out: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
    layout: torch.layout = torch.strided,
    requested_device: Device = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """The values of ``[start, end)`` in steps of ``step``; one positional argument is the end.

    Without ``dtype``: torch's default dtype if any argument is a float, else int64. ``out`` is returned itself.

    Raises:
        ValueError: ``step`` is 0, or the range is empty or runs the other way (torch would return an empty tensor).
    """
    if end is None:
        start, end = 0, start
    if step == 0:
        raise ValueError("step must be non-zero")
    if (start >= end) if step > 0 else (start <= end):
        raise ValueError(f"empty range: start {start}, end {end}, step {step}")
    if dtype is None:
        has_float = any(isinstance(value, float) for value in (start, end, step))
        dtype = torch.get_default_dtype() if has_float else torch.int64
    _check_placement(device, layout, requested_device)
    values = torch.arange(start, end, step, dtype=dtype, device=device)
    if out is not None:
        _check_out(heap, out, values.numel(), dtype)
        with torch.no_grad():
            out.copy_(values.view(out.shape))
        return out.requires_grad_(requires_grad)
    return _allocate(heap, tuple(values.shape), dtype, None, lambda tensor: tensor.copy_(values), requires_grad)


def is_valid_device(requested: Device, iris_device: torch.device) -> bool:
    """Whether a ``device`` argument names the instance's device: None, the same, or its type without an index."""
    if requested is None:
        return True
    wanted = torch.device(requested)
    return wanted.type == iris_device.type and wanted.index in (None, iris_device.index)


def _filled(
    heap: SymmetricHeap,
    device: torch.device,
    shape: tuple[int, ...],
    value: Number,
    out: torch.Tensor | None,
    dtype: torch.dtype | None,
    layout: torch.layout,
    requested_device: Device,
    requires_grad: bool,
) -> torch.Tensor:
    dtype = dtype or torch.get_default_dtype()
    _check_placement(device, layout, requested_device)
    if out is not None:
        return _into(heap, out, shape, dtype, _filler(value)).requires_grad_(requires_grad)
    return _allocate(heap, shape, dtype, None, _filler(value), requires_grad)


def _filler(value: Number) -> Callable[[torch.Tensor], object]:
    return lambda tensor: tensor.fill_(value)


def _allocate(
    heap: SymmetricHeap,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    strides: tuple[int, ...] | None,
    initialise: Callable[[torch.Tensor], object] | None,
    requires_grad: bool,
) -> torch.Tensor:
    # A negative size goes to the heap, which refuses it on every rank: no rank is left waiting.
    count = min(shape) if any(extent < 0 for extent in shape) else math.prod(shape)
    flat = heap.allocate(count, dtype, initialise=initialise)
    tensor = flat.view(shape) if strides is None else flat.as_strided(shape, strides)
    return tensor.requires_grad_(requires_grad)


def _into(
    heap: SymmetricHeap,
    out: torch.Tensor,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    initialise: Callable[[torch.Tensor], object] | None,
) -> torch.Tensor:
    if any(extent < 0 for extent in shape):
        raise ValueError(f"sizes must not be negative, got {shape}")
    _check_out(heap, out, math.prod(shape), dtype)
    view = out.detach().view(shape)
    if initialise is not None:
        initialise(view)
    return view


def _check_out(heap: SymmetricHeap, out: torch.Tensor, count: int, dtype: torch.dtype) -> None:
    if out.numel() != count:
        raise RuntimeError(f"The output tensor has {out.numel()} elements, but {count} are required")
    if out.dtype != dtype:
        raise RuntimeError(f"The output tensor has dtype {out.dtype}, but {dtype} is required")
    if not heap.is_symmetric(out):
        raise RuntimeError("The output tensor is not on the symmetric heap")


def _check_placement(device: torch.device, layout: torch.layout, requested_device: Device) -> None:
    if not is_valid_device(requested_device, device):
        raise RuntimeError(f"Device mismatch: requested {requested_device}, but the symmetric heap is on {device}")
    if layout != torch.strided:
        raise ValueError(f"Layout {layout} is not supported: only torch.strided is")


def _shape(size: tuple[Any, ...]) -> tuple[int, ...]:
    """The shape that was meant: ``(2, 3)``, ``((2, 3),)``, ``([2, 3],)`` and ``(((2, 3),),)`` all mean 2 x 3."""
    nesting = 0
    while len(size) == 1 and isinstance(size[0], (tuple, list)) and nesting < 2:
        size, nesting = tuple(size[0]), nesting + 1
    try:
        return tuple(extent.__index__() for extent in size)
    except AttributeError:
        raise TypeError(f"sizes must be ints, or one tuple or list of ints, got {size!r}") from None


def _strides(like: torch.Tensor, memory_format: torch.memory_format) -> tuple[int, ...]:
    dimensions = {torch.channels_last: 4, torch.channels_last_3d: 5}.get(memory_format)
    if dimensions is not None and like.dim() != dimensions:
        memory_format = torch.contiguous_format
    return tuple(torch.empty_like(like, device="meta", memory_format=memory_format).stride())


def _inferred_dtype(value: Number) -> torch.dtype:
    if isinstance(value, complex):
        return torch.complex128 if torch.get_default_dtype() == torch.float64 else torch.complex64
    return torch.get_default_dtype() if isinstance(value, float) else torch.int64
