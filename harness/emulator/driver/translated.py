"""Runs a launch whose program is translated to native code: see ``native.execute``.

The interpreter executes what native code leaves to it: an instruction of one wavefront, on the registers in its record.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from harness.emulator.driver.schedule import CHUNK_WAVES, RESIDENT_WAVES, Scheduler, failed
from harness.emulator.execution.launch import Chunk, Launch
from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.native import execute, record
from harness.emulator.operations.access import ATOMIC
from harness.emulator.operations.table import Native, Step
from harness.emulator.program.compiled import objects
from harness.emulator.program.compiled.translation import Translation, Translator
from harness.emulator.program.decode import Program
from harness.emulator.wavefront import entry
from harness.emulator.wavefront.state import LANES, SGPRS, Wavefronts

# Seconds, measured on one core of a 2.6 GHz EPYC; they need to be right within a factor of two or so.
INTERPRETING_STEP, INTERPRETING_WAVEFRONT, INTERPRETING_PRODUCT = 3e-6, 50e-9, 5e-6
COMPILING_FORM, COMPILING_OPERATION, LOADING_STEP = 25e-3, 2e-3, 20e-6
NATIVE_OPERATION, STOPPING, WORTH_A_THREAD = 20e-9, 20e-6, 2e-3
# Times that an instruction is executed, in a program with loops; only a guess.
_ITERATIONS = 8
_LINE = 64
_BUDGET = 500_000
"""Operations after which native code returns, so that signals and time limits are noticed."""


@dataclass
class Heat:
    """Seconds that a program has been interpreted, and its translation once that has become worth it."""

    spent: float = 0.0
    translator: Translator | None = None
    translation: Translation | None = None
    seconds: float = 0.0
    """Processor time that translating took."""
    running: float = 0.0
    """Seconds that the translation was executed without runs."""

    def force(self, native: bool) -> None:
        """Translate the program at its next launch, or interpret all its launches."""
        self.translation = self.translation if native else None
        self.spent = math.inf if native else -math.inf
        self.running = math.inf

    def find(self, launch: Launch) -> Translation | None:
        """Return the translation of the launch's program; None if interpreting it is expected to be faster.

        A program is translated when interpreting it has taken, or is about to take, as long as translating it.
        """
        program = launch.program
        steps = sum(len(segment.steps) for segment in program.segments)
        waves = launch.groups * launch.waves_per_group
        if self.translation is not None:
            self.ran(self.translation, 0.0)
        if self.translation is not None and math.isinf(self.spent):
            return self.translation
        if self.translation is not None:
            native = waves * (steps * NATIVE_OPERATION + self.translation.stops * STOPPING)
            vectorised = steps * (INTERPRETING_STEP * -(-waves // CHUNK_WAVES) + waves * INTERPRETING_WAVEFRONT)
            return self.translation if native < vectorised else None
        loops = any(0 <= block.target <= block.index for block in program.blocks)
        seconds = steps * (INTERPRETING_STEP + waves * INTERPRETING_WAVEFRONT)
        seconds += waves * INTERPRETING_PRODUCT * sum(_is_product(s) for each in program.segments for s in each.steps)
        self.spent += seconds * (_ITERATIONS if loops else 1)
        if self.spent < steps * LOADING_STEP or not objects.can_compile():
            return None
        start = time.process_time()
        if self.translator is None:
            self.translator = Translator(program)
        if self.spent >= self.translator.missing() * COMPILING_FORM:
            self.translation, self.translator = self.translator.finish(), None
            self.translation.use_runs(compiling=False)
        self.seconds += time.process_time() - start
        return self.find(launch) if self.translation is not None else None

    def ran(self, translation: Translation, seconds: float) -> None:
        """Note that a translation was executed; compile its runs once it has taken as long as that takes."""
        self.running += seconds
        if translation.has_runs or self.running < translation.runs.size * COMPILING_OPERATION:
            return
        start = time.process_time()
        translation.use_runs()
        self.seconds += time.process_time() - start


def _is_product(step: Step) -> bool:
    native: Native | None = getattr(step, "native", None)
    return native is not None and native.function.kind == "product"


def translation_of(launch: Launch) -> Translation | None:
    """Return the translation with which a launch should run; None: interpret it."""
    program: Program = launch.program
    if program.heat is None:
        program.heat = Heat()
    translation: Translation | None = program.heat.find(launch)
    return translation


class _Chunk(Chunk):
    """The chunk of one wavefront in a slot, whose private segments are in its record."""

    def __init__(self, launch: Launch, group: int, lds: np.ndarray, wave: int, scratch: np.ndarray) -> None:
        super().__init__(launch, group, group, 1, lds)
        self._private = wave, scratch, launch.dispatch.private_bytes

    @property
    def private(self) -> tuple[int, np.ndarray, int]:
        return self._private


class _Wave:
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
class _Slot:
    """Memory of a work-group: records uint8[wavefronts, bytes], data share uint8[bytes].

    ``group`` is the work-group for which ``waves`` were made.
    """

    records: np.ndarray
    share: np.ndarray
    addresses: tuple[int, int]
    group: int = -1
    waves: list[_Wave] = field(default_factory=list)


class TranslatedScheduler(Scheduler):
    """Runs one launch to its end on the calling thread. ``limit`` as in ``Scheduler``."""

    def __init__(
        self,
        launch: Launch,
        translation: Translation,
        limit: float | None = None,
        groups: range | None = None,
        cores: int = 1,
    ) -> None:
        """``groups``: the work-groups to run, by default all of them, then on up to ``cores`` threads."""
        super().__init__([], None, False, limit)
        execute.prepare()
        self.launch = launch
        self.launches = [launch]
        self.translation = translation
        self.pairs = (launch.program.vgprs + 1) // 2 + 1
        self.size = record.VECTORS + self.pairs * record.PAIR_BYTES
        self.private = record.private_offset(self.pairs)
        private_bytes = LANES * launch.dispatch.private_bytes
        self.size = self.private + private_bytes if private_bytes else self.size
        self.stride = -(-(self.private + private_bytes) // _LINE) * _LINE
        self.slots: list[_Slot] = []
        self.tables = np.zeros((3, 0), np.int64)
        self.work = _Work.of(launch, translation)
        self.state_ = self.work.state
        self.helpers: list[TranslatedScheduler] = []
        groups = groups or range(launch.groups)
        parts = min(cores, len(groups)) if cores > 1 and _independent(launch, translation) else 1
        bounds = [groups.start + len(groups) * i // parts for i in range(parts + 1)]
        self.groups = range(bounds[0], bounds[1])
        self.state_[[execute.NEXT, execute.TOTAL]] = bounds[:2]
        for first, end in pairwise(bounds[1:]):
            self.helpers.append(TranslatedScheduler(launch, translation, limit, range(first, end)))

    def run(self) -> None:
        """Execute every wavefront; raises the kernel's fault, of several that of the lowest work-groups."""
        if not self.helpers:
            self._run_own()
            return
        with ThreadPoolExecutor(len(self.helpers)) as pool:
            for scheduler in (self, *self.helpers):
                scheduler.patience.threads += len(self.helpers)
            futures = [pool.submit(helper._run_own) for helper in self.helpers]
            try:
                self._run_own()
            finally:
                if sys.exc_info()[0] is not None:
                    for helper in self.helpers:
                        helper.state_[execute.TOTAL] = 0  # no more work-groups
            for future in futures:
                future.result()

    def _run_own(self) -> None:
        launch, state, work = self.launch, self.state_, self.work
        common = (
            self.stride, launch.waves_per_group, self.translation.address, work.waves, work.lanes,
            work.addresses[0], self.size, self.private, work.setup, work.addresses[1],
            launch.lds_bytes, state, self.translation.cycles,
        )  # fmt: skip
        self._grow()
        before = time.thread_time()
        try:
            with np.errstate(all="ignore"):
                while True:
                    state[execute.BUDGET] = _BUDGET
                    why = execute.run(*self.tables, *common)
                    if state[execute.ENDED]:
                        state[execute.ENDED] = self.idle_rounds = 0
                        self.patience.restart()
                    if why == execute.FINISHED:
                        return
                    if why == execute.STOPPED:
                        with _interpreting:
                            self._interpret(int(state[execute.CURSOR]))
                    elif why == execute.GROW and self._grow():
                        continue
                    elif why == execute.PAUSE:
                        self.patience.exhausted()
                        before = self._ran(before)
                    else:
                        state[execute.CURSOR] = 0
                        self._yield()
        finally:
            with _interpreting:
                work.count(launch)
            self._ran(before)
            self.translation.work = work
            for slot in self.slots:
                _release(slot)

    def _ran(self, since: float) -> float:
        """Note the time that native code took; return the time now."""
        now = time.thread_time()
        if not self.translation.has_runs and isinstance(heat := self.launch.program.heat, Heat):
            with _interpreting:
                heat.ran(self.translation, now - since)
        return now

    # -- for reports -------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> list[Wavefronts]:
        return [wf for _, wf in self._wavefronts(record.RUNNING)]

    @ready.setter
    def ready(self, wavefronts: list[Wavefronts]) -> None:
        assert not wavefronts  # sanity check

    @property
    def pending(self) -> list[tuple[Launch, int, int]]:
        first = int(self.state_[execute.NEXT])
        return [(self.launch, first, 1)] if first < self.groups.stop else []

    @pending.setter
    def pending(self, launches: list[tuple[Launch, int, int]]) -> None:
        assert not launches  # sanity check

    def describe(self) -> str:
        chunks: dict[int, Chunk] = {}
        self.launch.unstarted = sum(max(0, s.groups.stop - int(s.state_[execute.NEXT])) for s in (self, *self.helpers))
        for chunk, wf in self._wavefronts(record.WAITING):
            chunks.setdefault(chunk.index, chunk).at_barrier.append(wf)
        self.launch.chunks = chunks
        try:
            return super().describe()
        finally:
            self.launch.chunks = {}
            for chunk in chunks.values():
                chunk.at_barrier = []

    def _wavefronts(self, state: int) -> Iterator[tuple[Chunk, Wavefronts]]:
        """Yield copies of the wavefronts in a state, those of a work-group at the same place vectorised."""
        for helper in self.helpers:
            yield from helper._wavefronts(state)
        for number, slot in enumerate(self.slots):
            if self.tables[2, number] < 0:
                continue
            parts: dict[int, list[Wavefronts]] = {}
            for wave in self._waves(number):
                if wave.state == state:
                    wf = wave.wavefronts
                    wf.block = self.translation.places[wave.position].block
                    wf.turn = int(wave.header[record.TURN >> 3])
                    parts.setdefault(wave.position, []).append(wf)
            for part in parts.values():
                yield slot.waves[0].wavefronts.chunk, Wavefronts.merge(part)

    # -- slots -------------------------------------------------------------------------------------------------------

    def _grow(self) -> bool:
        """Add slots for work-groups; return False if as many are resident as the device holds."""
        launch = self.launch
        limit = max(1, min(len(self.groups), RESIDENT_WAVES // launch.waves_per_group))
        more = min(max(1, len(self.slots)), limit - len(self.slots))
        for _ in range(more):
            self.slots.append(_acquire(launch.waves_per_group, self.stride, launch.lds_bytes))
        tables = np.full((3, len(self.slots)), -1, np.int64)
        for number, slot in enumerate(self.slots):
            tables[:2, number] = slot.addresses
        tables[2, : self.tables.shape[1]] = self.tables[2]
        self.tables = tables
        self.state_[execute.SLOTS] = len(self.slots)
        return more > 0

    def _waves(self, number: int) -> list[_Wave]:
        """Return the wavefronts of the work-group in a slot."""
        slot, group = self.slots[number], int(self.tables[2, number])
        if slot.group != group:
            slot.group = group
            share = slot.share[: max(1, self.launch.lds_bytes)]
            slot.waves = []
            for i, memory in enumerate(slot.records):
                wave = group * len(slot.records) + i
                chunk = _Chunk(self.launch, group, share, wave, memory[self.private :])
                slot.waves.append(_Wave(chunk, memory, self.pairs))
        return slot.waves

    # -- interpreting ------------------------------------------------------------------------------------------------

    def _interpret(self, number: int) -> None:
        """Execute the next instruction of the wavefronts that stopped."""
        for wave in self._waves(number):
            if wave.state == record.STOPPED:
                wave.go_on(self._execute(wave.wavefronts, wave.position))

    def _execute(self, wf: Wavefronts, position: int) -> int:
        """Execute one instruction of one wavefront; return the position of the next one."""
        places, program = self.translation.places, self.launch.program
        if position == len(places):
            wf.chunk.raise_fault("execution goes on after the end of the code", wf, program.listing.instructions[-1], 0)
        place = places[position]
        wf.block = place.block
        wf.refresh_exec()
        try:
            if place.step is not None:
                place.step(wf)
                return position + 1
            block = program.blocks[place.block]
            assert block.goes is not None  # sanity check
            return self.translation.entries[int(block.goes(wf)[0])]
        except UnimplementedInstruction:
            raise
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            raise failed(wf, place.step, error) from error


class _Work:
    """Arrays of a launch that native code reads and writes; the next launch of the program uses them again.

    All counters are one block: ``waves``, ``lanes`` int64[segments], ``executions`` int64[sites] and ``access_lanes``
    int64[sites, 2], and the ``state`` of ``execute.run``. ``template``: the record at entry.
    """

    def __init__(self, program: Program) -> None:
        segments, sites = len(program.segments), len(program.accesses)
        self.block = np.zeros(2 * segments + 3 * sites + execute.STATE_FIELDS, np.int64)
        ends = np.cumsum([segments, segments, sites, 2 * sites])
        self.waves, self.lanes, self.executions, flat, self.state = np.split(self.block, ends)
        self.access_lanes = flat.reshape(-1, 2)
        self.context = np.zeros(record.CONTEXT_FIELDS, np.int64)
        self.template = np.zeros(record.VECTORS, np.uint8)
        self.scalars = self.template[: 4 * SGPRS].view(np.uint32)
        self.setup = np.zeros(6, np.int64)
        self.counters = tuple(a.ctypes.data for a in (self.executions, self.access_lanes, self.waves, self.lanes))
        self.addresses = self.template.ctypes.data, self.context.ctypes.data

    @classmethod
    def of(cls, launch: Launch, translation: Translation) -> _Work:
        """Return the arrays for a launch: those of the last one, if no other launch uses them."""
        work, translation.work = translation.work or cls(launch.program), None
        work.block.fill(0)
        work.scalars[:], user = launch.initial_scalars()
        directives = {"user_sgpr_count": user, **launch.program.listing.directives}
        work.setup[:] = *launch.grid[:2], *entry.system_registers(directives)
        executions, access_lanes, waves, lanes = work.counters
        work.context[:] = (
            *launch.table.addresses, len(launch.table.allocations), executions, access_lanes, launch.lds_bytes,
            launch.dispatch.private_bytes, waves, lanes,
        )  # fmt: skip
        return work

    def count(self, launch: Launch) -> None:
        """Add the counters of native code to the launch's, which the interpreter may have counted to as well."""
        launch.waves = [a + b for a, b in zip(launch.waves, self.waves.tolist(), strict=True)]
        launch.lanes = [a + b for a, b in zip(launch.lanes, self.lanes.tolist(), strict=True)]
        launch.executions = [a + b for a, b in zip(launch.executions, self.executions.tolist(), strict=True)]
        launch.access_lanes += self.access_lanes


# Held while Python executes an instruction, or adds to counters, in one of several threads.
_interpreting = threading.Lock()


def _independent(launch: Launch, translation: Translation) -> bool:
    """Return whether work-groups may run on several threads, and are worth it.

    Their number must not change a result: no work-group may wait for another, and no atomic show their order.
    """
    program = launch.program
    if any(block.polls for block in program.blocks) or any(site.kind == ATOMIC for site in program.accesses):
        return False
    loops = any(0 <= block.target <= block.index for block in program.blocks)
    waves = launch.groups * launch.waves_per_group
    seconds = waves * len(translation.code) * NATIVE_OPERATION * (_ITERATIONS if loops else 1)
    return launch.hostcall is None and seconds > WORTH_A_THREAD


# Slots that no launch uses, by size: fresh memory costs page faults, which take longer than many kernels.
_spare: dict[tuple[int, int, int], list[_Slot]] = {}
_MOST_SPARE, _MOST_SIZES = 16, 64


def _acquire(waves: int, stride: int, share_bytes: int) -> _Slot:
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
    return _Slot(memory[first:end].reshape(waves, stride), memory[end : end + share_bytes + 8], addresses)


def _release(slot: _Slot) -> None:
    slot.waves = []
    waves, stride = slot.records.shape
    if len(_spare) > _MOST_SIZES:
        _spare.clear()
    spare = _spare.setdefault((waves, stride, len(slot.share) - 8), [])
    if len(spare) < _MOST_SPARE:
        spare.append(slot)
