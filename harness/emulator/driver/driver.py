"""The Triton driver: ``kernel[grid](...)`` on CPU tensors compiles for gfx942 and runs here.

Differences between Triton 3.6 and 3.9 in how a driver is called are handled in this file and nowhere else. The driver
is installed with ``triton.runtime.driver.set_active``. Launches are synchronous: when ``kernel[grid](...)`` returns,
the kernel has ended.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime import _allocation
from triton.runtime import driver as triton_driver
from triton.runtime.cache import get_cache_manager
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

from harness import emulated_device
from harness.emulator.driver import pointers, single, tables
from harness.emulator.driver.awaited import Polled
from harness.emulator.driver.backend import report_active
from harness.emulator.driver.binary import metadata_integer
from harness.emulator.driver.inactive import Inactive
from harness.emulator.driver.schedule import RESIDENT_WAVES, Scheduler
from harness.emulator.driver.translated import Heat, TranslatedScheduler, translation_of
from harness.emulator.execution.allocations import Allocations
from harness.emulator.execution.counters import LaunchRecord
from harness.emulator.execution.hostcall import Hostcall
from harness.emulator.execution.launch import QUEUE, Launch
from harness.emulator.execution.records import Records
from harness.emulator.execution.timing import DeviceInterface, refuse_graphs
from harness.emulator.listing import limits
from harness.emulator.listing.limits import ARCHS, LDS_BYTES, MAX_THREADS, WAVEFRONT, check_grid
from harness.emulator.listing.parser import parse
from harness.emulator.native import memory as native
from harness.emulator.program.decode import Program, decode
from harness.emulator.watch import Choices, Watch, make
from harness.emulator.wavefront import entry
from harness.errors import HarnessError
from harness.isa.compile_only import Module

# Number of compute units of a device.
COMPUTE_UNITS = {"gfx942": 304, "gfx950": 256}

Hook = Callable[[Any], None]
# How to reach an argument: an index into a tuple, or the name of an attribute of a descriptor.
ArgumentPath = tuple[int | str, ...]
Writer = Callable[[np.ndarray, int, Any], None]
Pointer = tuple[ArgumentPath, str, int]
Value = tuple[ArgumentPath, int, Writer]
Integer = tuple[ArgumentPath, str]

_FORMATS = {
    "i1": "<?", "i8": "<b", "i16": "<h", "i32": "<i", "i64": "<q",
    "u1": "<?", "u8": "<B", "u16": "<H", "u32": "<I", "u64": "<Q",
    "fp16": "<e", "fp32": "<f", "f32": "<f", "fp64": "<d",
}  # fmt: skip
_DESCRIPTOR = re.compile(r"tensordesc<[^\[>]*\[([^\]]*)\]")


def activate(
    arch: str = "gfx942",
    mode: str | None = None,
    choices: Choices | int | None = None,
    kind: type[EmulatedDriver] | None = None,
    inherit: bool = False,
    **options: Any,
) -> EmulatedDriver:
    """Make the emulated device Triton's active driver in this process.

    ``inherit``: Python processes that this one starts, until ``deactivate``, have the same device, arch, mode and seed:
    by ``subprocess``, ``multiprocessing`` with spawn, or pytest-xdist. It sets IRIS_HARNESS_DEVICE and PYTHONPATH.

    ``mode`` is one of ``harness.emulator.watch.MODES``, by default ``fast`` or the mode set by ``watching``.
    ``choices`` (a seed, or a ``Choices``) decides the interleaving of wavefronts in a watched mode; ``options`` are
    those of the mode. ``kind`` is a class derived from ``EmulatedDriver`` to make the driver of. ``ValueError`` for an
    unknown arch, mode or option.
    """
    if arch not in ARCHS:
        raise ValueError(f"unknown arch {arch!r} of the emulated device; choose one of {', '.join(ARCHS)}")
    watch = _default if mode is None else make(mode, choices, **options)
    if mode is None and (choices is not None or options):
        raise ValueError(f"choices and options need a mode; got choices={choices!r}, options={options} and mode=None")
    if inherit and (kind is not None or options or not isinstance(choices, (int, type(None)))):
        raise ValueError(
            "inherit passes the arch, the mode and a seed to child processes, and nothing else of activate"
        )
    driver = (kind or EmulatedDriver)(arch, watch)
    if inherit:
        emulated_device.pass_on(emulated_device.Inherited(arch, mode, choices if isinstance(choices, int) else None))
    else:
        emulated_device.take_back()
    triton_driver.set_active(driver)
    report_active(lambda: isinstance(triton_driver._active, EmulatedDriver))
    refuse_graphs()
    return driver


_default: Watch | None = None


@contextmanager
def watching(watch: Watch | None) -> Iterator[None]:
    """Make ``activate`` without a mode use ``watch`` in this block, for programs that activate the device."""
    global _default
    before, _default = _default, watch
    try:
        yield
    finally:
        _default = before


def deactivate() -> None:
    """Restore Triton's default driver, which is looked up at its next use, and the environment of child processes."""
    emulated_device.take_back()
    triton_driver.set_active(Inactive())


def describe() -> str:
    """Describe the state of the running launch's wavefronts.

    One line if no launch runs. Safe to call from a signal handler.
    """
    return _running.describe() if _running is not None else "no kernel is running on the emulated device"


def words_polled() -> list[Polled]:
    """Return the words that the wavefronts of the running launch poll. Safe to call from another thread."""
    return _running.words_polled() if _running is not None else []


_running: Scheduler | None = None


class EmulatedDriver(DriverBase):  # type: ignore[misc]
    """The emulated GPU as Triton sees it. One per process; launches run on the calling thread, one at a time.

    ``watch`` is the watched mode, None for ``fast``. ``rewrite(kernel name, listing) -> listing`` may change the
    machine code before it is decoded, for mutation tests.
    """

    def __init__(self, arch: str, watch: Watch | None = None) -> None:
        self.arch = arch
        self.watch = watch
        self.rewrite: Callable[[str, str], str] | None = None
        # Receives launches instead of running them at once; set by ``concurrent_ranks``.
        self.defer: Callable[[Launch], None] | None = None
        self.rank: int | None = None
        # Seconds after which a launch that has not ended raises ``TimeLimit``; None: no limit.
        self.time_limit: float | None = None
        # Threads on which mode ``fast`` runs work-groups of a large launch. Results do not depend on their number.
        self.cores = _free_cores()
        # Called whenever every wavefront of the running launches has had its turn, as while all wait for other ranks.
        self.polled: Callable[[], None] | None = None
        # Receives the output of device_print, by default ``sys.stdout``; ``concurrent_ranks`` collects it by rank.
        self.write: Callable[[str], object] | None = None
        self._sources: list[_Source] = []
        self._programs: dict[tuple[Watch | None, str], Program] = {}
        self.utils = _Utils(arch)
        self.launcher_cls = Launcher
        self.allocations = Allocations(watch is not None and watch.red_zones)
        # ``records.limit`` is the number of launches that are recorded one by one.
        self.records = Records()
        # JITFunction caches its kernels by device, and expects a key that identifies one target.
        self._device = ARCHS.index(arch)
        self._interface = DeviceInterface()

    # -- for programs that use the emulator --------------------------------------------------------------------------

    def register_memory(self, address: int, size: int, label: str, peer: int | None = None) -> None:
        """Let kernels access [address, address + size), as ``hipHostRegister`` would.

        ``peer`` is the rank that owns the memory.
        """
        self.allocations.register(address, size, label, peer)

    def unregister_memory(self, address: int) -> None:
        """Undo ``register_memory``; ``ValueError`` if nothing is registered at ``address``."""
        self.allocations.unregister(address)

    def add_memory_source(self, source: MemorySource) -> None:
        """Let kernels access the regions of ``source``, as they are when a kernel is launched."""
        self._sources.append(_Source(source))

    def update_memory(self) -> None:
        """Register the regions that sources have now, and forget those that they no longer have."""
        for source in self._sources:
            source.update(self.allocations)

    def carve(self, address: int, size: int, label: str) -> None:
        """Make [address, address + size) an allocation inside a registered segment.

        In mode ``check``, kernels may then access only the carved parts of that segment; the rest is a red zone.
        Registered segments of the same size, one of them with a ``peer``, are mappings of one symmetric heap: they are
        carved at the same offset. The other modes ignore this call. ``ValueError`` if the range lies outside every
        segment or overlaps an earlier allocation.
        """
        self.allocations.carve(address, size, label)

    def uncarve(self, address: int) -> None:
        """Undo ``carve``: the bytes become red zone; ``ValueError`` if nothing was carved at ``address``."""
        self.allocations.uncarve(address)

    def forget(self, memory: torch.Tensor | int, size: int = 0) -> None:
        """Mark the contents of a tensor, or of ``size`` bytes at an address, as unspecified, as after ``torch.empty``.

        Mode ``check`` reports kernels that depend on such bytes before they are written, and fills them with a pattern;
        the other modes ignore this call. ``ValueError`` for a tensor that is not contiguous.
        """
        if isinstance(memory, torch.Tensor):
            if not memory.is_contiguous():
                raise ValueError(
                    f"a tensor of strides {memory.stride()} is not one run of bytes: forget its contiguous parts"
                )
            address, size = memory.data_ptr(), memory.nbytes
        else:
            address = memory
        if self.watch is not None:
            self.watch.forget(address, size)

    @contextmanager
    def watched(self, watch: Watch) -> Iterator[None]:
        """Execute the launches of this block under ``watch``. ``ValueError`` for one with red zones."""
        if watch.red_zones:
            raise ValueError(f"mode {watch.name} needs red zones from the start: pass it to activate()")
        before, self.watch = self.watch, watch
        try:
            yield
        finally:
            self.watch = before

    def drain_launches(self) -> list[LaunchRecord]:
        """Return the launches since the last call, oldest first, including any that faulted.

        If there were more than ``records.limit``, the first records are sums of the older launches, one for each
        kernel, with the number of them in ``launches``.
        """
        return self.records.drain()

    def enqueue(self, execute: Callable[[], None]) -> None:
        """Execute a launch; a driver whose streams can be captured records it instead."""
        execute()

    def check_tensor(self, tensor: torch.Tensor, name: str) -> None:
        """Raise an error if the memory of a kernel argument cannot be accessed, in drivers that know it."""

    def block_at(self, address: int) -> tuple[int, int] | None:
        """Return address and size of the allocation that holds ``address``, if an allocator of the driver made it."""
        return None

    def run(self, streams: Sequence[Sequence[Launch]], closed: bool = False) -> None:
        """Execute launches under one scheduler: see ``Scheduler``."""
        global _running
        translation = None
        if self.watch is None and not closed and len(streams) == len(streams[0]) == 1:
            translation = translation_of(streams[0][0])
        if translation is not None:
            _running = TranslatedScheduler.of(streams[0][0], translation, self.time_limit, self.cores)
            _running.polled = self.polled
            try:
                _running.run()
            finally:
                _running = None
            return
        closed = closed or (self.watch is not None and self.watch.closed)
        _running = Scheduler(streams, self.watch, closed, self.time_limit)
        _running.polled = self.polled
        start = time.process_time()
        launches = [launch for stream in streams for launch in stream]
        try:
            _running.run()
        finally:
            _running = None
            for launch in launches:
                if isinstance(launch.program.heat, Heat):
                    launch.program.heat.spent += time.process_time() - start
        for launch in launches:
            if isinstance(launch.program.heat, single.Stretches):
                launch.program.heat.ran(launch)

    def code(self, launcher: Launcher) -> str:
        """Return the listing of the launcher's kernel that this driver executes: rewritten, if ``rewrite`` is set."""
        return launcher.listing if self.rewrite is None else self.rewrite(launcher.program.name, launcher.listing)

    def program(self, launcher: Launcher, text: str) -> Program:
        """Return the launcher's kernel with the code ``text``, instrumented by the watched mode."""
        if self.watch is None and text is launcher.listing:
            return launcher.program
        key = self.watch, text
        if key not in self._programs:
            listing = launcher.program.listing
            if self.rewrite is not None:
                listing = parse(text)
                limits.check_arch(listing, self.arch)
                limits.check_sizes(listing, launcher.num_warps, launcher.lds_bytes)
            if self.watch is not None and self.watch.interleaves:
                plain = launcher.program if self.rewrite is None else None
                self._programs[key] = single.decode(listing, self.watch, plain)
            else:
                self._programs[key] = decode(listing, watch=self.watch)
        return self._programs[key]

    # -- for Triton --------------------------------------------------------------------------------------------------

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Return ``ty``: no C++ launcher is generated, so Triton's name of the type is enough."""
        return ty

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("hip", self.arch, WAVEFRONT)

    def get_current_device(self) -> int:
        return self._device

    def set_current_device(self, device: int) -> None:
        if device != self._device:
            raise ValueError(f"the only device is number {self._device}, got {device}")

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


def _free_cores() -> int:
    """Return the number of cores for one launch: 1 if this process is one of several, which use the others."""
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1 or "PYTEST_XDIST_WORKER" in os.environ
    return 1 if several or multiprocessing.parent_process() is not None else len(os.sched_getaffinity(0))


class MemorySource(Protocol):
    """Memory of a runtime under the program, such as HIP's or torch's.

    ``regions`` returns (address, bytes, device, kind, peer) of each region, ``peer`` the rank that owns it or None.
    ``generation`` is another number after each change of them.
    """

    def generation(self) -> int: ...
    def regions(self) -> Sequence[tuple[int, int, int, str, int | None]]: ...


class _Source:
    def __init__(self, source: MemorySource) -> None:
        self._source = source
        self._generation: int | None = None
        self._registered: dict[int, tuple[int, int | None]] = {}

    def update(self, allocations: Allocations) -> None:
        generation = self._source.generation()
        if generation == self._generation:
            return
        regions = {region[0]: region for region in self._source.regions()}
        for address, (size, peer) in list(self._registered.items()):
            if address not in regions or (regions[address][1], regions[address][4]) != (size, peer):
                allocations.unregister(address)
                del self._registered[address]
        for address, size, device, kind, peer in regions.values():
            if address not in self._registered:
                owner = "" if peer is None else f" of rank {peer}"
                allocations.register(address, size, f"{kind} memory{owner} on GPU {device}", peer)
                self._registered[address] = size, peer
        self._generation = generation


class _Utils:
    def __init__(self, arch: str) -> None:
        self.arch = arch
        self._loaded = 0

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[Module, int, int, int, int]:
        """Return module, function, registers, spills, maximum number of threads.

        As the HIP runtime reports them: vector registers of a lane, and dwords of its private memory, which holds
        spills. The launcher decodes the code itself, from the listing.
        """
        self._loaded += 1
        registers = metadata_integer(kernel, ".vgpr_count")
        spills = metadata_integer(kernel, ".private_segment_fixed_size") // 4
        return Module(self._loaded), self._loaded, registers, spills, MAX_THREADS

    def unload_module(self, module: int) -> None:
        pass

    def get_device_properties(self, device: int) -> dict[str, Any]:
        return {
            "arch": self.arch,
            "warpSize": WAVEFRONT,
            "max_threads_per_sm": 2048,  # 4 SIMDs of 8 wavefronts
            "max_shared_mem": LDS_BYTES[self.arch],
            "max_num_regs": 65536,
            "multiprocessor_count": COMPUTE_UNITS[self.arch],
            "sm_clock_rate": 2_100_000,
            "mem_clock_rate": 1_300_000,
            "mem_bus_width": 8192,
            "cooperativeLaunch": 1,
        }


class Launcher:
    """Places a kernel's arguments and runs it; Triton creates one per compiled kernel."""

    def __init__(self, src: Any, metadata: Any) -> None:
        native.compile_once(Path(knobs.cache.dir))
        self.hash: str = metadata.hash
        self.num_warps: int = metadata.num_warps
        self.lds_bytes: int = metadata.shared
        self.listing = _listing(src, metadata)
        listing = parse(self.listing)
        active = triton_driver.active
        limits.check_arch(listing, active.arch if isinstance(active, EmulatedDriver) else None)
        # Use Triton's own messages for these two cases: its users know them.
        if self.lds_bytes > LDS_BYTES[listing.arch]:
            raise OutOfResources(self.lds_bytes, LDS_BYTES[listing.arch], "shared memory")
        if self.num_warps * WAVEFRONT > MAX_THREADS:
            raise OutOfResources(self.num_warps * WAVEFRONT, MAX_THREADS, "threads")
        limits.check_sizes(listing, self.num_warps, self.lds_bytes)
        self.program: Program = decode(listing)
        # (bytes for each work-group, alignment) of Triton's two scratch memories: global, and of the profiler.
        self.scratch = tuple(
            (getattr(metadata, f"{kind}_scratch_size", 0), getattr(metadata, f"{kind}_scratch_align", 1))
            for kind in ("global", "profile")
        )
        arguments = self.program.listing.metadata.get(".args", [])
        hidden = [a for a in arguments if a[".value_kind"].startswith("hidden_")]
        self.offsets = offsets = [int(a[".offset"]) for a in arguments if a not in hidden]
        self.hidden = [(a[".value_kind"], int(a[".offset"]), int(a[".size"])) for a in hidden]
        self.calls_host = any(kind == "hidden_hostcall_buffer" for kind, _, _ in self.hidden)
        size = int(self.program.listing.metadata[".kernarg_segment_size"])
        self.kernarg = np.zeros(max(8, -(-size // 8) * 8), np.uint8)
        self.pointers, self.values, self.integers = _placements(src, offsets)
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
            # Call the hook before placing the arguments: it may launch this very kernel.
            enter_hook(launch_metadata)
        check_grid((grid_x, grid_y, grid_z), self.num_warps * WAVEFRONT)
        # As on a GPU, the hooks also run for a launch without work-groups.
        if grid_x * grid_y * grid_z:

            def execute() -> None:
                active.update_memory()
                self._launch(active, (grid_x, grid_y, grid_z), arguments)

            active.enqueue(execute)
        if exit_hook is not None:
            exit_hook(launch_metadata)

    def _launch(self, active: EmulatedDriver, grid: tuple[int, int, int], arguments: Sequence[Any]) -> None:
        groups = grid[0] * grid[1] * grid[2]
        for path, name, _ in self.pointers:
            value = _at(arguments, path)
            value = value.base if isinstance(value, TensorWrapper) else value
            if isinstance(value, torch.Tensor):
                active.check_tensor(value, name)
        tensors, keep_alive = self._place(arguments, groups)
        unowned = self._add_owners(active, arguments, tensors, keep_alive)
        hostcall = None
        if self.calls_host:
            hostcall = Hostcall(min(groups * self.num_warps, RESIDENT_WAVES), active.write)
            tensors.append((hostcall.address, hostcall.memory.nbytes, "the hostcall buffer"))
        self._place_hidden(grid, hostcall)
        # A deferred launch needs its own copy of the arguments.
        kernarg = self.kernarg if active.defer is None else self.kernarg.copy()
        code = active.code(self)
        launch = Launch(
            active.program(self, code),
            grid,
            self.num_warps,
            self.lds_bytes,
            kernarg,
            active.allocations,
            tensors,
            active.rank,
        )
        launch.hostcall = hostcall
        launch.unowned = unowned
        launch.tables, launch.peers = self._reach(active, arguments, tensors)
        if active.defer is not None:
            launch.keep_alive = keep_alive, arguments
            launch.record_it = lambda: active.records.add(partial(launch.tally().record, self.hash, code))
            active.defer(launch)
        else:
            try:
                active.run([[launch]])
            finally:
                active.records.add(partial(launch.tally().record, self.hash, code))
                del keep_alive

    def _reach(
        self, active: EmulatedDriver, arguments: Sequence[Any], tensors: list[tuple[int, int, str]]
    ) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
        """Return the positions of arguments that lead to other ranks' memory: see ``tables.find``."""
        words = self.kernarg.view(np.uint64)
        addresses = [(self.offsets.index(offset), int(words[offset >> 3])) for _, _, offset in self.pointers]
        places = {path: offset for path, offset, _ in self.values}
        for path, _ in self.integers:
            addresses.append((self.offsets.index(places[path]), int(_at(arguments, path))))
        return tables.find(addresses, [tensor[:2] for tensor in tensors], active.allocations, active.rank)

    def _place(self, arguments: Sequence[Any], groups: int) -> tuple[list[tuple[int, int, str]], list[object]]:
        """Write the kernel arguments and return the storages that they point into, by name."""
        tensors = []
        block = self.kernarg
        words = block.view(np.uint64)
        for path, name, offset in self.pointers:
            value = _at(arguments, path)
            if isinstance(value, TensorWrapper):
                value = value.base
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
        scratch: list[object] = []
        allocators = (_allocation._allocator.get(), _profile_allocator())
        for offset, (size, align), allocate in zip(self.scratch_offsets, self.scratch, allocators, strict=False):
            if size:
                memory = allocate(size * groups, align, 0)
                scratch.append(memory)
                tensors.append((memory.data_ptr(), size * groups, "Triton's scratch memory"))
                words[offset >> 3] = memory.data_ptr()
        return tensors, scratch

    def _add_owners(
        self,
        active: EmulatedDriver,
        arguments: Sequence[Any],
        tensors: list[tuple[int, int, str]],
        keep_alive: list[object],
    ) -> dict[int, str]:
        """Add the tensors whose addresses the kernel gets as integers to ``tensors`` and ``keep_alive``.

        Returns the addresses that belong to no tensor, with the name of their argument.
        """
        values: dict[str, int] = {}
        tables: dict[str, torch.Tensor] = {}
        for path, name, _ in self.pointers:
            value = _at(arguments, path)
            if isinstance(value, int):
                values[f"argument {name}"] = value
            elif isinstance(value, torch.Tensor):
                if value.dtype in (torch.int64, torch.uint64):
                    tables[f"argument {name}"] = value
            elif hasattr(value, "data_ptr"):
                values[f"argument {name}"] = value.data_ptr()
        values |= {f"argument {name}": _at(arguments, path) for path, name in self.integers}
        if not values and not tables:
            return {}

        def known(address: int) -> bool:
            if any(start <= address < start + size for start, size, _ in tensors):
                return True
            if active.allocations.contains(address):
                return True
            block = active.block_at(address)
            if block is not None:
                tensors.append((*block, "a tensor passed by its address"))
            return block is not None

        storages, unowned = pointers.find(values, tables, known)
        tensors += [(s.data_ptr(), s.nbytes(), "a tensor passed by its address") for s in storages]
        keep_alive += storages
        return unowned

    def _place_hidden(self, grid: tuple[int, int, int], hostcall: Hostcall | None) -> None:
        """Write the implicit arguments, such as the grid that gl.num_programs reads."""
        address = 0 if hostcall is None else hostcall.address
        dispatch = entry.Dispatch(grid, self.num_warps, self.lds_bytes, 0, 0, address)
        for kind, offset, size in self.hidden:
            value = entry.hidden_argument(kind.removeprefix("hidden_"), dispatch, QUEUE.ctypes.data)
            self.kernarg[offset : offset + size] = np.frombuffer(value.to_bytes(size, "little"), np.uint8)


def _placements(src: Any, offsets: list[int]) -> tuple[list[Pointer], list[Value], list[Integer]]:
    """Return the place of each argument: pointers as (path, name, offset), values as (path, offset, writer).

    The third list has the (path, name) of the 64-bit integers, which may be addresses.
    """
    addresses: list[Pointer] = []
    values: list[Value] = []
    integers: list[Integer] = []
    places = iter(offsets)

    def visit(kind: Any, path: ArgumentPath, name: str) -> None:
        if isinstance(kind, (tuple, list)):
            for i, inner in enumerate(kind):
                visit(inner, (*path, i), f"{name}[{i}]")
        elif kind == "constexpr":
            return
        elif kind.startswith("tensordesc"):
            place_descriptor(kind, path, name)
        elif kind.startswith("*"):
            addresses.append((path, name, next(places)))
        elif kind == "bf16":
            values.append((path, next(places), _write_bf16))
        elif kind in _FORMATS:
            values.append((path, next(places), _writer(_FORMATS[kind])))
            if kind in ("i64", "u64"):
                integers.append((path, name))
        else:
            raise HarnessError(
                f"argument {name} of type {kind!r} cannot be passed to an emulated kernel: "
                "pass scalars, tensors, tensor descriptors or tuples of them"
            )

    def place_descriptor(kind: str, path: ArgumentPath, name: str) -> None:
        """Place a TensorDescriptor as the amd backend does: its parts, then shape and strides again."""
        rank = _descriptor_rank(kind)
        shape, strides = ([(*path, part, i) for i in range(rank)] for part in ("shape", "strides"))
        addresses.append(((*path, "base"), name, next(places)))
        values.extend((part, next(places), _writer("<q")) for part in (*shape, *strides))
        values.append(((*path, "padding"), next(places), _write_padding))
        if hasattr(TensorDescriptor, "round_f32_to_tf32"):  # older versions of Triton do not pass it
            values.append(((*path, "round_f32_to_tf32"), next(places), _writer("<?")))
        values.extend((part, next(places), _writer("<i")) for part in shape)
        values.extend((part, next(places), _writer("<q")) for part in strides)

    for i, (name, kind) in enumerate(src.signature.items()):
        visit(kind, (i,), str(name))
    return addresses, values, integers


def _profile_allocator() -> Callable[[int, int, int], Any]:
    """Return the allocator that the program set for the profiler's memory, or one that makes a tensor."""
    allocator = _allocation._profile_allocator.get()
    if isinstance(allocator, _allocation.NullAllocator):
        return lambda size, align, stream: torch.zeros(size, dtype=torch.uint8)
    return cast(Callable[[int, int, int], Any], allocator)


def _at(arguments: Sequence[Any], path: ArgumentPath) -> Any:
    value: Any = arguments
    for step in path:
        value = getattr(value, step) if isinstance(step, str) else value[step]
    return value


def _descriptor_rank(kind: str) -> int:
    """Return the number of dimensions of a type such as ``tensordesc<fp16[16, 32]>``."""
    match = _DESCRIPTOR.match(kind)
    if match is None:
        raise HarnessError(f"the type of a tensor descriptor has an unknown form: {kind!r}")
    return match.group(1).count(",") + 1


def _write_padding(block: np.ndarray, offset: int, value: str) -> None:
    block[offset] = value == "nan"


def _writer(form: str) -> Writer:
    packer = struct.Struct(form)
    bits = packer.size * 8
    integer = form[1] in "bhiqBHIQ"

    def write(block: np.ndarray, offset: int, value: Any) -> None:
        # An argument typed i32 may hold a value above 2**31 - 1, or one typed u32 a negative value: pass the bits.
        data = (int(value) & ((1 << bits) - 1)).to_bytes(packer.size, "little") if integer else packer.pack(value)
        block[offset : offset + packer.size] = np.frombuffer(data, np.uint8)

    return write


def _write_bf16(block: np.ndarray, offset: int, value: float) -> None:
    word = int(torch.tensor(value, dtype=torch.bfloat16).view(torch.int16)) & 0xFFFF
    block[offset : offset + 2] = np.frombuffer(word.to_bytes(2, "little"), np.uint8)


def _listing(src: Any, metadata: Any) -> str:
    """Return the amdgcn text that lies next to the binary in Triton's cache."""
    file = get_cache_manager(metadata.hash).get_file(f"{src.name[:150]}.amdgcn")
    if file is None:
        raise HarnessError(
            f"Triton's cache holds no amdgcn listing of kernel {metadata.name}: "
            "unset TRITON_STORE_BINARY_ONLY and clear the cache"
        )
    return Path(file).read_text()


def _benchmark(kernel_call: Callable[[], Any], quantiles: Sequence[float] | None = None, **_: Any) -> Any:
    """Time one call in milliseconds, for Triton's autotuner: emulated time ranks nothing, so one run is enough."""
    start = time.perf_counter()
    kernel_call()
    elapsed = (time.perf_counter() - start) * 1e3
    return [elapsed] * len(quantiles) if quantiles else elapsed
