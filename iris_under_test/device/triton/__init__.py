"""Device API for Triton kernels: ``DeviceContext``, and the same operations as plain functions."""

from .address import translate
from .context import DeviceContext
from .ops import (
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_sub,
    atomic_xchg,
    atomic_xor,
    copy,
    get,
    load,
    put,
    store,
)
from .tracing import DeviceTracing

__all__ = [
    "DeviceContext", "DeviceTracing", "atomic_add", "atomic_and", "atomic_cas", "atomic_max", "atomic_min",
    "atomic_or", "atomic_sub", "atomic_xchg", "atomic_xor", "copy", "get", "load", "put", "store", "translate",
]  # fmt: skip
