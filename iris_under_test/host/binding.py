"""Functions that take an instance, as methods of an object that holds one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Protocol

__all__ = ["bound"]


class HoldsInstance(Protocol):
    """An object with the instance that its methods use."""

    _instance: Any


def bound(function: Callable[..., Any], order: Sequence[str] | None = None) -> Callable[..., Any]:
    """``function`` as a method: its parameter ``ctx`` is the object's ``_instance``, the others follow in ``order``.

    Example: ``all_gather(output_tensor, input_tensor, ctx, group=None)`` becomes ``method(output_tensor, input_tensor,
    group=None)``.
    """
    signature = inspect.signature(function)
    names = order or [name for name in signature.parameters if name != "ctx"]
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    shown = signature.replace(parameters=[own, *(signature.parameters[name] for name in names)])

    @functools.wraps(function)
    def method(self: HoldsInstance, *args: Any, **kwargs: Any) -> Any:
        if len(args) > len(names):
            raise TypeError(f"{function.__name__}() takes {len(names)} arguments, got {len(args)}: they are {shown}")
        return function(ctx=self._instance, **dict(zip(names, args, strict=False)), **kwargs)

    method.__signature__ = shown  # type: ignore[attr-defined]
    method.__doc__ = f"See ``{function.__module__.split('.')[-2]}.{function.__name__}``."
    return method
