"""The launcher of a compiled kernel: Triton calls it with the grid and the arguments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from triton.runtime import driver as triton_driver
from triton.runtime.cache import get_cache_manager
from triton.runtime.errors import OutOfResources

from harness.emulator.driver import pointers
from harness.emulator.driver.arguments import Arguments, Placed
from harness.emulator.driver.reach import Reach
from harness.emulator.driver.schedule import RESIDENT_WAVES
from harness.emulator.execution.allocations import Allocations
from harness.emulator.execution.hostcall import Hostcall
from harness.emulator.execution.launch import Launch
from harness.emulator.execution.records import Records
from harness.emulator.execution.tally import Facts
from harness.emulator.listing import limits
from harness.emulator.listing.limits import LDS_BYTES, MAX_THREADS, WAVEFRONT, check_grid
from harness.emulator.listing.parser import parse
from harness.emulator.native import memory as native
from harness.emulator.program.decode import Program, decode
from harness.errors import HarnessError

Hook = Callable[[Any], None]
_MOST_KEPT = 64
"""Combinations of arguments of a kernel whose memory is known from earlier launches."""


class Device(ABC):
    """The part of a driver that a launcher uses."""

    arch: str
    # Receives launches instead of running them at once; set by ``concurrent_ranks``.
    defer: Callable[[Launch], None] | None
    rank: int | None
    # Receives the output of device_print, by default ``sys.stdout``; ``concurrent_ranks`` collects it by rank.
    write: Callable[[str], object] | None
    allocations: Allocations
    records: Records

    @abstractmethod
    def update_memory(self) -> None: ...

    @abstractmethod
    def enqueue(self, execute: Callable[[], None]) -> None: ...

    @abstractmethod
    def check_tensor(self, tensor: torch.Tensor, name: str) -> None: ...

    @abstractmethod
    def block_at(self, address: int) -> tuple[int, int] | None: ...

    @abstractmethod
    def code(self, launcher: Launcher) -> str: ...

    @abstractmethod
    def program(self, launcher: Launcher, text: str) -> Program: ...

    @abstractmethod
    def run(self, streams: Sequence[Sequence[Launch]], closed: bool = False) -> None: ...


class Launcher:
    """Places a kernel's arguments and runs it; Triton creates one per compiled kernel."""

    def __init__(self, src: Any, metadata: Any) -> None:
        native.prepare()
        self.hash: str = metadata.hash
        self.num_warps: int = metadata.num_warps
        self.lds_bytes: int = metadata.shared
        self.listing = _listing(src, metadata)
        self.parsed = listing = parse(self.listing)
        active = triton_driver.active
        limits.check_arch(listing, active.arch if isinstance(active, Device) else None)
        # Use Triton's own messages for these two cases: its users know them.
        if self.lds_bytes > LDS_BYTES[listing.arch]:
            raise OutOfResources(self.lds_bytes, LDS_BYTES[listing.arch], "shared memory")
        if self.num_warps * WAVEFRONT > MAX_THREADS:
            raise OutOfResources(self.num_warps * WAVEFRONT, MAX_THREADS, "threads")
        limits.check_sizes(listing, self.num_warps, self.lds_bytes)
        scratch = [
            (getattr(metadata, f"{kind}_scratch_size", 0), getattr(metadata, f"{kind}_scratch_align", 1))
            for kind in ("global", "profile")
        ]
        self.arguments = Arguments(src, listing.metadata, scratch)
        self._reaches: dict[tuple[object, ...], Reach] = {}
        # The last one: it need not be checked again.
        self._grid: tuple[int, int, int] | None = None

    @cached_property
    def program(self) -> Program:
        """The kernel as no watched mode changes it. In a process that launches it in such modes only, none needs it."""
        return decode(self.parsed)

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
        if not isinstance(active, Device):
            raise HarnessError(
                f"a kernel compiled for the emulated device was launched while {type(active).__name__} is active"
            )
        if enter_hook is not None:
            # Call the hook before placing the arguments: it may launch this very kernel.
            enter_hook(launch_metadata)
        grid = grid_x, grid_y, grid_z
        if grid != self._grid:
            check_grid(grid, self.num_warps * WAVEFRONT)
            self._grid = grid
        # As on a GPU, the hooks also run for a launch without work-groups.
        if grid_x * grid_y * grid_z:
            active.enqueue(partial(self._launch, active, grid, arguments))
        if exit_hook is not None:
            exit_hook(launch_metadata)

    def _launch(self, device: Device, grid: tuple[int, int, int], arguments: Sequence[Any]) -> None:
        device.update_memory()
        groups = grid[0] * grid[1] * grid[2]
        placed = self.arguments.place(arguments, device.check_tensor, groups)
        hostcall = None
        if self.arguments.calls_host:
            hostcall = Hostcall(min(groups * self.num_warps, RESIDENT_WAVES), device.write)
            placed.memory.append((hostcall.address, hostcall.memory.nbytes, "the hostcall buffer"))
        self.arguments.place_hidden(grid, self.num_warps, self.lds_bytes, hostcall)
        reach, unowned = self._reach(device, arguments, placed)
        code = device.code(self)
        program = device.program(self, code)
        # A deferred launch needs its own copy of the arguments.
        kernarg = self.arguments.block if device.defer is None else self.arguments.block.copy()
        usual = device.defer is None and program is vars(self).get("program")
        launch = Launch(
            program, grid, self.num_warps, self.lds_bytes, kernarg, device.allocations, placed.memory, device.rank,
            reach.table if usual else None,
        )  # fmt: skip
        if usual:
            reach.table = launch.table
        if hostcall is not None:
            launch.hostcall = hostcall
        if unowned:
            launch.unowned = unowned
        launch.tables, launch.peers = reach.positions()
        if device.defer is not None:
            launch.keep_alive = placed.keep_alive, arguments
            launch.record_it = lambda: device.records.add(launch.facts(self.hash, code), launch.counts())
            device.defer(launch)
            return
        try:
            device.run([[launch]])
        finally:
            device.records.add(self._facts(launch, code, reach if usual else None), launch.counts())

    def _facts(self, launch: Launch, code: str, reach: Reach | None) -> Facts:
        """Return the facts for a launch's record. ``reach``: that of a launch that no watched mode adds facts to."""
        facts = None if reach is None else reach.facts
        if (
            facts is None
            or facts.grid != launch.grid
            or facts.tables is not launch.tables
            or facts.peers is not launch.peers
        ):
            facts = launch.facts(self.hash, code)
            if reach is not None:
                reach.facts = facts
        return facts

    def _reach(self, device: Device, arguments: Sequence[Any], placed: Placed) -> tuple[Reach, dict[int, str]]:
        """Return the memory of a launch, and the addresses that it was given and that belong to no tensor.

        Adds the tensors whose addresses the kernel gets as integers to ``placed``.
        """
        reach = self._known(device, placed)
        if reach.survey():
            return reach, {}

        def known(address: int) -> bool:
            if any(start <= address < start + size for start, size, _ in placed.memory):
                return True
            if device.allocations.contains(address):
                return True
            block = device.block_at(address)
            if block is not None:
                placed.memory.append((*block, "a tensor passed by its address"))
            return block is not None

        before = len(placed.memory)
        storages, unowned = pointers.find(*self.arguments.given(arguments), known)
        placed.memory.extend((s.data_ptr(), s.nbytes(), "a tensor passed by its address") for s in storages)
        placed.keep_alive.extend(storages)
        if len(placed.memory) > before:
            reach = self._known(device, placed)
            reach.survey()
        return reach, unowned

    def _known(self, device: Device, placed: Placed) -> Reach:
        """Return the memory of an earlier launch with the same storages, if nothing was registered since."""
        key = (device.rank, *placed.memory, *placed.tensors)
        reach = self._reaches.get(key)
        if reach is None or not reach.holds(device.allocations):
            if len(self._reaches) >= _MOST_KEPT:
                self._reaches.clear()
            reach = Reach(self.arguments, placed, device.allocations, device.rank)
            self._reaches[key] = reach
        return reach


def _listing(src: Any, metadata: Any) -> str:
    """Return the amdgcn text that lies next to the binary in Triton's cache."""
    file = get_cache_manager(metadata.hash).get_file(f"{src.name[:150]}.amdgcn")
    if file is None:
        raise HarnessError(
            f"Triton's cache holds no amdgcn listing of kernel {metadata.name}: "
            "unset TRITON_STORE_BINARY_ONLY and clear the cache"
        )
    return Path(file).read_text()
