"""The functions of ``torch._C`` that ``torch.cuda`` calls, and the state of torch that a ROCm build has."""

# torch's stubs describe builds that this module replaces parts of.
# mypy: disable-error-code="assignment,redundant-expr,unused-ignore"
from __future__ import annotations

import ctypes
import importlib
import sys
import time
import types
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.emulated_machine import facts, hip
from harness.emulated_machine.hip import memory as hip_memory
from harness.errors import HarnessError

from . import sharing, streams
from .support import CUDA, PAGE, refuse

_HIP = "6.4.43482"
_GIB = 1 << 30
_MACHINES = {
    # arch: name, compute units, bytes of memory, compute capability, bytes of LDS
    "gfx942": ("AMD Instinct MI300X", 304, 192 * _GIB, (9, 4), 64 << 10),
    "gfx950": ("AMD Instinct MI350X", 256, 288 * _GIB, (9, 5), 160 << 10),
}
_LACKING = {
    **{f"_{name}": "torch.nn.DataParallel" for name in ("broadcast_coalesced", "scatter", "gather")},
    **{f"_{name}_out": f"torch.nn.parallel.comm.{name} with out=" for name in ("broadcast", "scatter", "gather")},
    "_broadcast": "torch.nn.parallel.comm.broadcast",
    **{
        f"_nccl_{name}": f"torch.cuda.nccl.{name}"
        for name in ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter")
    },
    "_cuda_record_memory_history": "torch.cuda.memory._record_memory_history",
    "_cuda_record_memory_history_legacy": "torch.cuda.memory._record_memory_history",
}
"""Functions of ``torch._C`` that the machine lacks -> the public name of what needs them."""

_callbacks: list[Any] = []


@dataclass(frozen=True)
class DeviceProperties:
    """Result of ``torch.cuda.get_device_properties``, with the attributes of a ROCm build."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    gcnArchName: str  # noqa: N815 - torch's name
    uuid: str
    pci_bus_id: int
    pci_device_id: int = 0
    pci_domain_id: int = 0
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    max_threads_per_multi_processor: int = 2048
    max_threads_per_block: int = 1024
    warp_size: int = 64
    regs_per_multiprocessor: int = 131072
    shared_memory_per_block: int = 65536
    shared_memory_per_multiprocessor: int = 65536
    shared_memory_per_block_optin: int = 65536
    clock_rate: int = 2100000
    memory_clock_rate: int = 1300000
    memory_bus_width: int = 8192
    L2_cache_size: int = 4 << 20


def install(native: Any, arch: str, gpus: int) -> None:
    """Make this process's torch the one of a machine with ``gpus`` GPUs of ``arch``."""
    if arch not in _MACHINES:
        raise ValueError(f"unknown arch {arch!r} of the emulated machine; choose one of {', '.join(_MACHINES)}")
    hip.install(arch, gpus)
    visible = facts.visible(arch, gpus)
    gpus = len(visible)
    native.use_hip(*hip_memory.functions("harness_hip_current_device", "harness_hip_stream", "harness_hip_accessible"))
    memory = hip_memory
    _install_native(native, arch, gpus, memory)
    C: Any = torch._C
    for name, function in {**_functions(native, arch, visible, memory), **streams.make(native)}.items():
        setattr(C, name, function)
    C._graph_pool_handle = streams.pool_handle
    C._cuda_isCurrentStreamCapturing = native.is_capturing
    C._cudart = _cudart(gpus, memory, arch)
    C._CudaDeviceProperties = DeviceProperties
    C._has_cuda = True
    version: Any = torch.version
    version.hip, version.cuda = _HIP, None
    torch.cuda._cudart = C._cudart  # type: ignore[attr-defined]
    torch.cuda._CudaDeviceProperties = DeviceProperties  # type: ignore[attr-defined,misc]
    torch.cuda._exchange_device = C._cuda_exchangeDevice  # type: ignore[attr-defined]
    torch.cuda._maybe_exchange_device = C._cuda_maybeExchangeDevice  # type: ignore[attr-defined]
    torch.cuda._cached_device_count = gpus
    torch.cuda._is_in_bad_fork = native.in_bad_fork
    _replace_classes("torch.cuda.streams", "torch.cuda.graphs")
    sharing.install(native, memory)
    _refuse_names()
    _refuse_inductor()
    _profile_the_cpu_only()
    from . import distributed

    distributed.install(native, memory)


def _install_native(native: Any, arch: str, gpus: int, memory: Any) -> None:
    allocate_type = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int)
    free_type = ctypes.CFUNCTYPE(None, ctypes.c_uint64)

    def allocate(nbytes: int, device: int) -> int:
        try:
            return int(memory.allocate(nbytes, device))
        except (
            OSError,
            MemoryError,
            HarnessError,
        ) as error:  # an exception cannot cross C++: 0 ends in torch's OutOfMemoryError
            print(f"emulated machine: {nbytes} bytes for cuda:{device}: {error}", file=sys.stderr)
            return 0

    _callbacks.extend((allocate_type(allocate), free_type(memory.free)))
    addresses = [ctypes.cast(each, ctypes.c_void_p).value for each in _callbacks[-2:]]
    native.install(gpus, _MACHINES[arch][2], *addresses)

    native.set_gpu_of_address(memory.device_of)
    native.set_obstacle_in_memory(memory.obstacle)


def _replace_classes(*names: str) -> None:
    """Execute modules of torch again, with the base classes of a ROCm build, and replace the classes they had."""
    for name in names:
        module = sys.modules[name]
        before = {key: value for key, value in vars(module).items() if getattr(value, "__module__", None) == name}
        importlib.reload(module)
        renamed = {id(value): vars(module)[key] for key, value in before.items()}
        for other in [each for key, each in list(sys.modules.items()) if key.partition(".")[0] == "torch"]:
            if not isinstance(other, types.ModuleType) or other is module:
                continue
            for key, value in list(vars(other).items()):
                if id(value) in renamed:
                    setattr(other, key, renamed[id(value)])


def _functions(native: Any, arch: str, visible: Sequence[facts.Gpu], memory: Any) -> dict[str, Any]:
    gpus = len(visible)
    name, units, total, (major, minor), lds = _MACHINES[arch]
    sync_mode = [0]
    fractions: dict[int, float] = {}

    def properties(index: int) -> DeviceProperties:
        gpu = visible[index]
        return DeviceProperties(
            name, major, minor, total, units, gpu.target, gpu.uuid, gpu.bus,
            shared_memory_per_block=lds, shared_memory_per_multiprocessor=lds, shared_memory_per_block_optin=lds,
        )  # fmt: skip

    def exchange(index: int) -> int:
        before = int(native.current_gpu())
        if index >= 0:
            native.set_gpu(index)
        return before

    def stream(number: int, index: int) -> tuple[int, int, int]:
        return number, native.current_gpu() if index < 0 else index, 1

    def set_stream(stream_id: int, device_index: int, device_type: int = 1) -> None:
        native.set_gpu(device_index)
        native.set_stream(device_index, stream_id)

    def init() -> None:
        if not gpus:
            raise RuntimeError("No HIP GPUs are available")
        native.refuse_forks()
        torch.cuda.default_generators = tuple(native.default_generators())

    def synchronize() -> None:
        if native.is_capturing():
            raise RuntimeError("HIP error: operation not permitted when stream is capturing")

    def set_fraction(fraction: float, index: int) -> None:
        fractions[index] = fraction
        native.set_memory_fraction(fraction, index)

    functions: dict[str, Any] = {
        "_cuda_init": init,
        "_cuda_getDeviceCount": lambda: gpus,
        "_cuda_getDevice": native.current_gpu,
        "_cuda_setDevice": native.set_gpu,
        "_cuda_exchangeDevice": exchange,
        "_cuda_maybeExchangeDevice": exchange,
        "_cuda_canDeviceAccessPeer": lambda device, peer: device != peer and 0 <= peer < gpus,
        "_cuda_getArchFlags": lambda: arch,
        "_cuda_isInBadFork": native.in_bad_fork,
        "_cuda_synchronize": synchronize,
        "_cuda_ipc_collect": lambda: None,
        "_cuda_sleep": lambda cycles: time.sleep(cycles / 2.1e9),
        "_cuda_getCurrentStream": lambda index: stream(native.current_stream(index), index),
        "_cuda_getDefaultStream": lambda index: stream(0, index),
        "_cuda_getCurrentRawStream": native.current_stream,
        "_cuda_getStreamFromExternal": stream,
        "_cuda_setStream": set_stream,
        "_cuda_getCurrentBlasHandle": lambda: 1,
        "_cuda_getCurrentSolverHandle": lambda: 1,
        "_cuda_set_sync_debug_mode": lambda mode: sync_mode.__setitem__(0, mode),
        "_cuda_get_sync_debug_mode": lambda: sync_mode[0],
        "_cuda_memoryStats": native.memory_statistics,
        "_cuda_resetPeakMemoryStats": lambda index: native.reset_statistics(index, True),
        "_cuda_resetAccumulatedMemoryStats": lambda index: native.reset_statistics(index, False),
        "_cuda_emptyCache": native.empty_cache,
        "_cuda_setMemoryFraction": set_fraction,
        "_cuda_getMemoryFraction": lambda index: fractions.get(index, 1.0),
        "_cuda_getAllocatorBackend": lambda: "native",
        "_cuda_cudaCachingAllocator_raw_alloc": lambda size, stream: native.raw_allocate(size, native.current_gpu()),
        "_cuda_cudaCachingAllocator_raw_delete": native.raw_release,
        "_cuda_cudaCachingAllocator_is_enabled": lambda: True,
        "_cuda_memorySnapshot": lambda *_: _snapshot(native),
        "_cuda_hasPrimaryContext": lambda index: True,
        "_host_emptyCache": lambda: None,
        "_cuda_lock_mutex": lambda: None,
        "_cuda_unlock_mutex": lambda: None,
        "_cuda_tunableop_is_enabled": lambda: False,
        "_cuda_record_untuned_is_enabled": lambda: False,
        "_accelerator_isAllocatorInitialized": lambda: True,
        "_accelerator_getDeviceStats": native.memory_statistics,
        "_accelerator_getMemoryInfo": torch.cuda.mem_get_info,
        "_accelerator_resetPeakStats": lambda index: native.reset_statistics(index, True),
        "_accelerator_resetAccumulatedStats": lambda index: native.reset_statistics(index, False),
        "_accelerator_emptyCache": native.empty_cache,
    }
    functions |= {name: _refusing(public) for name, public in _LACKING.items()}
    torch.cuda._get_device_properties = properties  # type: ignore[attr-defined]
    return functions


def _refuse_names() -> None:
    """Make every name that the table of support calls refused raise an error that names it."""
    for name, support in CUDA.items():
        before = getattr(torch.cuda, name, None)
        if support.grade != "refused" or before is None:
            continue
        public = f"torch.cuda.{name}"
        if isinstance(before, types.ModuleType):
            for each, function in list(vars(before).items()):
                if isinstance(function, types.FunctionType) and function.__module__ == before.__name__:
                    setattr(before, each, _refusing(f"{public}.{each}"))
            continue
        if isinstance(before, type):
            replacement: Any = type(name, (), {"__new__": _refusing(public), "__module__": "torch.cuda"})
        else:
            replacement = _refusing(public)
        for module in (torch.cuda, torch.cuda.memory):
            if hasattr(module, name):
                setattr(module, name, replacement)


def _refuse_inductor() -> None:
    """Make ``torch.compile`` with its backend inductor refuse cuda tensors by name; CPU tensors are compiled."""
    wrapper: Any = torch._TorchCompileInductorWrapper  # type: ignore[attr-defined]
    compile_it = wrapper.__call__

    def call(self: Any, model: Any, inputs: Any) -> Any:
        if any(isinstance(each, torch.Tensor) and each.is_cuda for each in inputs):
            raise refuse("torch.compile with the backend inductor")
        return compile_it(self, model, inputs)

    wrapper.__call__ = call


def _profile_the_cpu_only() -> None:
    """Make the profiler record operators, and not activities of a GPU, of which it would report an error each."""
    profile: Any = torch.autograd.profiler.profile
    begin = profile.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        if options.get("use_device") == "cuda" or options.get("use_cuda"):
            warnings.warn(
                f"the profiler records operators only on the emulated machine, no activities of a GPU; {PAGE} lists"
                " what is there",
                stacklevel=2,
            )
            options |= {"use_device": None, "use_cpu": True}
            options.pop("use_cuda", None)
        begin(self, *arguments, **options)

    profile.__init__ = init


def _refusing(public: str) -> Any:
    def call(*_: Any, **__: Any) -> Any:
        raise refuse(public)

    return call


def _snapshot(native: Any) -> dict[str, Any]:
    return {
        "segments": [
            {"address": address, "total_size": size, "segment_type": "large" if size > 2 << 20 else "small"}
            for address, size in native.segments()
        ],
        "device_traces": [],
    }


def _cudart(gpus: int, memory: Any, arch: str) -> Any:
    """Return the module of runtime calls that ``torch.cuda.cudart()`` gives."""
    module = types.ModuleType("torch._C._cudart")
    total = _MACHINES[arch][2]

    class CudaError(int):
        success = 0

    def memory_info(device: int) -> tuple[int, int]:
        return max(0, total - memory.used(device)), total

    def succeed(*_: Any) -> CudaError:
        return CudaError(0)

    for name, value in {
        "cudaError": CudaError, "cudaMemGetInfo": memory_info,
        "cudaGetErrorString": lambda code: "no error" if not code else f"HIP error {int(code)}",
        "cudaProfilerStart": succeed, "cudaProfilerStop": succeed, "cudaHostRegister": succeed,
        "cudaHostUnregister": succeed, "cudaStreamCreate": succeed, "cudaStreamDestroy": succeed,
    }.items():  # fmt: skip
        setattr(module, name, value)
    return module
