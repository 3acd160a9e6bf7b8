"""``ctx.ccl``: the collectives bound to an instance."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import (
    all_gather,
    all_reduce,
    all_reduce_preamble,
    all_to_all,
    barrier,
    broadcast,
    gather,
    recv,
    reduce,
    reduce_scatter,
    scatter,
    send,
    sendrecv,
)

if TYPE_CHECKING:
    from iris_under_test.host.iris import Iris

__all__ = ["InstanceCollectives"]


def _bound(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` as a method: the instance, its parameter ``ctx``, is the object's own."""
    signature = inspect.signature(function)
    place = list(signature.parameters).index("ctx")

    @functools.wraps(function)
    def method(self: InstanceCollectives, *args: Any, **kwargs: Any) -> Any:
        before, after = args[:place], args[place:]
        if len(before) < place:
            # Tensors by keyword: so must be the instance.
            return function(*before, ctx=self._instance, **kwargs)
        return function(*before, self._instance, *after, **kwargs)

    parameters = [each for name, each in signature.parameters.items() if name != "ctx"]
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    method.__signature__ = signature.replace(parameters=[own, *parameters])  # type: ignore[attr-defined]
    method.__doc__ = f"See ``ccl.{function.__name__}``."
    return method


class InstanceCollectives:
    """The functions of ``ccl`` without their instance argument."""

    def __init__(self, instance: Iris) -> None:
        self._instance = instance

    all_gather = _bound(all_gather)
    all_reduce = _bound(all_reduce)
    all_reduce_preamble = _bound(all_reduce_preamble)
    all_to_all = _bound(all_to_all)
    reduce_scatter = _bound(reduce_scatter)
    broadcast = _bound(broadcast)
    reduce = _bound(reduce)
    scatter = _bound(scatter)
    gather = _bound(gather)
    barrier = _bound(barrier)
    send = _bound(send)
    recv = _bound(recv)
    sendrecv = _bound(sendrecv)
