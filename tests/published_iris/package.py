"""Makes the modules of a library with the published names: ``build`` is called by its ``__init__``.

``build(__name__, without=("put", "ccl.all_to_all"))`` makes one that lacks these names; ``replaced`` maps names to
other objects.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Mapping
from typing import Any

from tests.published_iris import instance

SOURCE = "iris_under_test"
ACCESSES = ("load", "store", "get", "put", "copy")
ATOMICS = tuple(f"atomic_{op}" for op in ("add", "cas", "xchg", "xor", "or", "and", "min", "max"))

NAMES: Mapping[str, tuple[str, ...]] = {
    "": (
        "DeviceContext", "TraceEvent", *ACCESSES, *ATOMICS, "do_bench", "get_device_id_for_rank", "is_simulation_env",
        "CUDAArrayInterface", "tensor_from_ptr", "hip", "tensor_creation", "set_logger_level", "logger",
        "DEBUG", "INFO", "WARNING", "ERROR", "TensorView", "Tile", "TileView", "make_tensor_view",
    ),
    "bench": ("register", "axis", "power_of_two", "linear_range", "main", "State", "do_bench"),
    "gluon": ("IrisDeviceCtx", "GluonDeviceTracing"),
    "ccl": ("ReduceOp",),
    "ccl.utils": ("extract_group_info",),
    "ops": ("FusedConfig", "FusedWorkspace"),
    "ops.config": ("FusedConfig",),
    "x": (
        "Tile", "TileView", "TensorView", "make_tensor_view", "tile_layout", "tile_ptr", "offset_ptr", "all_gather",
        "all_to_all", "gather", "reduce_scatter", "all_reduce_atomic", "all_reduce_spinlock", "all_reduce_one_shot",
        "all_reduce_two_shot", "all_reduce_ring",
    ),
    "device": (),
    "device.triton": ("atomic_sub",),
    "device.triton.context": ("DeviceContext",),
    "device.utils": ("read_realtime", "get_cu_id", "get_xcc_id"),
    "host": (),
    "host.tracing": (),
    "host.tracing.events": ("TraceEvent",),
    "host.logging": (),
    "host.logging.logging": ("IrisFormatter",),
    "host.platform": ("hip",),
    "host.memory": (),
    "host.memory.allocators": (),
    "host.memory.allocators.vmem_allocator": ("VMemAllocator",),
    "host.distributed": (),
    "host.distributed.fd_passing": ("send_fd", "recv_fd", "managed_fd", "setup_fd_infrastructure"),
    "host.distributed.helpers": (
        "distributed_allgather", "distributed_allgather_multidim", "distributed_broadcast_scalar",
        "distributed_broadcast_tensor", "distributed_barrier", "distributed_device_barrier", "extract_group_info",
    ),
    "host.distributed.topology": (
        "TopologyDiscovery", "TopologyMap", "InterconnectLevel", "IntraNodeLinkType", "FabricInfo", "GPUInfo",
        "NodeInfo",
    ),
    "drivers": (),
    "drivers.base": (
        "BaseFabricDriver", "DriverError", "DriverNotSupported", "CudaFabricError", "CudaFabricNotSupported",
        "LocalAllocation", "PeerMapping",
    ),
    "drivers.fabric": ("get_fabric_driver", "handle_to_tensor", "tensor_to_handle", "HANDLE_BYTES"),
    "drivers.fabric.nvidia": ("NvidiaFabricDriver",),
    "experimental": (),
    "experimental.iris_gluon": ("IrisDeviceCtx",),
}  # fmt: skip
"""Names that are those of ``iris_under_test``, by module."""

OWN: Mapping[str, Mapping[str, Any]] = {
    "": {"Iris": instance.Iris, "iris": instance.iris},
    "ccl": {"Config": instance.Config},
    "experimental.iris_gluon": {"iris": instance.iris},
}
"""Names that are written for this library: what takes or makes an instance."""


def build(package: str, *, without: tuple[str, ...] = (), replaced: Mapping[str, Any] | None = None) -> None:
    """Fill the package, and register its modules for import. Names are dotted, such as ``ccl.all_gather``."""
    own = {module: dict(names) for module, names in OWN.items()}
    for op in instance.COLLECTIVES:
        own["ccl"][op] = instance.function_of_collective(op)
    own["ops"] = {op: instance.function_of_product(op) for op in instance.PRODUCTS}
    modules = {path: _module(package, path) for path in NAMES}
    for path, names in NAMES.items():
        source = importlib.import_module(".".join(filter(None, (SOURCE, path))))
        for name, value in {**{name: getattr(source, name) for name in names}, **own.get(path, {})}.items():
            if (dotted := ".".join(filter(None, (path, name)))) not in without:
                setattr(modules[path], name, (replaced or {}).get(dotted, value))
    modules["ops"].__all__ = [*NAMES["ops"], *instance.PRODUCTS]  # type: ignore[attr-defined]
    for path, module in modules.items():  # after the names: a module never replaces a function of its name
        parent, _, last = path.rpartition(".")
        if path and not hasattr(modules[parent], last):
            setattr(modules[parent], last, module)
    sys.modules[f"{package}.host.platform.hip"] = modules["host.platform"].hip  # type: ignore[attr-defined]
    for op in ("all_gather", "all_to_all"):
        if hasattr(modules["ccl"], op):
            inner = _module(package, f"ccl.{op}")
            setattr(inner, op, getattr(modules["ccl"], op))
            inner.GLUON_AVAILABLE = True  # type: ignore[attr-defined]


def _module(package: str, path: str) -> types.ModuleType:
    name = ".".join(filter(None, (package, path)))
    if name not in sys.modules:
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = []  # type: ignore[attr-defined] # its submodules are found in sys.modules
    return sys.modules[name]
