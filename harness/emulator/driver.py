"""The Triton driver: ``kernel[grid](...)`` on CPU tensors compiles for gfx942 and runs here.

What differs between Triton 3.6 and 3.9 in how a driver is called is handled in this file and nowhere else. The driver
  is installed with
``triton.runtime.driver.set_active``. Launches are synchronous: when ``kernel[grid](...)`` returns, the kernel has
  ended.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime import driver as triton_driver
from triton.runtime.cache import get_cache_manager
from triton.runtime.errors import OutOfResources

from harness.emulator import entry, limits, native
from harness.emulator.allocations import Allocations
from harness.emulator.compiled import compile_runs
from harness.emulator.counters import LaunchRecord
from harness.emulator.hostcall import Hostcall
from harness.emulator.launch import QUEUE, Launch
from harness.emulator.limits import ARCHS, LDS_BYTES, MAX_THREADS, WAVEFRONT
from harness.emulator.listing import parse
from harness.emulator.program import Program, decode
from harness.emulator.schedule import RESIDENT_WAVES, Scheduler
from harness.emulator.timing import DeviceInterface, refuse_graphs
from harness.emulator.watch import Choices, Watch, make
from harness.errors import HarnessError

# The compute units of a device.
COMPUTE_UNITS = {"gfx942": 304, "gfx950": 256}

Hook = Callable[[Any], None]
ArgumentPath = tuple[int, ...]
Writer = Callable[[np.ndarray, int, Any], None]
Pointer = tuple[ArgumentPath, str, int]
Value = tuple[ArgumentPath, int, Writer]

_FORMATS = {
    "i1": "<?", "i8": "<b", "i16": "<h", "i32": "<i", "i64": "<q",
    "u1": "<?", "u8": "<B", "u16": "<H", "u32": "<I", "u64": "<Q",
    "fp16": "<e", "fp32": "<f", "f32": "<f", "fp64": "<d",
}  # fmt: skip


def activate(
    arch: str = "gfx942", mode: str | None = None, choices: Choices | int | None = None, **options: Any
) -> EmulatedDriver:
    """Make the emulated device Triton's active driver in this process.

    ``mode`` is one of ``harness.emulator.watch.MODES``, by default ``fast`` or what ``watching`` says; ``choices`` (a
    seed, or a ``Choices``) decides the interleaving of wavefronts in a watched mode, and ``options`` are that mode's.
    ``ValueError`` for an arch, mode or option that does not exist.
    """
    if arch not in ARCHS:
        raise ValueError(f"the emulated device has no arch {arch!r}; choose one of {', '.join(ARCHS)}")
    watch = _default if mode is None else make(mode, choices, **options)
    if mode is None and (choices is not None or options):
        raise ValueError(f"choices and options are those of a mode, and none is given: {choices!r} {options}")
    driver = EmulatedDriver(arch, watch)
    triton_driver.set_active(driver)
    refuse_graphs()
    return driver


_default: Watch | None = None


@contextmanager
def watching(watch: Watch | None) -> Iterator[None]:
    """Inside, ``activate`` without a mode uses ``watch``: to run programs that activate the device themselves."""
    global _default
    before, _default = _default, watch
    try:
        yield
    finally:
        _default = before


def deactivate() -> None:
    """Give Triton its default driver back; what it is, Triton finds out when it next needs one."""
    triton_driver._active = None


def describe() -> str:
    """What the wavefronts of the running launch are doing.

    One line when none runs. Safe to call from a signal handler.
    """
    return _running.describe() if _running is not None else "no kernel is running on the emulated device"


_running: Scheduler | None = None


class EmulatedDriver(DriverBase):  # type: ignore[misc]
    """The emulated GPU as Triton sees it. One per process; launches run on the calling thread, one at a time.

    ``watch`` is the watched mode, None for ``fast``. ``rewrite(kernel name, listing) -> listing`` may change the
    machine code before it is decoded: to see whether a mutant is noticed.
    """

    def __init__(self, arch: str, watch: Watch | None = None) -> None:
        self.arch = arch
        self.watch = watch
        self.rewrite: Callable[[str, str], str] | None = None
        # Where launches go in place of being run at once; set by ``together``.
        self.defer: Callable[[Launch], None] | None = None
        self.rank: int | None = None
        # Where device_print goes, by default to ``sys.stdout``; ``together`` collects it by rank.
        self.write: Callable[[str], object] | None = None
        self._programs: dict[str, Program] = {}
        self.utils = _Utils(arch)
        self.launcher_cls = Launcher
        self.allocations = Allocations(watch is not None and watch.red_zones)
        self._launches: list[LaunchRecord] = []
        # JITFunction keeps its kernels by device, and expects a key that stands for one target.
        self._device = ARCHS.index(arch)
        self._interface = DeviceInterface()

    # -- what programs under the emulator use ------------------------------------------------------------------------

    def register_memory(self, address: int, size: int, label: str, peer: int | None = None) -> None:
        """Let kernels access [address, address + size), as ``hipHostRegister`` would.

        ``peer`` is the rank that owns the memory.
        """
        self.allocations.register(address, size, label, peer)

    def unregister_memory(self, address: int) -> None:
        """Take back ``register_memory``; ``ValueError`` when nothing is registered at ``address``."""
        self.allocations.unregister(address)

    def carve(self, address: int, size: int, label: str) -> None:
        """Say that [address, address + size) is an allocation inside a registered segment.

        In mode ``check`` kernels may access nothing of that segment but what was carved from it: the rest is a red
        zone. Other segments of the same size that were registered with a ``peer``, or beside one, are mappings of one
        symmetric heap: they are carved at the same offset. The other modes ignore it. ``ValueError`` outside every
        segment, or where it overlaps what was carved before.
        """
        self.allocations.carve(address, size, label)

    def uncarve(self, address: int) -> None:
        """Take back ``carve``: the bytes become red zone; ``ValueError`` when nothing was carved at ``address``."""
        self.allocations.uncarve(address)

    def forget(self, memory: torch.Tensor | int, size: int = 0) -> None:
        """Say that what a tensor, or ``size`` bytes at an address, hold is unspecified, as after ``torch.empty``.

        Mode ``check`` reports kernels that depend on such bytes before anyone has written them, and overwrites them
        with a pattern; the other modes ignore it. ``ValueError`` for a tensor that is not contiguous.
        """
        if isinstance(memory, torch.Tensor):
            if not memory.is_contiguous():
                raise ValueError(f"a tensor of strides {memory.stride()} is not one run of bytes: forget its parts")
            address, size = memory.data_ptr(), memory.nbytes
        else:
            address = memory
        if self.watch is not None:
            self.watch.forget(address, size)

    def drain_launches(self) -> list[LaunchRecord]:
        """The launches since the last call, oldest first. A launch that faulted is among them."""
        launches, self._launches = self._launches, []
        return launches

    def run(self, streams: Sequence[Sequence[Launch]], closed: bool = False) -> None:
        """Execute launches under one scheduler: see ``Scheduler``."""
        global _running
        _running = Scheduler(streams, self.watch, closed or (self.watch is not None and self.watch.closed))
        try:
            _running.run()
        finally:
            _running = None

    def program(self, launcher: Launcher) -> Program:
        """The launcher's kernel as this driver executes it: rewritten, and instrumented by the watched mode."""
        if self.watch is None and self.rewrite is None:
            return launcher.program
        text = launcher.listing
        if self.rewrite is not None:
            text = self.rewrite(launcher.program.name, text)
        if text not in self._programs:
            listing = parse(text)
            limits.check_arch(listing, self.arch)
            limits.check_sizes(listing, launcher.num_warps, launcher.lds_bytes)
            program = self._programs[text] = decode(listing, watch=self.watch)
            if self.watch is None:
                compile_runs(program)
        return self._programs[text]

    # -- what Triton uses --------------------------------------------------------------------------------------------

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("hip", self.arch, WAVEFRONT)

    def get_current_device(self) -> int:
        return self._device

    def set_current_device(self, device: int) -> None:
        if device != self._device:
            raise ValueError(f"the emulated device is number {self._device}, there is no device {device}")

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        return self._interface

    def get_benchmarker(self) -> Callable[..., Any]:
        return _benchmark

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(0)

    def clear_cache(self, cache: torch.Tensor) -> None:
        cache.zero_()


class _Utils:
    def __init__(self, arch: str) -> None:
        self.arch = arch
        self._loaded = 0

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[int, int, int, int, int]:
        """Module, function, registers, spills, most threads.

        The code itself is decoded by the launcher, from the listing.
        """
        self._loaded += 1
        return self._loaded, self._loaded, 0, 0, MAX_THREADS

    def unload_module(self, module: int) -> None:
        pass

    def get_device_properties(self, device: int) -> dict[str, Any]:
        return {
            "arch": self.arch,
            "warpSize": WAVEFRONT,
            "max_shared_mem": LDS_BYTES[self.arch],
            "max_num_regs": 65536,
            "multiprocessor_count": COMPUTE_UNITS[self.arch],
            "sm_clock_rate": 2_100_000,
            "mem_clock_rate": 1_300_000,
            "mem_bus_width": 8192,
            "cooperativeLaunch": 1,
        }


class Launcher:
    """Places a kernel's arguments and runs it; Triton makes one per compiled kernel."""

    def __init__(self, src: Any, metadata: Any) -> None:
        native.compile_once(Path(knobs.cache.dir))
        self.hash: str = metadata.hash
        self.num_warps: int = metadata.num_warps
        self.lds_bytes: int = metadata.shared
        self.listing = _listing(src, metadata)
        listing = parse(self.listing)
        active = triton_driver.active
        limits.check_arch(listing, active.arch if isinstance(active, EmulatedDriver) else None)
        # What Triton itself says of these two is what its users know.
        if self.lds_bytes > LDS_BYTES[listing.arch]:
            raise OutOfResources(self.lds_bytes, LDS_BYTES[listing.arch], "shared memory")
        if self.num_warps * WAVEFRONT > MAX_THREADS:
            raise OutOfResources(self.num_warps * WAVEFRONT, MAX_THREADS, "threads")
        limits.check_sizes(listing, self.num_warps, self.lds_bytes)
        self.program: Program = decode(listing)
        compile_runs(self.program)
        self.scratch = (getattr(metadata, "global_scratch_size", 0), getattr(metadata, "profile_scratch_size", 0))
        arguments = self.program.listing.metadata.get(".args", [])
        hidden = [a for a in arguments if a[".value_kind"].startswith("hidden_")]
        offsets = [int(a[".offset"]) for a in arguments if a not in hidden]
        self.hidden = [(a[".value_kind"], int(a[".offset"]), int(a[".size"])) for a in hidden]
        self.calls_host = any(kind == "hidden_hostcall_buffer" for kind, _, _ in self.hidden)
        size = int(self.program.listing.metadata[".kernarg_segment_size"])
        self.kernarg = np.zeros(max(8, -(-size // 8) * 8), np.uint8)
        self.pointers, self.values = _placements(src, offsets)
        self.scratch_offsets = offsets[len(self.pointers) + len(self.values) :]

    def __call__(
        self,
        grid_x: int,
        grid_y: int,
        grid_z: int,
        stream: int,
        function: int,
        kernel_metadata: Any,
        launch_metadata: Any,
        enter_hook: Hook | None,
        exit_hook: Hook | None,
        *arguments: Any,
    ) -> None:
        active = triton_driver.active
        if not isinstance(active, EmulatedDriver):
            raise HarnessError(
                f"a kernel compiled for the emulated device was launched while {type(active).__name__} is active"
            )
        if enter_hook is not None:
            # Before the arguments are placed: the hook may launch this very kernel.
            enter_hook(launch_metadata)
        # The hooks see a launch of no work-groups too, as on a GPU.
        if grid_x * grid_y * grid_z:
            self._launch(active, (grid_x, grid_y, grid_z), arguments)
        if exit_hook is not None:
            exit_hook(launch_metadata)

    def _launch(self, active: EmulatedDriver, grid: tuple[int, int, int], arguments: Sequence[Any]) -> None:
        groups = grid[0] * grid[1] * grid[2]
        tensors, keep_alive = self._place(arguments, groups)
        hostcall = None
        if self.calls_host:
            hostcall = Hostcall(min(groups * self.num_warps, RESIDENT_WAVES), active.write)
            tensors.append((hostcall.address, hostcall.memory.nbytes, "the hostcall buffer"))
        self._place_hidden(grid, hostcall)
        # A launch that runs later needs arguments of its own.
        kernarg = self.kernarg if active.defer is None else self.kernarg.copy()
        launch = Launch(
            active.program(self),
            grid,
            self.num_warps,
            self.lds_bytes,
            kernarg,
            active.allocations,
            tensors,
            active.rank,
        )
        launch.hostcall = hostcall
        if active.defer is not None:
            launch.keep_alive = keep_alive, arguments
            launch.record_it = lambda: active._launches.append(launch.record(self.hash, self.listing))
            active.defer(launch)
        else:
            try:
                active.run([[launch]])
            finally:
                active._launches.append(launch.record(self.hash, self.listing))
                del keep_alive

    def _place(self, arguments: Sequence[Any], groups: int) -> tuple[list[tuple[int, int, str]], list[torch.Tensor]]:
        """Write the kernel arguments; the result names the storages that they point into."""
        tensors = []
        block = self.kernarg
        words = block.view(np.uint64)
        for path, name, offset in self.pointers:
            value = _at(arguments, path)
            if hasattr(value, "untyped_storage"):
                words[offset >> 3] = value.data_ptr()
                storage = value.untyped_storage()
                tensors.append((storage.data_ptr(), storage.nbytes(), f"argument {name}"))
            elif hasattr(value, "data_ptr"):
                words[offset >> 3] = value.data_ptr()
            else:
                words[offset >> 3] = value or 0
        for path, offset, form in self.values:
            form(block, offset, _at(arguments, path))
        scratch = []
        for offset, size in zip(self.scratch_offsets, self.scratch, strict=False):
            if size:
                memory = torch.zeros(size * groups, dtype=torch.uint8)
                scratch.append(memory)
                tensors.append((memory.data_ptr(), memory.nbytes, "Triton's scratch memory"))
                words[offset >> 3] = memory.data_ptr()
        return tensors, scratch

    def _place_hidden(self, grid: tuple[int, int, int], hostcall: Hostcall | None) -> None:
        """The implicit arguments, as gl.num_programs reads them."""
        address = 0 if hostcall is None else hostcall.address
        dispatch = entry.Dispatch(grid, self.num_warps, self.lds_bytes, 0, 0, address)
        for kind, offset, size in self.hidden:
            value = entry.hidden_argument(kind.removeprefix("hidden_"), dispatch, QUEUE.ctypes.data)
            self.kernarg[offset : offset + size] = np.frombuffer(value.to_bytes(size, "little"), np.uint8)


def _placements(src: Any, offsets: list[int]) -> tuple[list[Pointer], list[Value]]:
    """Where each argument goes: pointers as (path, name, offset), values as (path, offset, writer)."""
    pointers: list[Pointer] = []
    values: list[Value] = []
    places = iter(offsets)

    def visit(kind: Any, path: ArgumentPath, name: str) -> None:
        if isinstance(kind, (tuple, list)):
            for i, inner in enumerate(kind):
                visit(inner, (*path, i), f"{name}[{i}]")
        elif kind == "constexpr":
            return
        elif kind.startswith("*"):
            pointers.append((path, name, next(places)))
        elif kind == "bf16":
            values.append((path, next(places), _write_bf16))
        elif kind in _FORMATS:
            values.append((path, next(places), _writer(_FORMATS[kind])))
        else:
            raise HarnessError(f"argument {name} of type {kind!r} cannot be passed to an emulated kernel yet")

    for i, (name, kind) in enumerate(src.signature.items()):
        visit(kind, (i,), str(name))
    return pointers, values


def _at(arguments: Sequence[Any], path: ArgumentPath) -> Any:
    value: Any = arguments
    for i in path:
        value = value[i]
    return value


def _writer(form: str) -> Writer:
    packer = struct.Struct(form)
    bits = packer.size * 8
    integer = form[1] in "bhiqBHIQ"

    def write(block: np.ndarray, offset: int, value: Any) -> None:
        # An argument typed i32 may hold a value above 2**31 - 1, and the other way round: its bits are passed.
        data = (int(value) & ((1 << bits) - 1)).to_bytes(packer.size, "little") if integer else packer.pack(value)
        block[offset : offset + packer.size] = np.frombuffer(data, np.uint8)

    return write


def _write_bf16(block: np.ndarray, offset: int, value: float) -> None:
    word = int(torch.tensor(value, dtype=torch.bfloat16).view(torch.int16)) & 0xFFFF
    block[offset : offset + 2] = np.frombuffer(word.to_bytes(2, "little"), np.uint8)


def _listing(src: Any, metadata: Any) -> str:
    """The amdgcn text beside the binary in Triton's cache."""
    file = get_cache_manager(metadata.hash).get_file(f"{src.name[:150]}.amdgcn")
    if file is None:
        raise HarnessError(
            f"Triton's cache holds no amdgcn listing of kernel {metadata.name}: "
            "unset TRITON_STORE_BINARY_ONLY and clear the cache"
        )
    return Path(file).read_text()


def _benchmark(kernel_call: Callable[[], Any], quantiles: Sequence[float] | None = None, **_: Any) -> Any:
    """Milliseconds of one call, for Triton's autotuner: emulated time ranks nothing, so one run is enough."""
    start = time.perf_counter()
    kernel_call()
    elapsed = (time.perf_counter() - start) * 1e3
    return [elapsed] * len(quantiles) if quantiles else elapsed
