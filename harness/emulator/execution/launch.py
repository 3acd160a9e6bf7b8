"""One launch of a kernel: its grid, arguments, allocations and counters."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import NoReturn

import numpy as np

from harness.emulator.execution.allocations import Allocations, Table
from harness.emulator.execution.counters import LaunchRecord
from harness.emulator.execution.hostcall import Hostcall
from harness.emulator.execution.tally import Facts, number_of_counters, split_counters
from harness.emulator.execution.timing import StepClock
from harness.emulator.faults import DeviceFault, MemoryFault
from harness.emulator.listing.instructions import Instruction
from harness.emulator.operations.access import ScratchAccess
from harness.emulator.operations.addressing import lane_address
from harness.emulator.program import modes
from harness.emulator.program.decode import Program, initial_registers
from harness.emulator.wavefront import entry
from harness.emulator.wavefront.state import EXEC, LANES, MODE, SGPRS, Wavefronts

QUEUE = entry.queue()


class Chunk:
    """Work-groups whose wavefronts run together, with their local data share."""

    def __init__(
        self, launch: Launch, index: int, first_group: int, groups: int, lds: np.ndarray | None = None
    ) -> None:
        """``lds``: the data share of work-groups whose wavefronts exist already; None: set both up."""
        self.launch = launch
        self.index = index
        self.groups = (launch.waves_per_group, first_group)
        self.table = launch.table.arrays
        self.lds_bytes = launch.lds_bytes
        self.lds = np.zeros(max(1, groups * launch.lds_bytes), np.uint8) if lds is None else lds
        self._scratch: np.ndarray | None = None
        self.live = groups * launch.waves_per_group
        self.live_in_group = np.full(groups, launch.waves_per_group)
        self.at_barrier: list[Wavefronts] = []
        if lds is None:
            self.wavefronts = launch.initial_wavefronts(self, first_group, groups)

    def group_of(self, wave: np.ndarray) -> np.ndarray:
        """Return the index of each wavefront's work-group within the chunk."""
        per_group, first = self.groups
        return wave // per_group - first

    @property
    def private(self) -> tuple[int, np.ndarray, int]:
        """The private segments of the chunk's lanes, as ``native_scratch`` takes them; allocated on first use."""
        lane_bytes = private_bytes(self.launch.program)
        if self._scratch is None:
            self._scratch = np.zeros(max(1, len(self.live_in_group) * self.groups[0] * LANES * lane_bytes), np.uint8)
        return self.groups[0] * self.groups[1], self._scratch, lane_bytes

    def count(self, access: int, wf: Wavefronts) -> np.ndarray:
        """Count an execution of an access site; returns the array that collects its local and peer lanes."""
        self.launch.executions[access] += len(wf.wave)
        lanes: np.ndarray = self.launch.access_lanes[access]
        return lanes

    def fault(
        self,
        wf: Wavefronts,
        instruction: Instruction,
        lane: int,
        address: tuple[int, ...],
        size: int,
        aligned: bool = False,
    ) -> None:
        """Raise the memory fault of flat lane ``lane`` (wavefront * 64 + lane)."""
        self.memory_fault(wf, instruction, lane, lane_address(wf, address, lane), size, aligned)

    def memory_fault(
        self, wf: Wavefronts, instruction: Instruction, lane: int, address: int, size: int, aligned: bool = False
    ) -> None:
        """Raise the fault of an access to ``address``."""
        near = self.launch.table.nearest(address)
        if aligned and address % size:
            message = f"misaligned {size}-byte atomic at address {address:#x} ({near})"
        else:
            message = (
                f"{size}-byte access outside every known allocation: address {address:#x} "
                f"({near}{self.launch.unowned_text()})"
            )
        self.raise_fault(message, wf, instruction, lane, address=address, nearest=near)

    def lds_fault(
        self,
        wf: Wavefronts,
        instruction: Instruction,
        lane: int,
        areg: int,
        offset: int,
        size: int,
        aligned: bool = False,
    ) -> None:
        """Raise the fault of an access to the local data share at register ``areg`` + ``offset``."""
        address = int(wf.v[areg >> 1].reshape(-1, 2)[lane, areg & 1]) + offset
        self.lds_fault_at(wf, instruction, lane, address, size, aligned)

    def lds_fault_at(
        self, wf: Wavefronts, instruction: Instruction, lane: int, address: int, size: int, aligned: bool = False
    ) -> None:
        """Raise the fault of an LDS access that is misaligned or beyond the work-group's part."""
        message = f"{size}-byte LDS access at {address:#x}, outside the {self.lds_bytes} bytes of the work-group"
        if aligned and address % size:
            message = f"misaligned {size}-byte LDS atomic at {address:#x}"
        self.raise_fault(message, wf, instruction, lane, address=address)

    def private_fault(self, wf: Wavefronts, access: ScratchAccess, lane: int) -> None:
        """Raise the fault of a scratch access beyond the lane's part of the private segment."""
        address, size = int(access.addresses(wf).reshape(-1)[lane]), private_bytes(self.launch.program)
        message = f"{access.size}-byte access to scratch at {address:#x}, outside the {size} bytes of the lane"
        self.raise_fault(message, wf, access.instruction, lane, address=address)

    def raise_fault(
        self,
        message: str,
        wf: Wavefronts,
        instruction: Instruction,
        lane: int,
        kind: type[DeviceFault] = MemoryFault,
        **details: object,
    ) -> NoReturn:
        """Raise a fault of flat lane ``lane`` (wavefront * 64 + lane): ``message`` followed by the place.

        ``details`` are added to the report.
        """
        wave, lane = int(wf.wave[lane // LANES]), lane % LANES
        number, inner = divmod(wave, self.launch.waves_per_group)
        group, kernel = self.launch.group_id(number), self.launch.program.name
        raise kind(
            f"{message} by kernel {kernel}, work-group {group}, wavefront {inner}, lane {lane}, "
            f"instruction {instruction.text!r}, at {instruction.source}",
            kernel=kernel,
            group=list(group),
            wavefront=inner,
            lane=lane,
            instruction=instruction.text,
            listing_line=instruction.line,
            source=[str(frame) for frame in instruction.frames],
            **details,
        )


class Launch:
    """State of one launch. The scheduler starts its chunks one after the other.

    The counters ``waves``, ``lanes`` (of segments), ``executions`` and ``access_lanes`` (of access sites) are made when
    they are needed: native code counts in one array, see ``add_counts``.
    """

    # The attributes that few launches change.
    unowned: Mapping[int, str] = {}
    """Addresses of memory of no known owner that the kernel was given, with the name of the argument."""
    hostcall: Hostcall | None = None
    """The buffer through which a kernel that prints or asserts calls the host."""
    tables: tuple[int, ...] | None = None
    peers: tuple[int, ...] = ()
    """Positions of arguments, see ``LaunchRecord``."""
    clock: StepClock | None = None
    """None: the host's monotonic clock."""
    keep_alive: object = None
    """For a deferred launch: the objects that its arguments point to."""
    lds_conflicts = 0
    """Counted by watched modes: cycles lost to bank conflicts; also ``stalls`` (waits with something outstanding by
    kind and source) and ``sources`` (instructions by source)."""
    packet: np.ndarray | None = None
    _counts: np.ndarray | None = None

    def __init__(
        self,
        program: Program,
        grid: tuple[int, int, int],
        waves_per_group: int,
        lds_bytes: int,
        kernarg: np.ndarray,
        allocations: Allocations,
        tensors: Sequence[tuple[int, int, str]] = (),
        rank: int | None = None,
        table: Table | None = None,
    ) -> None:
        """``tensors`` are (address, bytes, label) of memory that the arguments point to. ``table``: that of an earlier
        launch with the same allocations, program, ``kernarg``, ``tensors`` and rank."""
        self.program = program
        self.rank = rank or 0
        self.grid = grid
        self.groups = self.unstarted = grid[0] * grid[1] * grid[2]
        self.waves_per_group = waves_per_group
        self.lds_bytes = lds_bytes
        self.kernarg = kernarg
        self.started = 0
        # Called after the last chunk has ended.
        self.then: Callable[[], None] = nothing
        # Records a deferred launch.
        self.record_it: Callable[[], None] = nothing
        # Allocate only what the kernel uses; per-launch buffers would defeat the cache of allocation tables.
        if program.listing.directives.get("user_sgpr_dispatch_ptr"):
            self.packet, table = entry.dispatch_packet(self.dispatch), None
        self.table: Table = allocations.table([*self._own(), *tensors], rank) if table is None else table

    def _own(self) -> list[tuple[int, int, str]]:
        """Return the memory that the kernel can access besides what its arguments point to."""
        own = [(self.kernarg_address, self.kernarg.nbytes, "kernel arguments")]
        if self.packet is not None:
            own.append((self.packet.ctypes.data, self.packet.nbytes, "the dispatch packet"))
        if self.program.listing.directives.get("user_sgpr_queue_ptr"):
            own.append((QUEUE.ctypes.data, QUEUE.nbytes, "the queue"))
        if len(constants := self.program.listing.constants):
            own.append((constants.ctypes.data, constants.nbytes, "the kernel's constants"))
        return own

    @cached_property
    def kernarg_address(self) -> int:
        return int(self.kernarg.ctypes.data)

    @cached_property
    def dispatch(self) -> entry.Dispatch:
        return entry.Dispatch(
            self.grid, self.waves_per_group, self.lds_bytes, private_bytes(self.program), self.kernarg_address
        )

    @cached_property
    def chunks(self) -> dict[int, Chunk]:
        """Chunks that have started and not ended, by index."""
        return {}

    @cached_property
    def stalls(self) -> dict[tuple[str, str], int]:
        return {}

    @cached_property
    def sources(self) -> Mapping[str, int]:
        return {}

    # -- counters ----------------------------------------------------------------------------------------------------

    @cached_property
    def waves(self) -> list[int]:
        """Wavefronts that executed each segment."""
        counts: list[int] = self._counted(0).tolist()
        return counts

    @cached_property
    def lanes(self) -> list[int]:
        """Active lanes of each segment."""
        counts: list[int] = self._counted(1).tolist()
        return counts

    @cached_property
    def executions(self) -> list[int]:
        """Wavefronts that executed each access site."""
        counts: list[int] = self._counted(2).tolist()
        return counts

    @cached_property
    def access_lanes(self) -> np.ndarray:
        """int64[sites, 2]: lanes that accessed local memory, and memory of peers."""
        counts: np.ndarray = self._counted(3).copy()
        return counts

    def _counted(self, part: int) -> np.ndarray:
        counts = np.zeros(number_of_counters(self.program), np.int64) if self._counts is None else self._counts
        return split_counters(self.program, counts)[part]

    def _is_counted_here(self) -> bool:
        """Return whether Python has read a counter, or counted."""
        made = self.__dict__
        return "waves" in made or "lanes" in made or "executions" in made or "access_lanes" in made

    def add_counts(self, counts: np.ndarray) -> None:
        """Add counters of native code, int64[number_of_counters], which become the launch's."""
        if not self._is_counted_here():
            self._counts = counts if self._counts is None else self._counts + counts
            return
        waves, lanes, executions, access_lanes = split_counters(self.program, counts)
        self.waves = [a + b for a, b in zip(self.waves, waves.tolist(), strict=True)]
        self.lanes = [a + b for a, b in zip(self.lanes, lanes.tolist(), strict=True)]
        self.executions = [a + b for a, b in zip(self.executions, executions.tolist(), strict=True)]
        self.access_lanes += access_lanes

    # -- wavefronts --------------------------------------------------------------------------------------------------

    def start(self, first_group: int, groups: int) -> Chunk:
        """Create the wavefronts of the next work-groups."""
        chunk = self.chunks[self.started] = Chunk(self, self.started, first_group, groups)
        self.started += 1
        self.unstarted -= groups
        return chunk

    def finish(self, chunk: Chunk) -> None:
        """Forget a chunk whose wavefronts have all ended, with its memory; after the last chunk, call ``then``."""
        del chunk.wavefronts
        del self.chunks[chunk.index]
        if not self.chunks and not self.unstarted:
            self.then()

    def unowned_text(self) -> str:
        """Describe the address arguments that are in no allocation, and state how to register their memory."""
        if not self.unowned:
            return ""
        given = ", ".join(f"{name} is {address:#x}" for address, name in list(self.unowned.items())[:3])
        return (
            f"; {given}, which is in no live CPU tensor: "
            "let kernels access it with driver.register_memory(address, size, label)"
        )

    def nanoseconds(self) -> int:
        """Return the device's time."""
        return time.monotonic_ns() if self.clock is None else self.clock.nanoseconds()

    def group_id(self, group: int) -> tuple[int, int, int]:
        """Convert a work-group number to (x, y, z)."""
        x, y, _ = self.grid
        return group % x, group // x % y, group // (x * y)

    def initial_wavefronts(self, chunk: Chunk, first_group: int, groups: int) -> Wavefronts:
        """Set up the registers as the hardware does at entry (LLVM AMDGPUUsage, "Initial Kernel Execution State")."""
        directives = self.program.listing.directives
        waves = groups * self.waves_per_group
        v, s = initial_registers(self.program, waves)
        wave = np.arange(first_group * self.waves_per_group, first_group * self.waves_per_group + waves)
        s[...], user = self.initial_scalars()
        entry.set_up(v, s, wave, {"user_sgpr_count": user, **directives}, self.dispatch)
        return Wavefronts(chunk, wave, v, s, np.zeros(waves, np.bool_))

    def initial_scalars(self) -> tuple[np.ndarray, int]:
        """Return the scalar registers that all wavefronts start with, uint32[128], and the number of the user's."""
        directives = self.program.listing.directives
        packet = 0 if self.packet is None else self.packet.ctypes.data
        user = entry.scalar_registers(
            directives, self.dispatch, self.kernarg.view(np.uint32), packet, QUEUE.ctypes.data
        )
        s = np.zeros(SGPRS, np.uint32)
        s[: len(user)] = user
        s[EXEC : EXEC + 2] = 0xFFFFFFFF
        s[MODE] = modes.initial(directives)
        return s, len(user)

    def counts(self) -> np.ndarray:
        """Return all counters in one array, see ``tally.split_counters``."""
        if self._counts is not None and not self._is_counted_here():
            return self._counts
        counts = np.concatenate([self.waves, self.lanes, self.executions, self.access_lanes.reshape(-1)])
        return counts.astype(np.int64)  # without segments and sites: float64

    def facts(self, kernel_hash: str, listing: str) -> Facts:
        """Return the rest of the launch's record."""
        return Facts(
            self.program, kernel_hash, listing, self.grid, self.waves_per_group, self.tables, self.peers,
            self.lds_conflicts, self.__dict__.get("stalls", {}), self.__dict__.get("sources", {}),
        )  # fmt: skip

    def record(self, kernel_hash: str, listing: str) -> LaunchRecord:
        """Return the launch's counters as data."""
        return self.facts(kernel_hash, listing).record(self.counts())


def nothing() -> None:
    """Do nothing: the value of ``Launch.then`` and ``Launch.record_it`` while nothing is due."""


def private_bytes(program: Program) -> int:
    """Return the bytes of a lane's private segment."""
    size: int = program.listing.directives.get("private_segment_fixed_size", 0)
    return size
