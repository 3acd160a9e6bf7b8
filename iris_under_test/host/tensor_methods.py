"""The factories of ``tensor_creation`` as methods: the same parameters, with the heap and device of the instance."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from . import tensor_creation
from .memory import SymmetricHeap

__all__ = ["TensorMethods"]


def _method(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """``function(heap, device, ..., requested_device)`` as a method ``(self, ..., device)``, its signature included."""
    _, _, *parameters = inspect.signature(function).parameters.values()

    @functools.wraps(function)
    def method(self: TensorMethods, *arguments: Any, **options: Any) -> torch.Tensor:
        if "device" in options:
            options["requested_device"] = options.pop("device")
        return function(self.heap, self._device, *arguments, **options)

    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    renamed = [p.replace(name="device") if p.name == "requested_device" else p for p in parameters]
    method.__signature__ = inspect.Signature([this, *renamed], return_annotation="torch.Tensor")  # type: ignore[attr-defined]
    return method


class TensorMethods:
    """Base of ``Iris``: tensors on its heap. See ``tensor_creation`` for the rules and errors common to all."""

    heap: SymmetricHeap
    _device: torch.device

    zeros = _method(tensor_creation.zeros)
    ones = _method(tensor_creation.ones)
    full = _method(tensor_creation.full)
    empty = _method(tensor_creation.empty)
    zeros_like = _method(tensor_creation.zeros_like)
    arange = _method(tensor_creation.arange)
    linspace = _method(tensor_creation.linspace)
    rand = _method(tensor_creation.rand)
    randn = _method(tensor_creation.randn)
    randint = _method(tensor_creation.randint)
    uniform = _method(tensor_creation.uniform)
