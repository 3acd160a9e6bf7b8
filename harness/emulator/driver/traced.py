"""Mode ``trace`` in native code: a program's own native code, with operations that append its events to queues.

Wavefronts run ahead, one work-group after the other, and ``native.replay`` takes their events in the order of the
interpreter's schedule, so all records are the same as those of ``watch.trace``. If wavefronts communicate, each access
to global memory waits until the schedule gets to it. A program with an instruction that has no native form is
interpreted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from harness.emulator.driver.arena import Wave
from harness.emulator.driver.schedule import CHUNK_BYTES, CHUNK_WAVES, RESIDENT_WAVES
from harness.emulator.driver.traced_plan import Plan, plan
from harness.emulator.driver.traced_rows import FlowMemory, Rows
from harness.emulator.driver.translated import Heat, TranslatedScheduler
from harness.emulator.execution.launch import Launch
from harness.emulator.listing.instructions import Instruction, Listing
from harness.emulator.native import execute, flows, record, replay, traced
from harness.emulator.native import memory as native
from harness.emulator.native import replay_state as at
from harness.emulator.native.banks import passes
from harness.emulator.operations.access import (
    ATOMIC,
    LOAD,
    STORE,
    CopyAccess,
    FlatAccess,
    FormatAccess,
    GlobalAccess,
    LdsAccess,
)
from harness.emulator.operations.table import Native, Step
from harness.emulator.program import decode as p
from harness.emulator.program.communication import passes_memory
from harness.emulator.program.compiled.translation import CONDITIONS, Translation, Translator
from harness.emulator.watch.stalls import KINDS
from harness.emulator.watch.timeline import Sample
from harness.emulator.watch.trace import Notes, Trace
from harness.emulator.wavefront.state import LANES
from harness.errors import HarnessError

_BUDGET = 500_000
"""Operations after which native code returns, so that signals and time limits are noticed."""
_ROUNDS = 4
"""Rounds in which every wavefront has used a turn, after which native code returns, so that other ranks can run."""
_SPANS = ("", "to s_barrier", "s_barrier", "to the end")
assert (at.FALL, at.JUMP, at.BRANCH, at.ENDS, at.BARRIER, at.SLEEP) == (
    p.FALL, p.JUMP, p.BRANCH, p.END, p.BARRIER, p.SLEEP,
)  # fmt: skip  # sanity check


class TracedHeat(Heat):
    """Decides when a program in mode ``trace`` uses native code. ``plain`` returns it without the mode's steps."""

    def __init__(self, program: p.Program, plain: Callable[[], p.Program]) -> None:
        notes: Notes = program.facts
        super().__init__(make=lambda program: TracedTranslator(plain(), notes))
        unknown = CopyAccess | FlatAccess | FormatAccess
        self._possible = not any(isinstance(note.access, unknown) for note in notes.of.values())
        self._possible &= not any(block.end == p.CALL for block in program.blocks)

    def find(self, launch: Launch) -> Translation | None:
        """See ``Heat.find``; None if native code cannot trace the program."""
        translation = super().find(launch) if self._possible else None
        if translation is not None and translation.stops:
            self._possible, translation = False, None
        return translation


def decode(listing: Listing, watch: Trace, plain: Callable[[], p.Program] | None = None) -> p.Program:
    """Decode a listing for mode ``trace``; ``plain`` returns the same program without its steps."""
    program = p.decode(listing, watch=watch)
    program.heat = TracedHeat(program, plain or partial(p.decode, listing))
    return program


class TracedTranslator(Translator):
    """Adds the operations that append events to those of the program without the mode's steps."""

    def __init__(self, program: p.Program, notes: Notes) -> None:
        self._notes = notes
        self._ordered = passes_memory(program)
        self._operations: dict[int, int] = {}
        self._events: set[int] = set()
        super().__init__(program)

    def finish(self) -> Translation:
        translation = super().finish()
        made = plan(self.program, self._notes, self._operations, len(translation.code), self._ordered)
        made.kinds[list(self._events)] = 1
        translation.plan = made
        return translation

    def _event(self, block: p.Block, instruction: Instruction, function: Native) -> None:
        self._events.add(len(self._rows))
        self._add(block, None, instruction, execute.CALL, function, *function.parameters)

    def _add_step(self, block: p.Block, step: Step, instruction: Instruction) -> None:
        note = self._notes.of.get(instruction.index)
        access = None if note is None else note.access
        if access is None or instruction.index in self._operations:  # a step that follows another one
            super()._add_step(block, step, instruction)
            return
        swap: Native | None = None
        if isinstance(access, GlobalAccess):
            words = (*access.address, access.size, self._ordered, access.kind in (STORE, ATOMIC))
            self._event(block, instruction, Native(traced.access, words))
            swap = _compares(access)
            if swap is not None:
                self._add(block, None, instruction, execute.CALL, swap, *swap.parameters)
        elif isinstance(access, LdsAccess):
            self._event(block, instruction, _conflicts(access, self.program.listing.arch))
        elif self._ordered:
            self._event(block, instruction, Native(traced.ordered, ()))
        if isinstance(access, GlobalAccess | LdsAccess) or self._ordered:
            self._operations[instruction.index] = len(self._rows)
        super()._add_step(block, step, instruction)
        if swap is not None:
            noting = Native(traced.note_swapped, swap.parameters, swap.keeps)
            self._add(block, None, instruction, execute.CALL, noting, *noting.parameters)

    def _add_end(self, block: p.Block) -> None:
        if block.end == p.BRANCH:
            assert block.terminator is not None  # sanity check
            words = 0, 0, *CONDITIONS[block.terminator.mnemonic.rpartition("_")[2]]
            self._event(block, block.terminator, Native(traced.branch, words))
        super()._add_end(block)


def _compares(access: GlobalAccess) -> Native | None:
    """Return what keeps the compared values of a compare-and-swap that returns the old value, None for others."""
    if access.operation != native.CMPSWAP or access.target < 0:
        return None
    values = np.zeros(LANES, np.uint64)
    compared = access.data + access.size // 4
    return Native(traced.keep_compared, (values.ctypes.data, compared, access.size, access.target), (values,))


def _conflicts(access: LdsAccess, arch: str) -> Native:
    banks, lanes = passes(access.size, arch, access.kind != LOAD)
    patterns = np.zeros(traced.PATTERN_WORDS, np.int64)
    step, bits = (0 if access.counts else 4), (18 if arch == "gfx950" else 16)
    words = (
        access.areg, step, bits, access.aligned, max(1, access.size // 4), banks, lanes.ctypes.data, *lanes.shape,
        patterns.ctypes.data, len(access.parts), *(offset for offset, _ in access.parts),
    )  # fmt: skip
    return Native(traced.count_conflicts, words, (lanes, patterns))


class TracedMemory:
    """Memory that the launches of a watch share: the state of ``native.replay``, and the memory of records."""

    def __init__(self) -> None:
        self.state = np.zeros(at.STATE_FIELDS, np.int64)
        self.address = int(self.state.ctypes.data)
        self.accesses = Rows(self.state, at.ACCESSES, at.ACCESS_FIELDS)
        self.spans = Rows(self.state, at.SPANS, at.SPAN_FIELDS)
        self.samples = Rows(self.state, at.SAMPLES, at.SAMPLE_FIELDS)
        self.flows = FlowMemory()

    def begin(self, wavefronts: int) -> None:
        """Begin a launch with chunks of ``wavefronts``."""
        self.accesses.begin(64)
        self.spans.begin(2 * wavefronts)
        self.samples.begin(1)
        self.flows.begin()

    def make_room(self, wavefronts: int) -> None:
        self.accesses.make_room(64)
        self.spans.make_room(2 * wavefronts)
        self.samples.make_room(1)
        self.flows.make_room()


class _Lists:
    """Tables of ``native.replay`` for a program's launches of one size, which are reused when a launch has ended."""

    def __init__(self, launch: Launch) -> None:
        per_group, program = launch.waves_per_group, launch.program
        waves = min(CHUNK_WAVES, CHUNK_BYTES // (4 * LANES * (program.vgprs + 2)))
        self.groups = launch.groups
        self.per_chunk = max(1, waves // per_group)
        self.waves = self.per_chunk * per_group
        self.chunk_fields = at.IN_GROUP + 2 * self.per_chunk
        self._queues: list[np.ndarray] = []
        self.chunks = np.zeros((0, self.chunk_fields), np.int64)
        self.free_chunks = np.zeros(0, np.int64)
        self.slot_of = np.zeros(self.groups, np.int64)
        self.wavefronts = np.zeros((6, self.groups * per_group), np.int64)
        self.wavefronts[at.ARRIVED - at.NEXT_WAVE] = -1
        # A part has a wavefront, and two are made of one before that is free.
        parts = min(self.groups * per_group, RESIDENT_WAVES + self.waves) + 2
        self.parts = np.zeros((parts, at.PART_FIELDS), np.int64)
        self.ready, self.free_parts = np.zeros(parts, np.int64), np.arange(parts)

    def begin(self) -> None:
        self.wavefronts[at.QUEUED - at.NEXT_WAVE] = 0
        self.slot_of.fill(-1)

    def add_chunk(self) -> None:
        """Add a chunk, which is then the only free one."""
        self._queues.append(np.empty(self.waves * traced.QUEUE_BYTES, np.uint8))
        chunks = np.zeros((len(self._queues), self.chunk_fields), np.int64)
        chunks[: len(self.chunks)] = self.chunks
        chunks[-1, at.MEMORY] = self._queues[-1].ctypes.data
        self.chunks = chunks
        self.free_chunks = np.full(len(chunks), len(chunks) - 1)


class TracedScheduler(TranslatedScheduler):
    """Runs one launch in mode ``trace`` to its end; the launch's program has the mode's steps."""

    watch_: Trace
    _tables: _Lists | None = None
    # What the set-up state below is for: the table of allocations, the heat map, the totals, and the memory.
    _made_for: tuple[Any, ...] = ()

    @classmethod
    def under(cls, watch: Trace, launch: Launch, translation: Translation, limit: float | None) -> TracedScheduler:
        scheduler = cls.of(launch, translation, limit)
        assert isinstance(scheduler, TracedScheduler)  # sanity check
        scheduler.watch_ = watch
        scheduler.choices, scheduler.period, scheduler.last = watch.choices, None, None
        return scheduler

    def run(self) -> None:
        watch, launch = self.watch_, self.launch
        watch.begin(False)
        number = watch.begin_launch(launch)
        if watch.memory is None:
            watch.memory = TracedMemory()
        self._memory: TracedMemory = watch.memory
        self._state = self._memory.state
        totals = watch.totals_of(launch.rank)
        conflicts = int(totals[2])
        self._set_up(totals)
        self._since = None if self.translation.has_runs else time.thread_time()
        try:
            with np.errstate(all="ignore"):
                self._replay()
        finally:
            launch.add_counts(self.arena.counts.copy())
            launch.lds_conflicts += int(totals[2]) - conflicts
            self._report(number)
            self._ran()
            self.arena.shrink()
        self.translation.idle = self
        watch.end_launch(launch, number)
        watch.over()

    # -- memory ------------------------------------------------------------------------------------------------------

    def _set_up(self, totals: np.ndarray) -> None:
        watch, launch, state = self.watch_, self.launch, self._state
        if self._tables is None or self._tables.groups != launch.groups:
            self._tables, self._made_for = _Lists(launch), ()
        lists = self._tables
        made_for = launch.table, watch.heat, totals, self._memory
        if len(self._made_for) != 4 or any(a is not b for a, b in zip(made_for, self._made_for, strict=True)):
            self._make(totals)
            self._made_for = made_for
        lists.begin()
        self._stalls.fill(0)
        state[: at.ACCESSES] = self._first[: at.ACCESSES]
        state[at.LIMIT :] = self._first[at.LIMIT :]
        self._use_transitions()
        self._use_chunks(len(lists.chunks))
        self._use_slots(np.arange(len(self.arena.slots)))
        timeline = watch.timeline
        state[at.ADDRESS] = self._memory.address
        state[at.CHOOSES], state[at.NOW] = self.choices is not None, timeline.now
        state[at.EARLIER_ACCESSES : at.LOST_ACCESSES] = (
            len(timeline.accesses), len(timeline.spans), len(timeline.samples),
        )  # fmt: skip
        self._memory.begin(lists.waves)

    def _make(self, totals: np.ndarray) -> None:
        """Make the state at the beginning of a launch, as far as it is always the same."""
        watch, launch, lists = self.watch_, self.launch, self._tables
        assert lists is not None  # sanity check
        made: Plan = self.translation.plan
        rows = [
            (a.address, end, a.peer is not None and a.peer != launch.rank, far, watch.heat.width(a), 0, 0)
            for a, end, far in zip(
                launch.table.allocations, *map(np.ndarray.tolist, launch.table.arrays[1:]), strict=True
            )
        ]
        self._allocations = np.array(rows, np.int64).reshape(-1, at.ALLOCATION_FIELDS)
        self._stalls = np.zeros((len(made.waits), len(KINDS)), np.int64)
        self._enter = replay.runner()
        self._first = state = np.zeros(at.STATE_FIELDS, np.int64)
        state[: at.TAKEN + 1] = (
            made.blocks.ctypes.data, made.events.ctypes.data, made.kinds.ctypes.data, self.arena.address,
            lists.slot_of.ctypes.data, launch.groups, launch.waves_per_group,
            *(lists.wavefronts.ctypes.data + lists.wavefronts.strides[0] * np.arange(6)),
        )  # fmt: skip
        state[at.STALLS] = self._stalls.ctypes.data
        state[at.PARTS : at.CHUNK_WAVES + 1] = (
            lists.parts.ctypes.data, 0, lists.chunk_fields, lists.ready.ctypes.data, 0, lists.free_parts.ctypes.data,
            len(lists.free_parts), 0, 0, lists.waves,
        )  # fmt: skip
        state[[at.PER_CHUNK, at.MOST_RESIDENT, at.LIMIT]] = lists.per_chunk, RESIDENT_WAVES, watch.limit
        state[[at.CURRENT, at.CHOSEN]] = -1
        state[at.TOTALS : at.ROUNDS_LEFT] = (
            totals.ctypes.data, self._allocations.ctypes.data, len(rows), self._memory.flows.address,
        )  # fmt: skip

    def _use_transitions(self) -> None:
        tables = self.translation.plan.transitions
        self._state[at.FOLLOWING : at.STALLS] = *tables.addresses, tables.width

    def _use_chunks(self, free: int) -> None:
        assert self._tables is not None  # sanity check
        state, lists = self._state, self._tables
        state[at.CHUNKS], state[at.FREE_CHUNKS] = lists.chunks.ctypes.data, lists.free_chunks.ctypes.data
        state[at.FREE_CHUNKS_COUNT] = free

    def _use_slots(self, free: np.ndarray) -> None:
        """Let native code use the slots ``free``, all others being in use."""
        self._slots = np.empty(len(self.arena.slots), np.int64)
        self._slots[: len(free)] = free
        self._state[at.FREE_SLOTS], self._state[at.FREE_SLOTS_COUNT] = self._slots.ctypes.data, len(free)

    # -- running -----------------------------------------------------------------------------------------------------

    def _replay(self) -> None:
        """Run native code, and do what it returns for, until all wavefronts have ended."""
        self.round = self.idle_rounds = 0
        self.patience.begin(self._start)
        self.resumed = time.perf_counter()
        rounds = 1 if self.polled is not None else _ROUNDS
        # Views whose elements cost less than those of arrays.
        state, own = memoryview(self._state), memoryview(self.state_)  # type: ignore[arg-type]
        while True:
            own[execute.BUDGET] = _BUDGET
            state[at.ROUNDS_LEFT] = rounds
            why = self._enter(self._memory.address)
            if state[at.ENDED]:
                state[at.ENDED] = self.idle_rounds = 0
                self.patience.restart()
            if why == at.ROUND_ENDED:
                self.round = state[at.ROUND]
                self._yield()
            elif why == at.FINISHED:
                return
            else:
                own[execute.NEXT] = state[at.NEXT_GROUP]
                self._answer(why, state[at.ARGUMENT])

    def _answer(self, why: int, argument: int) -> None:
        """Make or do what native code returned for."""
        state, launch, lists = self._state, self.launch, self._tables
        assert lists is not None  # sanity check
        if why == at.NEEDS_PYTHON:
            group, place = divmod(argument, launch.waves_per_group)
            wave: Wave = self._waves(int(lists.slot_of[group]))[place]
            wave.go_on(self._execute(wave.wavefronts, wave.position))
        elif why == at.PAUSE:
            state[at.IMPATIENT] = self.patience.exhausted()
            self._ran()
        elif why == at.CHOOSE:
            state[at.CHOSEN] = self._choose()
        elif why == at.NEEDS_SLOT:
            before = len(self.arena.slots)
            self.arena.grow(launch.groups)
            self._use_slots(np.arange(before, len(self.arena.slots)))
        elif why == at.NEEDS_CHUNK:
            lists.add_chunk()
            self._use_chunks(1)
        elif why == at.NEEDS_ROOM:
            self._memory.make_room(lists.waves)
        elif why == at.NEEDS_HEAT:
            counts = self.watch_.heat.counts_of(launch.rank, launch.table.allocations[argument])
            self._allocations[argument, [at.COUNTS, at.BUCKETS]] = counts.ctypes.data, counts.shape[1]
        elif why == at.NEEDS_STATE:
            self.translation.plan.transitions.fill(argument)
            self._use_transitions()
        else:
            raise HarnessError(f"kernel {launch.program.name}: wavefront {argument} has no event where one is expected")

    def _choose(self) -> int:
        """Return the part that the watch's choices pick."""
        state, lists = self._state, self._tables
        assert lists is not None  # sanity check
        parts = []
        self.last = None
        for number in lists.ready[: int(state[at.READY_COUNT])].tolist():
            row = lists.parts[number].tolist()
            chunk = SimpleNamespace(launch=self.launch, index=int(lists.chunks[row[at.CHUNK], at.INDEX]))
            part = SimpleNamespace(number=number, chunk=chunk, turn=row[at.TURN], wave=[row[at.HEAD]])
            parts.append(part)
            if row[at.PART] == state[at.LATEST]:
                self.last = part  # type: ignore[assignment]
        return int(self._pick(min(part.turn for part in parts), parts).number)

    def _wavefronts(self, state: int) -> Any:
        """See ``TranslatedScheduler``: a wavefront that stopped goes on when the schedule gets to it."""
        yield from super()._wavefronts(state)
        if state == record.RUNNING:
            yield from super()._wavefronts(record.STOPPED)

    # -- records -----------------------------------------------------------------------------------------------------

    def _report(self, number: int) -> None:
        """Add what native code has recorded to the timeline of the watch."""
        launch, state, made = self.launch, self._state, self.translation.plan
        timeline, rank, memory = self.watch_.timeline, launch.rank, self._memory
        timeline.now = int(state[at.NOW])
        earlier = len(timeline.accesses)
        accesses, allocations = memory.accesses.used, launch.table.allocations
        timeline.accesses.add_later(
            len(accesses), lambda: _access_columns(accesses, rank, number, made.sites, allocations)
        )
        spans, code = memory.spans.used, launch.program.listing.instructions
        timeline.spans.add_later(len(spans), lambda: _span_columns(spans, rank, code))
        pairs = memory.flows.pairs.used
        timeline.flows.add_later(len(pairs), lambda: (pairs[:, 0] + earlier, pairs[:, 1] + earlier))
        if state[at.REPLACES]:
            row = state[at.REPLACING : at.REPLACING + at.SAMPLE_FIELDS].tolist()
            timeline.samples.replace_last(Sample(row[0], rank, *row[1:]))
        samples = memory.samples.used
        timeline.samples.add_later(len(samples), lambda: (samples[:, 0], rank, *samples[:, 1:].T))
        timeline.dropped["accesses"] += int(state[at.LOST_ACCESSES])
        timeline.dropped["spans"] += int(state[at.LOST_SPANS])
        stalls = launch.stalls
        for wait, kind in zip(*(index.tolist() for index in self._stalls.nonzero()), strict=True):
            key = KINDS[kind], made.waits[wait]
            stalls[key] = stalls.get(key, 0) + int(self._stalls[wait, kind])


def _access_columns(
    rows: np.ndarray, rank: int, number: int, sites: Sequence[tuple[str, Any]], allocations: Sequence[Any]
) -> tuple[Any, ...]:
    """Return the columns of ``timeline.Record``, of rows of ``native.replay``."""
    site, allocation = rows[:, 2] & 0xFFFFFFFF, rows[:, 2] >> 32
    addresses = rows[:, 4].view(np.uint64)
    starts = np.array([a.address for a in allocations], np.uint64)

    def of_site(values: Sequence[Any]) -> list[Any]:
        return list(map(values.__getitem__, site.tolist()))

    def of_allocation(values: Sequence[Any]) -> list[Any]:
        return list(map(values.__getitem__, allocation.tolist()))

    return (
        rows[:, 0], rank, number, rows[:, 1], of_site([kind for kind, _ in sites]),
        of_site([instruction.line for _, instruction in sites]), rows[:, 3] & ~flows.READ, addresses,
        addresses - starts[allocation], of_allocation([a.label for a in allocations]),
        of_allocation([a.peer is not None and a.peer != rank for a in allocations]),
        of_site([instruction.text for _, instruction in sites]),
        of_site([instruction.source for _, instruction in sites]),
    )  # fmt: skip


def _span_columns(rows: np.ndarray, rank: int, code: Sequence[Any]) -> tuple[Any, ...]:
    """Return the columns of ``timeline.Span``, of rows of ``native.replay``."""
    codes, places = np.unique(rows[:, 3], return_inverse=True)
    names, sources = [], []
    for kind, index in zip((codes & 0xFF).tolist(), (codes >> 8).tolist(), strict=True):
        names.append(code[index].text if kind == at.WAITING else _SPANS[kind])
        sources.append("" if kind == at.TO_END else code[index].source)
    numbers = places.reshape(-1).tolist()
    return (
        rank, rows[:, 2], list(map(names.__getitem__, numbers)), rows[:, 0], rows[:, 1],
        list(map(sources.__getitem__, numbers)),
    )  # fmt: skip
