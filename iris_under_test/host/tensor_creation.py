"""Tensors on the symmetric heap, as functions of ``(heap, device, ...)``; ``Iris`` has the same as methods.

Common rules. All are collective in effect: every rank calls the same functions with the same sizes in the same order
(``SymmetricHeap.allocate`` checks it), except with ``out``, which allocates nothing and concerns only the rank that
calls. Sizes are varargs, one tuple or list, or a tuple or list nested once; no size gives a 0-d tensor. ``dtype=None``
is torch's default dtype unless another is named. Values are those that torch gives for the same arguments on the same
device, computed in place, so that nothing is allocated outside the heap. Random values come from this rank's own
``generator`` (default: the device's), so ranks draw the same numbers where they use the same seed. A simulation
(``IRIS_SIMULATION``) changes none of this; in upstream Iris it leaves zeros unfilled and draws ones for ``randn``.

``out`` must have exactly as many elements, the dtype and a place on the heap; the result is a view of it in the
requested shape, at the same address.

Raises, all of them. An error of one rank reaches the others: they get a ValueError or RuntimeError that names
the rank, none waits for it, and nothing is allocated anywhere.
    RuntimeError: ``device`` is not the instance's; ``out`` has another element count or dtype or lies off the heap;
        ``requires_grad`` of an integer tensor; ranks disagree on the size; torch refuses the values for the dtype (its
        own message).
    ValueError: ``layout`` is not ``torch.strided``; a size is negative.
    TypeError: a size is not an int, a dtype not a ``torch.dtype``, ``out`` not a tensor; an unknown argument.
    MemoryError: the heap is full.
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from .memory import SymmetricHeap
from .memory.refusal import refuse

__all__ = [
    "arange", "empty", "full", "is_valid_device", "linspace", "ones", "rand", "randint", "randn", "uniform", "zeros",
    "zeros_like",
]  # fmt: skip

Device = torch.device | str | int | None
Number = int | float | bool | complex
Filler = Callable[[torch.Tensor], object]
Factory = TypeVar("Factory", bound=Callable[..., torch.Tensor])


def _raised_on_all(function: Factory) -> Factory:
    """Decorator of a factory: an error of this rank alone is raised on the other ranks too, which would wait."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def reporting(heap: SymmetricHeap, *arguments: Any, **options: Any) -> torch.Tensor:
        out = options.get("out")
        try:
            out = signature.bind(heap, *arguments, **options).arguments.get("out")
            return function(heap, *arguments, **options)
        except _AlreadyRaised as known:
            raise known.error from None
        except Exception:
            if out is None:
                refuse(heap)
            raise

    return reporting  # type: ignore[return-value]


@_raised_on_all
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
    """A tensor of zeros."""
    return _create(heap, device, _shape(size), dtype, _filler(0), out, layout, requested_device, requires_grad)


@_raised_on_all
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
    """A tensor of ones."""
    return _create(heap, device, _shape(size), dtype, _filler(1), out, layout, requested_device, requires_grad)


@_raised_on_all
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
    """A tensor of ``fill_value``; ``size`` is a tuple or list, not an int (TypeError).

    Without ``dtype``: torch's default dtype for a float, the complex one of that for a complex number, int64 for an int
    and (unlike torch) for a bool.
    """
    shape = _shape_of_one("full", size)
    if dtype is None:
        dtype = _inferred_dtype(fill_value)
    return _create(heap, device, shape, dtype, _filler(fill_value), out, layout, requested_device, requires_grad)


@_raised_on_all
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
    """A tensor with unspecified contents. ``pin_memory`` is accepted and ignored.

    ``memory_format``: ``channels_last`` applies to 4-D and ``channels_last_3d`` to 5-D sizes without ``out``; ignored
    otherwise.
    """
    shape, strides = _shape(size), None
    if memory_format is not torch.contiguous_format and min(shape, default=0) >= 0:
        strides = _strides(torch.empty(shape, device="meta"), memory_format)
    return _create(heap, device, shape, dtype, None, out, layout, requested_device, requires_grad, strides)


@_raised_on_all
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
    if not isinstance(input, torch.Tensor):
        raise TypeError(f"zeros_like: input must be a tensor, got {input!r}")
    requested = input.device if requested_device is None else requested_device
    wanted, shape = layout or input.layout, tuple(input.shape)
    _check_placement(device, wanted, requested)
    strides = _strides(input, memory_format)
    return _create(
        heap, device, shape, dtype or input.dtype, _filler(0), None, wanted, requested, requires_grad, strides
    )


@_raised_on_all
def arange(
    heap: SymmetricHeap,
    device: torch.device,
    start: Number | torch.Tensor = 0,
    end: Number | torch.Tensor | None = None,
    step: Number | torch.Tensor = 1,
    *,
    out: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
    layout: torch.layout = torch.strided,
    requested_device: Device = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """The values of ``[start, end)`` in steps of ``step``; one positional argument is the end.

    Arguments are numbers or 0-d tensors. Without ``dtype``: torch's default dtype if any is a float, else int64.
    ``out`` is returned itself.

    Raises:
        ValueError: ``step`` is 0, or the range is empty or runs the other way (torch would return an empty tensor).
    """
    # Any: torch's stubs know numbers only, but 0-d tensors compare and count as numbers do.
    bounds: tuple[Any, Any] = (0, start) if end is None else (start, end)
    first, last = bounds
    stride: Any = step
    if stride == 0:
        raise ValueError("step must be non-zero")
    if (first >= last) if stride > 0 else (first <= last):
        raise ValueError(f"empty range: start {first}, end {last}, step {stride}")
    if dtype is None:
        whole = all(_is_whole(value) for value in (first, last, stride))
        dtype = torch.int64 if whole else torch.get_default_dtype()
    shape = (_arange_count(first, last, stride, dtype),)

    def fill(tensor: torch.Tensor) -> None:
        torch.arange(first, last, stride, out=tensor)

    made = _create(heap, device, shape, dtype, fill, out, layout, requested_device, requires_grad)
    if out is None:
        return made
    return out.requires_grad_() if requires_grad else out


@_raised_on_all
def linspace(
    heap: SymmetricHeap,
    device: torch.device,
    start: Number | torch.Tensor,
    end: Number | torch.Tensor,
    steps: int | Sequence[Any],
    out: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
    layout: torch.layout = torch.strided,
    requested_device: Device = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """``steps`` values, evenly spaced from ``start`` to ``end``, both included; 1-D.

    ``steps`` is an int, or a tuple or list nested at most once whose product it is. Endpoints are numbers or 0-d
    tensors. Without ``dtype``: torch's default dtype, the complex one of that where an endpoint is complex.
    """
    shape = (math.prod(_checked_sizes(_shape((steps,)))),)
    if dtype is None:
        dtype = _complex_dtype() if _is_complex(start) or _is_complex(end) else torch.get_default_dtype()

    def fill(tensor: torch.Tensor) -> None:
        torch.linspace(start, end, shape[0], out=tensor)

    return _create(heap, device, shape, dtype, fill, out, layout, requested_device, requires_grad)


@_raised_on_all
def rand(
    heap: SymmetricHeap,
    device: torch.device,
    *size: Any,
    generator: torch.Generator | None = None,
    out: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
    layout: torch.layout = torch.strided,
    requested_device: Device = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> torch.Tensor:
    """Uniform values of ``[0, 1)``. ``generator`` must be of the instance's kind of device (RuntimeError).

    ``pin_memory`` is accepted and ignored.
    """
    shape = _shape(size)

    def fill(tensor: torch.Tensor) -> None:
        torch.rand(shape, generator=generator, out=tensor)

    return _create(heap, device, shape, dtype, fill, out, layout, requested_device, requires_grad)


@_raised_on_all
def randn(
    heap: SymmetricHeap,
    device: torch.device,
    *size: Any,
    generator: torch.Generator | None = None,
    out: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
    layout: torch.layout = torch.strided,
    requested_device: Device = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> torch.Tensor:
    """Values of the normal distribution of mean 0 and variance 1; otherwise as ``rand``."""
    shape = _shape(size)

    def fill(tensor: torch.Tensor) -> None:
        torch.randn(shape, generator=generator, out=tensor)

    return _create(heap, device, shape, dtype, fill, out, layout, requested_device, requires_grad)


@_raised_on_all
def randint(
    heap: SymmetricHeap,
    device: torch.device,
    *bounds_and_size: Any,
    generator: torch.Generator | None = None,
    out: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
    layout: torch.layout = torch.strided,
    requested_device: Device = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """``randint(high, size)`` or ``randint(low, high, size)``: uniform integers of ``[low, high)``, low being 0.

    ``size`` is a tuple or list, not an int (TypeError). ``dtype`` defaults to int64.

    Raises:
        ValueError: another number of positional arguments.
        RuntimeError: ``low`` is not below ``high``, or a bound does not fit the dtype.
    """
    if len(bounds_and_size) not in (2, 3):
        raise ValueError(f"randint takes (high, size) or (low, high, size), got {len(bounds_and_size)} arguments")
    *bounds, size = bounds_and_size
    low, high = bounds if len(bounds) == 2 else (0, *bounds)
    shape = _shape_of_one("randint", size)

    def fill(tensor: torch.Tensor) -> None:
        torch.randint(low, high, shape, generator=generator, out=tensor)

    return _create(heap, device, shape, dtype or torch.int64, fill, out, layout, requested_device, requires_grad)


@_raised_on_all
def uniform(
    heap: SymmetricHeap,
    device: torch.device,
    size: Sequence[int],
    low: float = 0.0,
    high: float = 1.0,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Uniform values of ``[low, high)`` from the device's generator; ``size`` is a tuple or list. float32 by default.

    Raises:
        RuntimeError: ``low`` is above ``high``, or a bound does not fit the dtype.
    """
    shape = _shape_of_one("uniform", size)
    return _create(heap, device, shape, dtype, lambda tensor: tensor.uniform_(low, high))


def is_valid_device(requested: Device, iris_device: torch.device) -> bool:
    """Return True if ``requested`` names the instance's device: None, the same, or its type without an index."""
    if requested is None:
        return True
    wanted = torch.device(requested)
    return wanted.type == iris_device.type and wanted.index in (None, iris_device.index)


class _AlreadyRaised(Exception):  # noqa: N818 - carries an error
    """``error`` is one that the heap has raised on every rank."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _create(
    heap: SymmetricHeap,
    device: torch.device,
    shape: tuple[int, ...],
    dtype: torch.dtype | None,
    fill: Filler | None,
    out: torch.Tensor | None = None,
    layout: torch.layout = torch.strided,
    requested_device: Device = None,
    requires_grad: bool = False,
    strides: tuple[int, ...] | None = None,
) -> torch.Tensor:
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype must be a torch.dtype, got {dtype!r}")
    _check_placement(device, layout, requested_device)
    if requires_grad and not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError(f"only floating point and complex tensors can require gradients, got {dtype}")
    _checked_sizes(shape)
    if out is not None:
        _check_out(heap, out, math.prod(shape), dtype)
        tensor = out.detach().view(shape)
        if fill is not None:
            fill(tensor)
        return tensor.requires_grad_(requires_grad)
    return _allocate(heap, shape, dtype, strides, fill).requires_grad_(requires_grad)


def _filler(value: Number) -> Filler:
    return lambda tensor: tensor.fill_(value)


def _allocate(
    heap: SymmetricHeap,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    strides: tuple[int, ...] | None,
    fill: Filler | None,
) -> torch.Tensor:
    def shaped(flat: torch.Tensor) -> torch.Tensor:
        return flat.view(shape) if strides is None else flat.as_strided(shape, strides)

    initialise = None if fill is None else lambda flat: fill(shaped(flat))
    try:
        return shaped(heap.allocate(math.prod(shape), dtype, initialise=initialise))
    except Exception as error:
        raise _AlreadyRaised(error) from error


def _check_out(heap: SymmetricHeap, out: torch.Tensor, count: int, dtype: torch.dtype) -> None:
    if not isinstance(out, torch.Tensor):
        raise TypeError(f"out must be a tensor, got {out!r}")
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
    while len(size) == 1 and isinstance(size[0], (tuple, list)):
        size = tuple(size[0])
    try:
        return tuple(extent.__index__() for extent in size)
    except AttributeError:
        raise TypeError(f"sizes must be ints, or one tuple or list of ints, got {size!r}") from None


def _shape_of_one(function: str, size: Any) -> tuple[int, ...]:
    """The shape where the size is one argument, a tuple or list."""
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"{function}: size must be a tuple or list, got {size!r}")
    return _shape((size,))


def _checked_sizes(shape: tuple[int, ...]) -> tuple[int, ...]:
    if any(extent < 0 for extent in shape):
        raise ValueError(f"sizes must not be negative, got {shape}")
    return shape


def _strides(like: torch.Tensor, memory_format: torch.memory_format) -> tuple[int, ...]:
    dimensions = {torch.channels_last: 4, torch.channels_last_3d: 5}.get(memory_format)
    if dimensions is not None and like.dim() != dimensions:
        memory_format = torch.contiguous_format
    return tuple(torch.empty_like(like, device="meta", memory_format=memory_format).stride())


def _inferred_dtype(value: object) -> torch.dtype:
    if isinstance(value, numbers.Real):
        return torch.int64 if isinstance(value, numbers.Integral) else torch.get_default_dtype()
    if isinstance(value, numbers.Complex):
        return _complex_dtype()
    raise TypeError(f"full: fill_value must be a number, got {value!r}")


def _arange_count(start: Any, end: Any, step: Any, dtype: torch.dtype) -> int:
    """Return the number of elements of ``torch.arange``, without device "meta", where torch would import its compiler.

    Arguments are truncated for int64 only: for other types, torch divides them as they are.
    """
    first, last, stride = (value.item() if isinstance(value, torch.Tensor) else value for value in (start, end, step))
    if not all(map(math.isfinite, (first, last, stride))):
        return torch.arange(first, last, stride, dtype=dtype).numel()  # raises torch's own error
    if dtype != torch.int64:
        return math.ceil((last - first) / stride)
    first, last, stride = int(first), int(last), int(stride)
    if stride == 0:
        raise ValueError(f"step must be non-zero, got {step} for {dtype}")
    return max(0, -((first - last) // stride))


def _is_whole(value: Number | torch.Tensor) -> bool:
    if isinstance(value, torch.Tensor):
        return not (value.is_floating_point() or value.is_complex())
    return isinstance(value, numbers.Integral)


def _complex_dtype() -> torch.dtype:
    return torch.complex128 if torch.get_default_dtype() == torch.float64 else torch.complex64


def _is_complex(value: Number | torch.Tensor) -> bool:
    return value.is_complex() if isinstance(value, torch.Tensor) else isinstance(value, complex)
