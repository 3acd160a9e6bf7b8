"""An Iris: remote memory access and collectives on a symmetric heap, the library that the harness certifies.

``iris(heap_size)`` builds the host side, ``iris_under_test.gluon.IrisDeviceCtx`` is what a Gluon kernel uses,
``DeviceContext`` or the functions ``load``, ``store`` and so on what a Triton kernel does, ``ctx.ccl`` holds the
collectives, ``ctx.ops`` matrix products fused with them. Importing this package does no work and needs no GPU.
"""

from . import bench, ccl, experimental, gluon, ops, x
from .bench import do_bench
from .device.triton import DeviceContext
from .device.triton import ops as _remote
from .device.triton.ops import *  # noqa: F403 - the remote operations, by the list in that file
from .device.triton.tile_collectives import AllReduceConfig
from .device.triton.tiles import TensorView, Tile, TileView, make_tensor_view
from .host import tensor_creation
from .host.iris import Iris, iris
from .host.logging import DEBUG, ERROR, INFO, WARNING, logger, set_logger_level
from .host.platform import hip
from .host.platform.raw_pointer import CUDAArrayInterface, tensor_from_ptr
from .host.platform.utils import get_device_id_for_rank, is_simulation_env
from .host.tracing import TraceEvent

__all__ = [
    "DEBUG",
    "ERROR",
    "INFO",
    "WARNING",
    "AllReduceConfig",
    "CUDAArrayInterface",
    "DeviceContext",
    "Iris",
    "TensorView",
    "Tile",
    "TileView",
    "TraceEvent",
    "bench",
    "ccl",
    "do_bench",
    "experimental",
    "get_device_id_for_rank",
    "gluon",
    "hip",
    "iris",
    "is_simulation_env",
    "logger",
    "make_tensor_view",
    "ops",
    "set_logger_level",
    "tensor_creation",
    "tensor_from_ptr",
    "x",
]
__all__ += _remote.__all__
