"""The memory in which translated programs run: records of wavefronts, data shares, counters, and state at entry."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.emulator.execution.launch import Chunk, Launch, private_bytes
from harness.emulator.execution.tally import number_of_counters, split_counters
from harness.emulator.native import execute, record
from harness.emulator.program.compiled.translation import Translation
from harness.emulator.wavefront import entry
from harness.emulator.wavefront.state import LANES, SGPRS, Wavefronts

_LINE = 64


class SlotChunk(Chunk):
    """The chunk of one wavefront in a slot, whose private segments are in its record."""

    def __init__(self, launch: Launch, group: int, lds: np.ndarray, wave: int, scratch: np.ndarray) -> None:
        super().__init__(launch, group, group, 1, lds)
        self._private = wave, scratch, private_bytes(launch.program)

    @property
    def private(self) -> tuple[int, np.ndarray, int]:
        return self._private


class Wave:
    """A wavefront in a slot: its record as the arrays of the interpreter."""

    def __init__(self, chunk: Chunk, memory: np.ndarray, pairs: int) -> None:
        self.header = memory[: record.VECTORS].view(np.int64)
        s = memory[: 4 * SGPRS].view(np.uint32).reshape(1, SGPRS)
        scc = memory[record.SCC : record.SCC + 1].view(np.bool_)
        vectors = memory[record.VECTORS : record.VECTORS + pairs * record.PAIR_BYTES]
        v = vectors.view(np.uint32).reshape(pairs, 1, LANES, 2)
        self.wavefronts = Wavefronts(chunk, np.array([self.number]), v, s, scc)

    @property
    def number(self) -> int:
        return int(self.header[record.NUMBER >> 3])

    @property
    def state(self) -> int:
        return int(self.header[record.STATE >> 3])

    @property
    def position(self) -> int:
        return int(self.header[record.POSITION >> 3])

    def go_on(self, position: int) -> None:
        self.header[record.POSITION >> 3] = position
        self.header[record.STATE >> 3] = record.RUNNING


@dataclass
class Slot:
    """Memory of a work-group: records uint8[wavefronts, bytes], data share uint8[bytes].

    ``group`` is the work-group for which ``waves`` were made, as the scheduler of the launch sees wavefronts.
    """

    records: np.ndarray
    share: np.ndarray
    addresses: tuple[int, int]
    group: int = -1
    waves: list[Any] = field(default_factory=list)


class Arena:
    """Memory for launches of a translated program, all with the same sizes of work-groups; used by one at a time.

    ``control`` is what native code gets, see ``native.execute``. ``counts`` are the launch's counters, see
    ``tally.split_counters``; ``state`` that of native code. ``scalars`` are registers of the record at entry.
    """

    def __init__(self, launch: Launch, translation: Translation, extra: tuple[int, int] = (0, 0)) -> None:
        """``extra``: bytes after each record and after each data share, which are not set up."""
        program = launch.program
        self.translation = translation
        self.sizes = launch.waves_per_group, launch.lds_bytes
        self.pairs = (program.vgprs + 1) // 2 + 1
        self.private = record.private_offset(self.pairs)
        private = LANES * private_bytes(program)
        self.size = self.private + private if private else record.VECTORS + self.pairs * record.PAIR_BYTES
        self.stride = -(-(self.private + private + extra[0]) // _LINE) * _LINE
        self._share_bytes = launch.lds_bytes + extra[1]
        self._keeps = int(launch.waves_per_group * self.stride + self._share_bytes <= _MOST_KEPT)
        self.slots: list[Slot] = []
        self.tables = np.zeros((3, 0), np.int64)
        self._block = np.zeros(number_of_counters(program) + execute.STATE_FIELDS, np.int64)
        self.counts, self.state = np.split(self._block, [number_of_counters(program)])
        waves, lanes, executions, access_lanes = split_counters(program, self.counts)
        self.context = np.zeros(record.CONTEXT_FIELDS, np.int64)
        self.context[record.EXECUTIONS : record.CHECKED] = (
            executions.ctypes.data, access_lanes.ctypes.data, launch.lds_bytes, private_bytes(program),
            waves.ctypes.data, lanes.ctypes.data,
        )  # fmt: skip
        self._template = np.zeros(record.SET_UP, np.uint8)
        self._template.view(np.int64)[record.CONTEXT >> 3] = self.context.ctypes.data
        self.scalars = self._template[: 4 * SGPRS].view(np.uint32)
        self._setup = np.zeros(execute.SETUP_FIELDS, np.int64)
        self.control = np.zeros(execute.CONTROL_FIELDS, np.int64)
        self.control[execute.STRIDE :] = (
            self.stride, launch.waves_per_group, translation.address, waves.ctypes.data, lanes.ctypes.data,
            len(waves), self._template.ctypes.data, self.size, self.private, self._setup.ctypes.data,
            launch.lds_bytes, self.state.ctypes.data, 0, 0,
        )  # fmt: skip
        self.address = int(self.control.ctypes.data)
        self._cycles: np.ndarray | None = None
        self._launch: Launch | None = None

    def begin(self, launch: Launch, groups: range) -> None:
        """Set everything up for work-groups of a launch."""
        self._block.fill(0)
        self.state[execute.NEXT], self.state[execute.TOTAL] = groups.start, groups.stop
        self.state[execute.SLOTS] = len(self.slots)
        for slot in self.slots:
            slot.group, slot.waves = -1, []
        last = self._launch
        if last is None or launch.kernarg is not last.kernarg or launch.packet is not None:
            self.scalars[:], user = launch.initial_scalars()
            self._setup[2:] = entry.system_registers({"user_sgpr_count": user, **launch.program.listing.directives})
            self._preload = entry.preloaded(launch.program.listing.directives, launch.kernarg.view(np.uint32))
            self._preloaded = self.scalars[user - len(self._preload) : user]
        else:
            self._preloaded[:] = self._preload
        if last is None or launch.grid != last.grid:
            self._setup[:2] = launch.grid[:2]
        if last is None or launch.table is not last.table:
            self.context[: record.EXECUTIONS] = (*launch.table.addresses, len(launch.table.allocations))
        if self.translation.cycles is not self._cycles:
            self._cycles = cycles = self.translation.cycles
            self.control[execute.CYCLES :] = cycles.ctypes.data, len(cycles)
        self._launch = launch

    def grow(self, limit: int) -> bool:
        """Add slots for work-groups; return False if there are ``limit`` of them."""
        more = min(max(1, len(self.slots)), limit - len(self.slots))
        for _ in range(more):
            self.slots.append(_acquire(self.sizes[0], self.stride, self._share_bytes))
        tables = np.full((3, len(self.slots)), -1, np.int64)
        for number, slot in enumerate(self.slots):
            tables[:2, number] = slot.addresses
        tables[2, : self.tables.shape[1]] = self.tables[2]
        self._use(tables)
        return more > 0

    def _use(self, tables: np.ndarray) -> None:
        self.tables = tables
        self.control[: execute.STRIDE] = tables.ctypes.data + tables.strides[0] * np.arange(3)
        self.state[execute.SLOTS] = tables.shape[1]

    def shrink(self) -> None:
        """Leave the slots to other programs, except one that is small: the next launch finds it ready."""
        keeps = self._keeps
        if len(self.slots) > keeps:
            for slot in self.slots[keeps:]:
                _release(slot)
            del self.slots[keeps:]
            self._use(self.tables[:, :keeps].copy())


# Slots that no launch uses, by size: fresh memory costs page faults, which take longer than many kernels.
_spare: dict[tuple[int, int, int], list[Slot]] = {}
_MOST_SPARE, _MOST_SIZES = 16, 64
# Bytes of the slot that stays with its program.
_MOST_KEPT = 128 << 10


def _acquire(waves: int, stride: int, share_bytes: int) -> Slot:
    size = waves, stride, share_bytes
    with contextlib.suppress(KeyError, IndexError):
        slot = _spare[size].pop()
        slot.group = -1
        return slot
    memory = np.empty(waves * stride + share_bytes + 2 * _LINE, np.uint8)
    start = memory.ctypes.data
    first = -start % _LINE
    end = first + waves * stride
    addresses = start + first, start + end
    return Slot(memory[first:end].reshape(waves, stride), memory[end : end + share_bytes + 8], addresses)


def _release(slot: Slot) -> None:
    slot.waves = []
    waves, stride = slot.records.shape
    if len(_spare) > _MOST_SIZES:
        _spare.clear()
    spare = _spare.setdefault((waves, stride, len(slot.share) - 8), [])
    if len(spare) < _MOST_SPARE:
        spare.append(slot)
