"""Detector of wavefronts that only repeat themselves, while other processes may change memory.

The wavefronts share nothing but memory, LDS and barriers. While neither is written, each of them does what its own
registers and position decide, so one that returns to a state of its own goes round for ever. One that waits at an
s_barrier, in the same state as before, is not released by any of these rounds. While LDS is written, as by a program
that distributes the result of an atomic among its wavefronts, all of them and LDS must return to a common state.

An atomic on global memory counts as a read: in a loop that waits for a lock or a flag, each one fails or writes the
value that is there, and any other shows in the memory at the next look. What would be missed is a program that changes
memory by atomics alone, changes it back before each look, and does so for ever, such as one that polls while it holds a
lock: the others have then failed for seconds to get that lock. In mode ``weak``, whose ``settled`` counts writes, every
atomic but a compare-and-swap that fails is a change of memory: loops with others have the whole deadline there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from harness.emulator.driver.digests import digest, memory_of, state_of
from harness.emulator.execution.launch import Launch
from harness.emulator.listing.instructions import Instruction
from harness.emulator.program.decode import Program
from harness.emulator.wavefront.state import Wavefronts

_MOST_STATES = 256
"""States of a wavefront that are kept, in one period without a change of memory."""

_MEMORY, _LDS = re.compile(r"(global|flat|t?buffer|scratch)_"), re.compile(r"(ds|flat)_")
_READS = re.compile(r"_(load|read|inv|wbl2|b?permute|swizzle)")
_ATOMIC = re.compile(r"_atomic_")
_SCALAR_WRITES = re.compile(r"s_\w*(store|atomic)")


class Watched(Protocol):
    """The part of a scheduler that is examined."""

    launches: list[Launch]
    ready: list[Wavefronts]
    pending: Any
    watch: Any

    def at_barriers(self) -> Iterable[Wavefronts]: ...

    def executed(self, launch: Launch) -> list[int]: ...


class Repetition:
    """States of a scheduler's wavefronts since memory changed last."""

    def __init__(self) -> None:
        self._since: tuple[bytes, int] | None = None
        self.unchanged = False
        """Whether the last look found memory as the one before it had, and nothing under way."""
        self._states: dict[tuple[int, int, int], dict[bytes, int]] = {}
        self._round: set[tuple[int, int, int]] = set()
        self._local = 0
        self._common: dict[bytes, list[int]] = {}

    def forget(self) -> None:
        """Begin anew: the wavefronts have to return to states of theirs from now on."""
        self._states.clear()
        self._round.clear()
        self._common.clear()

    def look(self, scheduler: Watched) -> bool:
        """Return whether every wavefront has returned to a state of its own since memory was written last, or waits at
        a barrier as before. False while memory may still move, and for work-groups that have not started."""
        settled = scheduler.watch is None or scheduler.watch.settled()
        if scheduler.pending or not settled or any(launch.hostcall is not None for launch in scheduler.launches):
            self._since, self.unchanged = None, False
            return False
        now = digest(memory_of(scheduler.launches)), writes(scheduler, can_write_memory)
        self.unchanged = now == self._since
        before, self._local = self._local, writes(scheduler, can_write_lds)
        if not self.unchanged:
            self._since = now
            self.forget()
        if self._local != before:
            self._states.clear()  # a wavefront by itself is decided by LDS, too
            self._round.clear()
            return self._returned_together(scheduler)
        return all([*self._returned(scheduler.ready, True), *self._returned(scheduler.at_barriers(), False)])

    def _returned_together(self, scheduler: Watched) -> bool:
        """Return whether all wavefronts and LDS have been in this state before, and those that can run have run."""
        waiting = [_state(wf, row) for wf in scheduler.at_barriers() for row in range(len(wf.wave))]
        state = digest([state_of(scheduler.ready), *sorted(waiting)])
        if len(self._common) > _MOST_STATES:
            self._common.clear()
        turns = [wf.turn for wf in sorted(scheduler.ready, key=_place)]
        first = self._common.setdefault(state, turns)
        return all(turn > before for turn, before in zip(turns, first, strict=True))

    def _returned(self, wavefronts: Iterable[Wavefronts], runs: bool) -> Iterable[bool]:
        """Yield for each wavefront whether it has been in its state before, and, if it ``runs``, has run since."""
        for wf in wavefronts:
            for row, wave in enumerate(wf.wave.tolist()):
                key = wf.chunk.launch.rank, id(wf.chunk.launch), wave
                states = self._states.setdefault(key, {})
                if len(states) > _MOST_STATES:
                    states.clear()
                state = _state(wf, row)
                known = state in states
                turn = states.setdefault(state, wf.turn)
                if known and (wf.turn > turn or not runs):
                    self._round.add(key)
                yield key in self._round


def _state(wf: Wavefronts, row: int) -> bytes:
    return digest([repr(wf.block).encode(), wf.s[row].data, wf.v[:, row].tobytes(), wf.scc[row].tobytes()])


def _place(wf: Wavefronts) -> tuple[int, int, list[int]]:
    return wf.chunk.launch.rank, id(wf.chunk.launch), wf.wave.tolist()


def writes(scheduler: Watched, can: Callable[[Instruction], bool]) -> int:
    """Return how often a part of the code ran with an instruction that can write, by ``can``."""
    return sum(
        count
        for launch in scheduler.launches
        for count, writing in zip(scheduler.executed(launch), _writing(launch.program, can), strict=True)
        if writing
    )


def _writing(program: Program, can: Callable[[Instruction], bool]) -> list[bool]:
    """Return for each segment whether one of its instructions can write."""
    return [any(map(can, segment.instructions)) for segment in program.segments]


def can_write_memory(instruction: Instruction) -> bool:
    """Return whether an instruction can write memory, other than by an atomic."""
    name = instruction.mnemonic
    if _MEMORY.match(name) is None:
        return _SCALAR_WRITES.match(name) is not None
    return _READS.search(name) is None and _ATOMIC.search(name) is None


def can_write_lds(instruction: Instruction) -> bool:
    """Return whether an instruction can write LDS."""
    name = instruction.mnemonic
    if _LDS.match(name) is not None:
        return _READS.search(name) is None
    return _MEMORY.match(name) is not None and ("lds" in instruction.modifiers or "_lds_" in name)
