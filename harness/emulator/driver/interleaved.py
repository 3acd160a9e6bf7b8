"""Scheduler of translated programs in the modes ``weak`` and ``race``: the loop of ``Scheduler``, as native code.

Python begins and ends launches, waits for other ranks, performs the release at a kernel's end, and executes the
instructions that have no native form, fault, or may be races. The schedule, the events and the counters are those of
``Scheduler``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from harness.emulator.driver.arena import Arena, SlotChunk
from harness.emulator.driver.picking import SLACK
from harness.emulator.driver.positions import failed
from harness.emulator.driver.schedule import QUANTUM, Order, Scheduler
from harness.emulator.driver.single import Rows
from harness.emulator.execution.launch import Chunk, Launch
from harness.emulator.execution.tally import split_counters
from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.native import interleaved, record, weak_steps
from harness.emulator.program.compiled.translation import Translation
from harness.emulator.watch.base import NativeWatch, Watch
from harness.emulator.wavefront.single import SingleWavefront
from harness.emulator.wavefront.state import Wavefronts

_BUDGET = 200_000
"""Operations after which native code returns, so that signals and time limits are noticed."""
_ROUNDS = 4
"""Rounds in which every wavefront has used a turn, after which native code returns, so that other ranks can run."""

assert (interleaved.QUANTUM, interleaved.SLACK) == (QUANTUM, SLACK)  # sanity check


def scheduler_of(
    streams: Sequence[Sequence[Launch]],
    watch: Watch | None,
    closed: bool,
    limit: float | None,
    isolated: bool = False,
) -> Scheduler:
    """Return the scheduler for launches that are interpreted, or watched: see ``Scheduler``."""
    if isinstance(watch, NativeWatch) and watch.choices is not None:
        launches = [each for stream in streams for each in stream]
        translations = {
            id(each): heat.rows for each in launches if isinstance(heat := each.program.heat, Rows) and heat.rows
        }
        if len(translations) == len(launches):
            return InterleavedScheduler(streams, watch, closed, limit, translations, isolated)
    return Scheduler(streams, watch, closed, limit, isolated)


class InterleavedScheduler(Scheduler):
    """Runs launches to their end on the calling thread, see ``Scheduler``."""

    def __init__(
        self,
        streams: Sequence[Sequence[Launch]],
        watch: NativeWatch,
        closed: bool,
        limit: float | None,
        translations: dict[int, Translation],
        isolated: bool = False,
    ) -> None:
        """``translations``: the translation of each launch by its ``id``."""
        self._native = watch
        self._translations = translations
        self._state = np.zeros(interleaved.STATE_BYTES >> 3, np.int64)
        self._address = self._state.ctypes.data
        self._table = np.zeros((0, interleaved.ENTRY_BYTES >> 3), np.int64)
        self._running: list[_Running] = []
        self._starting: _Running | None = None
        self._put(interleaved.MODEL, watch.decisions.address)
        self._put(interleaved.EVENTS, watch.events)
        self._put(interleaved.CLOSED, closed)
        self._enter = interleaved.runner()
        watch.chunk_of = self._chunk_of
        watch.translated()
        super().__init__(streams, watch, closed, limit, isolated)
        self._put(interleaved.UNSWITCHED, self.unswitched)
        self._put(interleaved.BACKWARDS, self.backwards)

    def _put(self, field: int, value: int) -> None:
        self._state[field >> 3] = value

    def _get(self, field: int) -> int:
        return int(self._state[field >> 3])

    def run(self) -> None:
        """Execute every wavefront; raises the kernel's fault."""
        try:
            with np.errstate(all="ignore"):
                while self._go_on():
                    pass
                self._native.over()
        finally:
            self._native.chunk_of = None
            self._native.untranslated()
            for running in self._running:
                running.close()

    def _go_on(self) -> bool:
        """Run native code, and do what it returned for; return False when all wavefronts have ended."""
        self._prepare_starts()
        self._put(interleaved.ENDING, bool(self._native.ending))
        self._put(interleaved.BUDGET, _BUDGET)
        self._put(interleaved.ROUNDS_LEFT, 1 if self.closed or self.polled is not None else _ROUNDS)
        why = self._enter(self._address)
        self._note_starts()
        self._native.decisions.raise_failure()
        if self._get(interleaved.ENDED):
            self._put(interleaved.ENDED, 0)
            self.idle_rounds = 0
            self.patience.restart()
        if why == interleaved.STOPPED:
            self._execute(self._get(interleaved.CURRENT))
        elif why == interleaved.ROUND_ENDED:
            self.round = self._get(interleaved.ROUND)
            self._yield()
            if self.pending:
                self._widen()
        elif why == interleaved.KERNEL_END:
            self._native.end_kernel()
        elif why == interleaved.LAUNCH_ENDED:
            wave = self._get(interleaved.PREVIOUS)
            self._put(interleaved.PREVIOUS, 0)
            self._running_of(wave).launch.then()
        elif why == interleaved.PAUSE:
            self._put(interleaved.IMPATIENT, self.patience.exhausted())
        return bool(why != interleaved.FINISHED)

    # -- launches and work-groups ------------------------------------------------------------------------------------

    def _begin(self, queue: list[Launch]) -> None:
        following = queue[-1] if queue else None
        super()._begin(queue)
        if following is not None:
            order = next(order for launch, _, _, order in self.pending if launch is following)
            address = self._native.address_of(following)
            running = _Running.of(following, self._translations[id(following)], address)
            running.set_order(order, self._is_wide(following))
            self._running.append(running)

    def _finished(self, launch: Launch, queue: list[Launch]) -> None:
        (running,) = (each for each in self._running if each.launch is launch)
        running.close()
        self._running.remove(running)
        super()._finished(launch, queue)

    def _prepare_starts(self) -> None:
        """Let native code start the next work-groups, with memory for as many as may be resident."""
        self._put(interleaved.MOST_RESIDENT, self.most_resident)
        self._starting = None
        if self.pending:
            launch = self.pending[-1][0]
            (running,) = (each for each in self._running if each.launch is launch)
            room = self.most_resident - self._get(interleaved.RESIDENT)
            if room > 0:
                running.reserve(-(-room // launch.waves_per_group))
            self._reserve(self.most_resident + launch.waves_per_group)
            self._starting = running
        self._put(interleaved.PENDING, self._starting.address if self._starting is not None else 0)
        self._put(interleaved.LATER, len(self.pending) > 1)

    def _note_starts(self) -> None:
        """Note which work-groups native code has started."""
        if self._starting is None:
            return
        launch, _, per_chunk, order = self.pending.pop()
        launch.started = int(self._starting.code[interleaved.STARTED >> 3])
        launch.unstarted = launch.groups - launch.started
        if launch.unstarted:
            self.pending.append((launch, launch.started, per_chunk, order))

    def _reserve(self, wavefronts: int) -> None:
        """Make the table of ready wavefronts large enough."""
        if wavefronts > len(self._table):
            table = np.zeros((wavefronts, interleaved.ENTRY_BYTES >> 3), np.int64)
            table[: len(self._table)] = self._table
            self._table = table
            self._put(interleaved.READY, table.ctypes.data)

    # -- wavefronts --------------------------------------------------------------------------------------------------

    def _running_of(self, wave: int) -> _Running:
        """Return the launch of the wavefront whose record is at an address."""
        code = _word(wave + record.CODE)
        return next(each for each in self._running if each.address == code)

    def _chunk_of(self, launch: Launch, number: int) -> Chunk:
        """Return the work-group of wavefront ``number`` of a launch."""
        (running,) = (each for each in self._running if each.launch is launch)
        slot = int(np.flatnonzero(running.arena.tables[2] == number // launch.waves_per_group)[0])
        return running.waves(slot)[number % launch.waves_per_group].chunk  # type: ignore[no-any-return]

    def _execute(self, address: int) -> None:
        """Execute the next instruction of a wavefront."""
        running = self._running_of(address)
        wf, translation, program = running.wave_at(address), running.translation, running.launch.program
        position, places = int(wf.header[record.POSITION >> 3]), translation.places
        if position == len(places):
            wf.chunk.raise_fault("execution goes on after the end of the code", wf, program.listing.instructions[-1], 0)
        place = places[position]
        wf.block = place.block
        wf.refresh_exec()
        self.current = wf
        try:
            if place.step is not None:
                place.step(wf)
                position += place.operations
            else:
                block = program.blocks[place.block]
                assert block.goes is not None  # sanity check
                position = translation.entries[int(block.goes(wf)[0])]
        except UnimplementedInstruction:
            raise
        except (ValueError, TypeError, LookupError, OverflowError) as error:
            raise failed(wf, place.step, error) from error
        finally:
            self.current = None
        wf.header[record.POSITION >> 3] = position

    # -- for reports -------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> list[Wavefronts]:
        return [wf for running in self._running for wf in running.in_state(record.RUNNING)]

    @ready.setter
    def ready(self, wavefronts: list[Wavefronts]) -> None:
        assert not wavefronts  # sanity check

    def at_barriers(self) -> Iterator[Wavefronts]:
        for running in self._running:
            yield from running.in_state(record.WAITING)

    def executed(self, launch: Launch) -> list[int]:
        counts = [0] * len(launch.program.segments)
        for running in self._running:
            if running.launch is launch:
                counts = split_counters(launch.program, running.arena.counts)[0].tolist()
        return [a + b for a, b in zip(launch.waves, counts, strict=True)]

    def describe(self) -> str:
        for running in self._running:
            chunks: dict[int, Chunk] = {}
            for wf in running.in_state(record.WAITING):
                chunks.setdefault(wf.chunk.index, wf.chunk).at_barrier.append(wf)
            running.launch.chunks = chunks
        try:
            return super().describe()
        finally:
            for running in self._running:
                for chunk in running.launch.chunks.values():
                    chunk.at_barrier = []
                running.launch.chunks = {}


_MOST_KEPT = 64 << 20
"""Bytes of the records that stay with the program that was launched last."""


class _Running:
    """A launch that has begun: its memory, and its wavefronts as Python sees them."""

    def __init__(self, launch: Launch, translation: Translation) -> None:
        self.translation = translation
        self.arena = Arena(launch, translation)
        waves, lanes, _, _ = split_counters(launch.program, self.arena.counts)
        # What native code knows of the launch, see ``native.interleaved``.
        self.code = np.zeros(interleaved.CODE_FIELDS, np.int64)
        self.address = self.code.ctypes.data
        self.code[interleaved.ROWS >> 3] = translation.address
        self.code[[interleaved.WAVES >> 3, interleaved.LANES >> 3]] = waves.ctypes.data, lanes.ctypes.data
        self.code[interleaved.CONTROL >> 3] = self.arena.address
        # The structures of work-groups by slot, int64[AT_BARRIER and the wavefronts], with their memory, and addresses.
        self._groups: list[np.ndarray] = []
        self._blocks: list[np.ndarray] = []
        self._addresses = np.zeros(0, np.int64)
        self._free = np.zeros(0, np.int64)

    @classmethod
    def of(cls, launch: Launch, translation: Translation, address: int) -> _Running:
        """Return a launch that begins, with the memory of the program's last launch, if no other launch uses it.

        ``address``: of what native functions need of the launch.
        """
        idle, translation.idle = translation.idle, None
        fits = idle is not None and idle.arena.sizes == (launch.waves_per_group, launch.lds_bytes)
        running: _Running = idle if fits else cls(launch, translation)
        running._begin(launch, address)
        return running

    def _begin(self, launch: Launch, address: int) -> None:
        self.launch, self._closed = launch, False
        self.arena.begin(launch, range(launch.groups))
        for group in self._groups:  # the last launch may have ended by a fault
            group[weak_steps.LIVE >> 3] = 0
        for field, value in (
            (interleaved.RANK, launch.rank), (interleaved.GROUPS, 0), (interleaved.LAUNCH, address),
            (interleaved.STARTED, 0), (interleaved.TOTAL, launch.groups), (interleaved.FREE_COUNT, len(self._free)),
        ):  # fmt: skip
            self.code[field >> 3] = value
        self._free[:] = range(len(self._free) - 1, -1, -1)

    def set_order(self, order: Order, in_round: bool) -> None:
        """Set the order in which work-groups start, and whether they start in the scheduler's current round."""
        self.code[[interleaved.FIRST >> 3, interleaved.STEP >> 3]] = order
        self.code[interleaved.IN_ROUND >> 3] = in_round

    def reserve(self, groups: int) -> None:
        """Make room for the next work-groups, for ``groups`` of them at most."""
        needed = min(groups, self.launch.groups - int(self.code[interleaved.STARTED >> 3]))
        count = int(self.code[interleaved.FREE_COUNT >> 3])
        more = needed - count
        if more <= 0:
            return
        used = len(self.arena.slots)
        while len(self.arena.slots) < used + more:
            self.arena.grow(used + more)
        block = np.zeros((more, (weak_steps.AT_BARRIER >> 3) + self.launch.waves_per_group), np.int64)
        self._blocks.append(block)
        self._groups += list(block)
        self._addresses = np.concatenate([self._addresses, block.ctypes.data + block.strides[0] * np.arange(more)])
        free = np.zeros(used + more, np.int64)
        free[:count] = self._free[:count]
        free[count : count + more] = range(used + more - 1, used - 1, -1)
        self._free = free
        self._use_tables()
        self.code[interleaved.FREE_COUNT >> 3] = count + more

    def _use_tables(self) -> None:
        self.code[interleaved.FREE >> 3] = self._free.ctypes.data
        self.code[interleaved.STRUCTURES >> 3] = self._addresses.ctypes.data

    def close(self) -> None:
        """Give the memory back, and the counters to the launch. Idempotent."""
        if not self._closed:
            self._closed = True
            self.launch.add_counts(self.arena.counts.copy())
            self.translation.idle = self
            self._keep_memory()

    def _keep_memory(self) -> None:
        """Keep the memory for the program's next launch, and no longer that of another program."""
        global _with_memory
        other, _with_memory = _with_memory, None
        if other is not None and other is not self and other._closed:
            other._shrink()
        if len(self.arena.slots) * self.launch.waves_per_group * self.arena.stride <= _MOST_KEPT:
            _with_memory = self
        else:
            self._shrink()

    def _shrink(self) -> None:
        self.arena.shrink()
        kept = len(self.arena.slots)
        del self._groups[kept:]
        self._blocks = [block for block in self._blocks if any(group.base is block for group in self._groups)]
        self._addresses, self._free = self._addresses[:kept].copy(), self._free[:kept].copy()
        self._use_tables()

    def wave_at(self, address: int) -> SingleWavefront:
        """Return the wavefront whose record is at an address."""
        slot = _word(_word(address + record.GROUP) + weak_steps.SLOT)
        wf: SingleWavefront = self.waves(slot)[(address - self.arena.slots[slot].addresses[0]) // self.arena.stride]
        return wf

    def waves(self, number: int) -> list[Any]:
        """Return the wavefronts of the work-group in a slot."""
        arena, launch = self.arena, self.launch
        slot, group = arena.slots[number], int(arena.tables[2, number])
        if slot.group != group:
            slot.group = group
            share = slot.share[: max(1, launch.lds_bytes)]
            slot.waves = []
            for i, memory in enumerate(slot.records):
                wave = group * len(slot.records) + i
                chunk = SlotChunk(launch, group, share, wave, memory[arena.private :])
                slot.waves.append(SingleWavefront.at(memory, chunk, wave))
        return slot.waves

    def in_state(self, state: int) -> Iterator[SingleWavefront]:
        """Yield the wavefronts in a state."""
        for number, group in enumerate(self._groups):
            for wf in self.waves(number) if group[weak_steps.LIVE >> 3] else ():
                if wf.header[record.STATE >> 3] == state:
                    wf.block = self.translation.places[int(wf.header[record.POSITION >> 3])].block
                    wf.turn = int(wf.header[record.TURN >> 3])
                    yield wf


# The program that has kept the memory of its last launch.
_with_memory: _Running | None = None


def _word(address: int) -> int:
    return ctypes.c_int64.from_address(address).value
