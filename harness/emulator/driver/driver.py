"""The Triton driver: ``kernel[grid](...)`` on CPU tensors compiles for gfx942 and runs here.

Differences between Triton 3.6 and 3.9 in how a driver is called are handled here, in ``launcher`` and in ``arguments``,
and nowhere else. The driver is installed with ``triton.runtime.driver.set_active``. Launches are synchronous: when
``kernel[grid](...)`` returns, the kernel has ended.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime import driver as triton_driver

from harness import emulated_device, standstill
from harness.emulator.driver import checked, single, traced
from harness.emulator.driver.awaited import Polled
from harness.emulator.driver.backend import report_active
from harness.emulator.driver.binary import metadata_integer
from harness.emulator.driver.inactive import Inactive
from harness.emulator.driver.interleaved import scheduler_of
from harness.emulator.driver.isolation import are_large_and_isolated
from harness.emulator.driver.launcher import Device, Launcher
from harness.emulator.driver.schedule import Scheduler
from harness.emulator.driver.translated import Heat, TranslatedScheduler, translation_of
from harness.emulator.execution.allocations import Allocations
from harness.emulator.execution.counters import LaunchRecord
from harness.emulator.execution.launch import Launch
from harness.emulator.execution.records import Records
from harness.emulator.execution.timing import DeviceInterface, refuse_graphs
from harness.emulator.listing import limits
from harness.emulator.listing.limits import ARCHS, LDS_BYTES, MAX_THREADS, WAVEFRONT
from harness.emulator.listing.parser import parse
from harness.emulator.program.decode import Program, decode
from harness.emulator.watch import Choices, Watch, make
from harness.emulator.watch.check import Check
from harness.emulator.watch.trace import Trace
from harness.isa.compile_only import Module

# Number of compute units of a device.
COMPUTE_UNITS = {"gfx942": 304, "gfx950": 256}


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


class EmulatedDriver(DriverBase, Device):  # type: ignore[misc]
    """The emulated GPU as Triton sees it. One per process; launches run on the calling thread, one at a time.

    ``watch`` is the watched mode, None for ``fast``. ``rewrite(kernel name, listing) -> listing`` may change the
    machine code before it is decoded, for mutation tests.
    """

    def __init__(self, arch: str, watch: Watch | None = None) -> None:
        self.arch = arch
        self.watch = watch
        self.rewrite: Callable[[str, str], str] | None = None
        self.defer: Callable[[Launch], None] | None = None
        self.rank: int | None = None
        # Seconds after which a launch that has not ended raises ``TimeLimit``; None: no limit.
        self.time_limit: float | None = None
        # Threads on which mode ``fast`` runs work-groups of a large launch. Results do not depend on their number.
        self.cores = _free_cores()
        # Called whenever every wavefront of the running launches has had its turn, as while all wait for other ranks.
        self.polled: Callable[[], None] | None = None
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

    @contextmanager
    def confined(self, memory: torch.Tensor, tensors: Sequence[torch.Tensor]) -> Iterator[None]:
        """Let the kernels of the body access nothing of ``memory`` but ``tensors``, which are disjoint parts of it.

        The same holds for the other ranks' heaps: see ``carve``. All bytes between the first and the last element of a
        tensor are accessible, and the whole dword that contains the last one. ``ValueError`` if ``memory`` is not
        registered, or has carved parts.
        """
        self.update_memory()
        parts = [(tensor.data_ptr(), _stop_of(tensor)) for tensor in tensors if tensor.numel()]
        with self.allocations.confined(memory.data_ptr(), memory.nbytes, parts):
            yield

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
        native = None
        if not closed and len(streams) == len(streams[0]) == 1:
            native = self._native_scheduler(streams[0][0])
        if native is not None:
            _running = native
            _running.polled = self.polled
            try:
                _running.run()
            finally:
                _running = None
                standstill.moves()
            return
        closed = closed or (self.watch is not None and self.watch.closed)
        copies = self.watch is not None and self.watch.copies_memory
        isolated = copies and not closed and self.polled is None and are_large_and_isolated(streams)
        launches = [launch for stream in streams for launch in stream]
        for launch in launches:
            if isinstance(launch.program.heat, single.Heat):
                launch.program.heat.expect(launch)
        _running = scheduler_of(streams, self.watch, closed, self.time_limit, isolated)
        _running.polled = self.polled
        # The interpreter runs on this thread, whose clock costs less to read than that of the process.
        start = time.thread_time()
        try:
            _running.run()
        finally:
            _running = None
            standstill.moves()
            elapsed = time.thread_time() - start
            for launch in launches:
                if isinstance(launch.program.heat, Heat):
                    launch.program.heat.spent += elapsed
        for launch in launches:
            if isinstance(launch.program.heat, single.Heat):
                launch.program.heat.ran(launch, elapsed / len(launches))

    def _native_scheduler(self, launch: Launch) -> TranslatedScheduler | None:
        """Return the scheduler of a launch that runs by itself in native code, None if it does not."""
        watch, limit = self.watch, self.time_limit
        checks = isinstance(watch, Check) and isinstance(launch.program.heat, checked.CheckedHeat) and not watch.closed
        traces = isinstance(watch, Trace) and isinstance(launch.program.heat, traced.TracedHeat)
        translation = translation_of(launch) if watch is None or checks or traces else None
        if translation is None:
            return None
        if isinstance(watch, Trace):
            return traced.TracedScheduler.under(watch, launch, translation, limit)
        if isinstance(watch, Check):
            return checked.CheckedScheduler.under(watch, launch, translation, limit)
        return TranslatedScheduler.of(launch, translation, limit, self.cores)

    def code(self, launcher: Launcher) -> str:
        """Return the listing of the launcher's kernel that this driver executes: rewritten, if ``rewrite`` is set."""
        return launcher.listing if self.rewrite is None else self.rewrite(launcher.parsed.name, launcher.listing)

    def program(self, launcher: Launcher, text: str) -> Program:
        """Return the launcher's kernel with the code ``text``, instrumented by the watched mode."""
        if self.watch is None and text is launcher.listing:
            return launcher.program
        key = self.watch, text
        if key not in self._programs:
            listing, plain = launcher.parsed, lambda: launcher.program
            if self.rewrite is not None:
                listing = parse(text)
                plain = partial(decode, listing)
                limits.check_arch(listing, self.arch)
                limits.check_sizes(listing, launcher.num_warps, launcher.lds_bytes)
            if self.watch is not None and self.watch.interleaves:
                self._programs[key] = single.decode(listing, self.watch, plain)
            elif isinstance(self.watch, Check | Trace):
                make = checked.decode if isinstance(self.watch, Check) else traced.decode
                self._programs[key] = make(listing, self.watch, plain)  # type: ignore[arg-type]
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


def _stop_of(tensor: torch.Tensor) -> int:
    """Return the address after the last element of a tensor that is not empty."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr() + (last + 1) * tensor.itemsize


def _benchmark(kernel_call: Callable[[], Any], quantiles: Sequence[float] | None = None, **_: Any) -> Any:
    """Time one call in milliseconds, for Triton's autotuner: emulated time ranks nothing, so one run is enough."""
    start = time.perf_counter()
    kernel_call()
    elapsed = (time.perf_counter() - start) * 1e3
    return [elapsed] * len(quantiles) if quantiles else elapsed
