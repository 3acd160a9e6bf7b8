"""Runs a launch whose program is translated to native code: see ``native.execute``.

The interpreter executes what native code leaves to it: an instruction of one wavefront, on the registers in its record.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from harness.emulator.driver.arena import Arena, SlotChunk, Wave
from harness.emulator.driver.positions import failed
from harness.emulator.driver.schedule import CHUNK_WAVES, RESIDENT_WAVES, Order, Scheduler
from harness.emulator.execution.launch import Chunk, Launch
from harness.emulator.execution.tally import split_counters
from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.native import execute, record
from harness.emulator.operations.access import ATOMIC
from harness.emulator.operations.table import Native, Step
from harness.emulator.program.compiled import objects
from harness.emulator.program.compiled.translation import Translation, Translator
from harness.emulator.program.decode import Program
from harness.emulator.wavefront.state import Wavefronts

# Seconds, measured on one core of a 2.6 GHz EPYC; they need to be right within a factor of two or so.
INTERPRETING_STEP, INTERPRETING_WAVEFRONT, INTERPRETING_PRODUCT = 3e-6, 50e-9, 5e-6
COMPILING_FORM, COMPILING_OPERATION, LOADING_STEP = 25e-3, 2e-3, 20e-6
NATIVE_OPERATION, STOPPING, WORTH_A_THREAD = 20e-9, 20e-6, 2e-3
ITERATIONS = 8
"""Times that an instruction is executed, in a program with loops; only a guess."""
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
    make: Callable[[Program], Translator] = Translator
    """Makes the translator."""

    def force(self, native: bool) -> None:
        """Translate the program at its next launch, or interpret all its launches."""
        self.translation = self.translation if native else None
        self.spent = math.inf if native else -math.inf
        self.running = math.inf

    def find(self, launch: Launch) -> Translation | None:
        """Return the translation of the launch's program; None if interpreting it is expected to be faster.

        A program is translated when interpreting it has taken, or is about to take, as long as translating it.
        """
        waves = launch.groups * launch.waves_per_group
        translation = self.translation
        if translation is not None:
            if not translation.has_runs:
                self.ran(translation, 0.0)
            steps = translation.steps
            native = waves * (steps * NATIVE_OPERATION + translation.stops * STOPPING)
            vectorised = steps * (INTERPRETING_STEP * -(-waves // CHUNK_WAVES) + waves * INTERPRETING_WAVEFRONT)
            return translation if native < vectorised or self.spent == math.inf else None
        program = launch.program
        steps = sum(len(segment.steps) for segment in program.segments)
        seconds = steps * (INTERPRETING_STEP + waves * INTERPRETING_WAVEFRONT)
        seconds += waves * INTERPRETING_PRODUCT * sum(_is_product(s) for each in program.segments for s in each.steps)
        self.spent += seconds * (ITERATIONS if program.loops else 1)
        if self.spent < steps * LOADING_STEP or not objects.can_compile():
            return None
        start = time.process_time()
        if self.translator is None:
            self.translator = self.make(program)
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
        self.translation = translation
        self.arena = self._arena(launch)
        self.state_ = self.arena.state
        self._since: float | None = None
        self._enter = execute.runner()
        self._begin_launch(launch, groups or range(launch.groups), cores)

    @classmethod
    def of(
        cls, launch: Launch, translation: Translation, limit: float | None = None, cores: int = 1
    ) -> TranslatedScheduler:
        """Return a scheduler for a launch: that of the program's last launch, if no other launch uses it."""
        idle, translation.idle = translation.idle, None
        if idle is None or idle.arena.sizes != (launch.waves_per_group, launch.lds_bytes):
            return cls(launch, translation, limit, cores=cores)
        scheduler: TranslatedScheduler = idle
        scheduler.limit = limit
        scheduler._begin_launch(launch, range(launch.groups), cores)
        return scheduler

    def _arena(self, launch: Launch) -> Arena:
        return Arena(launch, self.translation)

    def _begin_launch(self, launch: Launch, groups: range, cores: int) -> None:
        self.launch = launch
        self.launches = [launch]
        self._start = time.perf_counter()
        parts = min(cores, len(groups)) if cores > 1 and _independent(launch, self.translation) else 1
        self.helpers: list[TranslatedScheduler] = []
        if parts > 1:
            bounds = [groups.start + len(groups) * i // parts for i in range(parts + 1)]
            groups = range(bounds[0], bounds[1])
            for first, end in pairwise(bounds[1:]):
                self.helpers.append(TranslatedScheduler(launch, self.translation, self.limit, range(first, end)))
        self.groups = groups
        self.arena.begin(launch, groups)

    def run(self) -> None:
        """Execute every wavefront; raises the kernel's fault, of several that of the lowest work-groups."""
        if not self.helpers:
            self._run_own()
            self.translation.idle = self
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
        self._since = None if self.translation.has_runs else time.thread_time()
        try:
            if not self.arena.slots:
                self._grow()
            self.state_[execute.BUDGET] = _BUDGET
            why = self._enter(self.arena.address)
            if why != execute.FINISHED:
                with np.errstate(all="ignore"):
                    self._go_on(why)
        finally:
            with _interpreting:
                self.launch.add_counts(self.arena.counts.copy())
            self._ran()
            self.arena.shrink()

    def _go_on(self, why: int) -> None:
        """Do what native code returned for, until all wavefronts have ended."""
        state = self.state_
        self.round = self.idle_rounds = 0
        self.patience.begin(self._start)
        self.resumed = time.perf_counter()
        while why != execute.FINISHED:
            if state[execute.ENDED]:
                state[execute.ENDED] = self.idle_rounds = 0
                self.patience.restart()
            if why == execute.STOPPED:
                with _interpreting:
                    self._interpret(int(state[execute.CURSOR]))
            elif why == execute.GROW and self._grow():
                pass
            elif why == execute.PAUSE:
                self.patience.exhausted()
                self._ran()
            else:
                state[execute.CURSOR] = 0
                self._yield()
            state[execute.BUDGET] = _BUDGET
            why = self._enter(self.arena.address)

    def _ran(self) -> None:
        """Note the time that native code took since the last call, as long as its runs are not compiled."""
        if self._since is None or self.translation.has_runs:
            return
        now = time.thread_time()
        if isinstance(heat := self.launch.program.heat, Heat):
            with _interpreting:
                heat.ran(self.translation, now - self._since)
        self._since = now

    # -- for reports -------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> list[Wavefronts]:
        return [wf for _, wf in self._wavefronts(record.RUNNING)]

    @ready.setter
    def ready(self, wavefronts: list[Wavefronts]) -> None:
        assert not wavefronts  # sanity check

    @property
    def pending(self) -> list[tuple[Launch, int, int, Order]]:
        first = int(self.state_[execute.NEXT])
        return [(self.launch, first, 1, Order())] if first < self.groups.stop else []

    @pending.setter
    def pending(self, launches: list[tuple[Launch, int, int, Order]]) -> None:
        assert not launches  # sanity check

    def at_barriers(self) -> Iterator[Wavefronts]:
        for _, wf in self._wavefronts(record.WAITING):
            yield wf

    def executed(self, launch: Launch) -> list[int]:
        natively = split_counters(launch.program, self.arena.counts)[0].tolist()
        return [a + b for a, b in zip(launch.waves, natively, strict=True)]

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
        for number, slot in enumerate(self.arena.slots):
            if self.arena.tables[2, number] < 0:
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
        return self.arena.grow(max(1, min(len(self.groups), RESIDENT_WAVES // self.launch.waves_per_group)))

    def _waves(self, number: int) -> Sequence[Wave]:
        """Return the wavefronts of the work-group in a slot."""
        arena = self.arena
        slot, group = arena.slots[number], int(arena.tables[2, number])
        if slot.group != group:
            slot.group = group
            share = slot.share[: max(1, self.launch.lds_bytes)]
            slot.waves = []
            for i, memory in enumerate(slot.records):
                wave = group * len(slot.records) + i
                chunk = SlotChunk(self.launch, group, share, wave, memory[arena.private :])
                slot.waves.append(Wave(chunk, memory, arena.pairs))
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


# Held while Python executes an instruction, or adds to counters, in one of several threads.
_interpreting = threading.Lock()


def _independent(launch: Launch, translation: Translation) -> bool:
    """Return whether work-groups may run on several threads, and are worth it.

    Their number must not change a result: no work-group may wait for another, and no atomic show their order.
    """
    program = launch.program
    if any(block.polls for block in program.blocks) or any(site.kind == ATOMIC for site in program.accesses):
        return False
    waves = launch.groups * launch.waves_per_group
    seconds = waves * len(translation.code) * NATIVE_OPERATION * (ITERATIONS if program.loops else 1)
    return launch.hostcall is None and seconds > WORTH_A_THREAD
