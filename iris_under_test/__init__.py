"""An Iris: remote memory access and collectives on a symmetric heap, the library that the harness certifies.

``iris(heap_size)`` builds the host side, ``iris_under_test.gluon.IrisDeviceCtx`` is what a Gluon kernel uses,
``ctx.ccl`` holds the collectives. Importing this package does no work and needs no GPU.
"""

from . import ccl, experimental, gluon
from .host import tensor_creation
from .host.iris import Iris, iris
from .host.logging import DEBUG, ERROR, INFO, WARNING, logger, set_logger_level

__all__ = [
    "DEBUG",
    "ERROR",
    "INFO",
    "WARNING",
    "Iris",
    "ccl",
    "experimental",
    "gluon",
    "iris",
    "logger",
    "set_logger_level",
    "tensor_creation",
]
