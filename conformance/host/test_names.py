"""The names and module paths that users import. A name that exists in several modules is the same object."""

import itertools

from conformance.collectives.operations import COLLECTIVES
from conformance.support.cases import HostCase
from fixtures import judged
from fixtures.findings import Findings
from fixtures.requirement import requirement

ATOMICS = tuple(f"atomic_{op}" for op in ("add", "cas", "xchg", "xor", "or", "and", "min", "max"))
ACCESSES = ("load", "store", "get", "put", "copy")
FUSED = tuple(
    f"{op}{suffix}"
    for op in ("matmul_all_reduce", "all_gather_matmul", "matmul_all_gather", "matmul_reduce_scatter")
    for suffix in ("", "_preamble")
)
TILE_ALL_REDUCES = ("atomic", "spinlock", "one_shot", "two_shot", "ring")
NAMES = {
    "": (
        "iris", "Iris", "ccl", "gluon", "ops", "x", "DeviceContext", "TraceEvent", *ACCESSES, *ATOMICS, "do_bench",
        "get_device_id_for_rank", "is_simulation_env", "CUDAArrayInterface", "tensor_from_ptr", "hip", "experimental",
        "tensor_creation", "bench", "set_logger_level", "logger", "DEBUG", "INFO", "WARNING", "ERROR",
    ),
    "gluon": ("IrisDeviceCtx", "GluonDeviceTracing"),
    "ccl": (
        "Config", "ReduceOp", "AllReduceWorkspace", "Work", *COLLECTIVES, "all_reduce_preamble", "barrier", "recv",
        "send", "sendrecv",
    ),
    "ccl.all_gather": ("all_gather", "GLUON_AVAILABLE"),
    "ccl.all_to_all": ("all_to_all", "GLUON_AVAILABLE"),
    "ccl.utils": ("extract_group_info",),
    "ops": ("FusedConfig", "FusedWorkspace", *FUSED),
    "x": (
        "Tile", "TileView", "TensorView", "make_tensor_view", "tile_layout", "tile_ptr", "offset_ptr", "all_gather",
        "all_to_all", "gather", "reduce_scatter", *(f"all_reduce_{way}" for way in TILE_ALL_REDUCES),
    ),
    "bench": ("register", "axis", "power_of_two", "linear_range", "main", "State"),
    "device.triton.context": ("DeviceContext",),
    "device.triton": ("atomic_sub",),
    "device.utils": ("read_realtime",),
    "host.tracing.events": ("TraceEvent",),
    "host.logging.logging": ("IrisFormatter",),
    "host.platform.hip": ("get_address_range",),
    "host.memory.allocators.vmem_allocator": ("VMemAllocator",),
    "host.distributed.fd_passing": ("send_fd", "recv_fd", "managed_fd", "setup_fd_infrastructure"),
    "host.distributed.helpers": ("distributed_allgather", "distributed_barrier", "extract_group_info"),
    "host.distributed.topology": ("TopologyDiscovery", "TopologyMap", "InterconnectLevel"),
    "drivers.base": ("BaseFabricDriver", "DriverError", "DriverNotSupported", "LocalAllocation", "PeerMapping"),
    "drivers.fabric": (),
    "drivers.fabric.nvidia": (),
    "experimental.iris_gluon": ("iris", "IrisDeviceCtx"),
}  # fmt: skip
"""As docs/spec/names.md#module-paths has them, and the further collectives."""

COLLECTIVE = (
    *COLLECTIVES, "all_reduce_preamble", "barrier", "send", "recv", "sendrecv",
)  # fmt: skip
CONTEXT = ("initialize", *ACCESSES, *ATOMICS, "atomic_sub")
INSTANCE = (
    "is_symmetric", "barrier", "device_barrier", "zeros", "zeros_like", "ones", "full", "empty", "rand", "randn",
    "randint", "linspace", "arange", "get_rank", "get_num_ranks", "get_heap_bases", "get_device_context", "get_device",
    "device", "heap", "heap_size", "heap_bases", "gpu_id", "cur_rank", "num_ranks", "as_symmetric", "broadcast", "ccl",
    "tracing", "uniform", "get_device_id", "get_cu_count", "comm", "debug", "info", "warning", "error", "ops",
)  # fmt: skip


def run(env, case):
    findings, absent = Findings(env.rank), case.arguments
    modules = {}
    for module, attributes in NAMES.items():
        path = f".{module}" if module else env.under_test.name
        try:
            modules[module] = env.module(path)
        except ImportError as error:
            if not attributes or not set(_dotted(module, attributes)) <= set(absent):
                findings.note(f"import {path}", str(error), "a module")
            continue
        for attribute, dotted in zip(attributes, _dotted(module, attributes), strict=True):
            findings.true(f"{path}.{attribute}", dotted in absent or hasattr(modules[module], attribute))
    if findings.first is None:
        _check_objects(env, findings, modules, absent)
    return findings.first


def _dotted(module, attributes):
    """Return the capabilities for attributes of a module: ``IrisDeviceCtx``, ``ccl.broadcast``, ``helpers.agree``."""
    last = module if module in ("ccl", "ops", "x", "bench", "device.utils") else module.rpartition(".")[2]
    whole = module in ("", "gluon", "device.triton", "device.triton.context", "host.tracing.events")
    return [attribute if whole else f"{last}.{attribute}" for attribute in attributes]


def capabilities():
    """Return every capability that a checked name is."""
    listed = [name for module, attributes in NAMES.items() for name in _dotted(module, attributes)]
    members = [(f"{context}.{name}" for name in CONTEXT) for context in ("IrisDeviceCtx", "DeviceContext")]
    return dict.fromkeys((*listed, *itertools.chain(*members), *(f"Iris.{member}" for member in INSTANCE)))


def _check_objects(env, findings, modules, absent):
    package = modules[""]
    for label, one, other in (
        ("IrisDeviceCtx of the old path", modules["experimental.iris_gluon"].IrisDeviceCtx, env.device_context),
        ("iris of the old path", modules["experimental.iris_gluon"].iris, package.iris),
        ("device.triton.context.DeviceContext", modules["device.triton.context"].DeviceContext, package.DeviceContext),
        ("host.tracing.events.TraceEvent", modules["host.tracing.events"].TraceEvent, package.TraceEvent),
        ("host.platform.hip", modules["host.platform.hip"], package.hip),
    ):
        findings.true(f"{label} is the same object as under its other name", env.same_object(one, other))
    for method in CONTEXT:
        for label, context in (("IrisDeviceCtx", env.device_context), ("DeviceContext", package.DeviceContext)):
            name = f"{label}.{method}"
            findings.true(name, name in absent or hasattr(context, method))
    for member in INSTANCE:
        findings.true(f"{member} of the instance", f"Iris.{member}" in absent or hasattr(env.iris, member))
    for collective in COLLECTIVE:
        here = env.is_callable(getattr(env.iris.ccl, collective, None))
        findings.true(f"ccl.{collective} on the instance", f"ccl.{collective}" in absent or here)
    for op in FUSED:
        here = env.is_callable(getattr(env.iris.ops, op, None))
        findings.true(f"ops.{op} on the instance", f"ops.{op}" in absent or here)
    for member in ("allocate", "allocator"):
        findings.true(f"{member} of the heap", hasattr(env.iris.heap, member))
    for member in ("owns_tensor", "get_base_address"):
        findings.true(f"{member} of the heap's allocator", hasattr(env.iris.heap.allocator, member))


@requirement("HOST-NAMES-001", cases=lambda ranks: [HostCase("names", judged.absent(capabilities()))])
def test_names(check, case):
    check(run, case)
