"""The factories of ``tensor_creation`` as methods: the same parameters, with the heap and device of the instance."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from . import tensor_creation
from .memory import SymmetricHeap
from .memory.refusal import refuse
from .tensor_creation import Device, Number

__all__ = ["TensorMethods"]

Method = TypeVar("Method", bound=Callable[..., torch.Tensor])


def _refused_on_all_ranks(method: Method) -> Method:
    """Decorator: an argument that the method does not have is refused on all ranks, as other mistakes are."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def checked(self: TensorMethods, *arguments: Any, **options: Any) -> torch.Tensor:
        try:
            signature.bind(self, *arguments, **options)
        except TypeError:
            if options.get("out") is None:
                refuse(self.heap)
            raise
        return method(self, *arguments, **options)

    return checked  # type: ignore[return-value]


class TensorMethods:
    """Base of ``Iris``: methods that create tensors on its heap. Rules and errors, common and of each function, are in
    ``tensor_creation``.

    A test checks that each method has the parameters of its function (``requested_device`` there is ``device`` here).
    """

    heap: SymmetricHeap
    _device: torch.device

    @_refused_on_all_ranks
    def zeros(
        self,
        *size: Any,
        out: torch.Tensor | None = None,
        dtype: torch.dtype | None = None,
        layout: torch.layout = torch.strided,
        device: Device = None,
        requires_grad: bool = False,
    ) -> torch.Tensor:
        """Return a tensor of zeros."""
        return tensor_creation.zeros(
            self.heap,
            self._device,
            *size,
            out=out,
            dtype=dtype,
            layout=layout,
            requested_device=device,
            requires_grad=requires_grad,
        )

    @_refused_on_all_ranks
    def ones(
        self,
        *size: Any,
        out: torch.Tensor | None = None,
        dtype: torch.dtype | None = None,
        layout: torch.layout = torch.strided,
        device: Device = None,
        requires_grad: bool = False,
    ) -> torch.Tensor:
        """Return a tensor of ones."""
        return tensor_creation.ones(
            self.heap,
            self._device,
            *size,
            out=out,
            dtype=dtype,
            layout=layout,
            requested_device=device,
            requires_grad=requires_grad,
        )

    @_refused_on_all_ranks
    def full(
        self,
        size: Sequence[int],
        fill_value: Number,
        *,
        out: torch.Tensor | None = None,
        dtype: torch.dtype | None = None,
        layout: torch.layout = torch.strided,
        device: Device = None,
        requires_grad: bool = False,
    ) -> torch.Tensor:
        """Return a tensor of ``fill_value``."""
        return tensor_creation.full(
            self.heap,
            self._device,
            size,
            fill_value,
            out=out,
            dtype=dtype,
            layout=layout,
            requested_device=device,
            requires_grad=requires_grad,
        )

    @_refused_on_all_ranks
    def empty(
        self,
        *size: Any,
        out: torch.Tensor | None = None,
        dtype: torch.dtype | None = None,
        layout: torch.layout = torch.strided,
        device: Device = None,
        requires_grad: bool = False,
        pin_memory: bool = False,
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> torch.Tensor:
        """Return a tensor with unspecified contents."""
        return tensor_creation.empty(
            self.heap,
            self._device,
            *size,
            out=out,
            dtype=dtype,
            layout=layout,
            requested_device=device,
            requires_grad=requires_grad,
            pin_memory=pin_memory,
            memory_format=memory_format,
        )

    @_refused_on_all_ranks
    def zeros_like(
        self,
        input: torch.Tensor,  # noqa: A002
        *,
        dtype: torch.dtype | None = None,
        layout: torch.layout | None = None,
        device: Device = None,
        requires_grad: bool = False,
        memory_format: torch.memory_format = torch.preserve_format,
    ) -> torch.Tensor:
        """Return a tensor of zeros with the shape, dtype and strides of ``input``."""
        return tensor_creation.zeros_like(
            self.heap,
            self._device,
            input,
            dtype=dtype,
            layout=layout,
            requested_device=device,
            requires_grad=requires_grad,
            memory_format=memory_format,
        )

    @_refused_on_all_ranks
    def arange(
        self,
        start: Number | torch.Tensor = 0,
        end: Number | torch.Tensor | None = None,
        step: Number | torch.Tensor = 1,
        *,
        out: torch.Tensor | None = None,
        dtype: torch.dtype | None = None,
        layout: torch.layout = torch.strided,
        device: Device = None,
        requires_grad: bool = False,
    ) -> torch.Tensor:
        """Return the values of ``[start, end)`` in steps of ``step``; one positional argument is the end."""
        return tensor_creation.arange(
            self.heap,
            self._device,
            start,
            end,
            step,
            out=out,
            dtype=dtype,
            layout=layout,
            requested_device=device,
            requires_grad=requires_grad,
        )

    @_refused_on_all_ranks
    def linspace(
        self,
        start: Number | torch.Tensor,
        end: Number | torch.Tensor,
        steps: int | Sequence[Any],
        out: torch.Tensor | None = None,
        dtype: torch.dtype | None = None,
        layout: torch.layout = torch.strided,
        device: Device = None,
        requires_grad: bool = False,
    ) -> torch.Tensor:
        """Return ``steps`` values, evenly spaced from ``start`` to ``end``, both included."""
        return tensor_creation.linspace(
            self.heap, self._device, start, end, steps, out, dtype, layout, device, requires_grad
        )

    @_refused_on_all_ranks
    def rand(
        self,
        *size: Any,
        generator: torch.Generator | None = None,
        out: torch.Tensor | None = None,
        dtype: torch.dtype | None = None,
        layout: torch.layout = torch.strided,
        device: Device = None,
        requires_grad: bool = False,
        pin_memory: bool = False,
    ) -> torch.Tensor:
        """Return uniform values of ``[0, 1)``."""
        return tensor_creation.rand(
            self.heap,
            self._device,
            *size,
            generator=generator,
            out=out,
            dtype=dtype,
            layout=layout,
            requested_device=device,
            requires_grad=requires_grad,
            pin_memory=pin_memory,
        )

    @_refused_on_all_ranks
    def randn(
        self,
        *size: Any,
        generator: torch.Generator | None = None,
        out: torch.Tensor | None = None,
        dtype: torch.dtype | None = None,
        layout: torch.layout = torch.strided,
        device: Device = None,
        requires_grad: bool = False,
        pin_memory: bool = False,
    ) -> torch.Tensor:
        """Return values of the normal distribution of mean 0 and variance 1."""
        return tensor_creation.randn(
            self.heap,
            self._device,
            *size,
            generator=generator,
            out=out,
            dtype=dtype,
            layout=layout,
            requested_device=device,
            requires_grad=requires_grad,
            pin_memory=pin_memory,
        )

    @_refused_on_all_ranks
    def randint(
        self,
        *bounds_and_size: Any,
        generator: torch.Generator | None = None,
        out: torch.Tensor | None = None,
        dtype: torch.dtype | None = None,
        layout: torch.layout = torch.strided,
        device: Device = None,
        requires_grad: bool = False,
    ) -> torch.Tensor:
        """Return uniform integers of ``[low, high)``: ``randint(high, size)`` or ``randint(low, high, size)``."""
        return tensor_creation.randint(
            self.heap,
            self._device,
            *bounds_and_size,
            generator=generator,
            out=out,
            dtype=dtype,
            layout=layout,
            requested_device=device,
            requires_grad=requires_grad,
        )

    @_refused_on_all_ranks
    def uniform(
        self,
        size: Sequence[int],
        low: float = 0.0,
        high: float = 1.0,
        dtype: torch.dtype = torch.float32,
    ) -> torch.Tensor:
        """Return uniform values of ``[low, high)``; float32 by default."""
        return tensor_creation.uniform(self.heap, self._device, size, low, high, dtype)
