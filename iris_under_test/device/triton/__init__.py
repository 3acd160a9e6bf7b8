"""Device API for Triton kernels: ``DeviceContext``, and the same operations as plain functions, those of ``ops``."""

from . import ops
from .address import translate
from .context import DeviceContext
from .ops import *  # noqa: F403 - the operations, by the list in that file
from .ops import atomic_sub
from .tracing import DeviceTracing

__all__ = ["DeviceContext", "DeviceTracing", "atomic_sub", "translate"]
__all__ += ops.__all__
