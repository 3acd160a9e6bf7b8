"""Detector of wavefronts that only repeat themselves, while other processes may change memory.

The wavefronts share nothing but memory, LDS and barriers. While neither is written, each of them does what its own
registers and position decide, so one that returns to a state of its own goes round for ever. One that waits at an
s_barrier, in the same state as before, is not released by any of these rounds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Protocol

from harness.emulator.driver.digests import digest, memory_of
from harness.emulator.execution.launch import Launch
from harness.emulator.listing.instructions import Instruction
from harness.emulator.program.decode import Program
from harness.emulator.wavefront.state import Wavefronts

_MOST_STATES = 256
"""States of a wavefront that are kept, in one period without a change of memory."""

_MEMORY = re.compile(r"(global|flat|t?buffer|scratch|ds)_")
_READS = re.compile(r"_(load|read|inv|wbl2|b?permute|swizzle)")
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

    def forget(self) -> None:
        """Begin anew: each wavefront has to return to a state of its own from now on."""
        self._states.clear()
        self._round.clear()

    def look(self, scheduler: Watched) -> bool:
        """Return whether every wavefront has returned to a state of its own since memory was written last, or waits at
        a barrier as before. False while memory may still move, and for work-groups that have not started."""
        settled = scheduler.watch is None or scheduler.watch.settled()
        if scheduler.pending or not settled or any(launch.hostcall is not None for launch in scheduler.launches):
            self._since, self.unchanged = None, False
            return False
        now = digest(memory_of(scheduler.launches)), writes(scheduler)
        self.unchanged = now == self._since
        if not self.unchanged:
            self._since = now
            self.forget()
        return all([*self._returned(scheduler.ready, True), *self._returned(scheduler.at_barriers(), False)])

    def _returned(self, wavefronts: Iterable[Wavefronts], runs: bool) -> Iterable[bool]:
        """Yield for each wavefront whether it has been in its state before, and, if it ``runs``, has run since."""
        for wf in wavefronts:
            for row, wave in enumerate(wf.wave.tolist()):
                key = wf.chunk.launch.rank, id(wf.chunk.launch), wave
                states = self._states.setdefault(key, {})
                if len(states) > _MOST_STATES:
                    states.clear()
                state = digest([repr(wf.block).encode(), wf.s[row].data, wf.v[:, row].tobytes(), wf.scc[row].tobytes()])
                known = state in states
                turn = states.setdefault(state, wf.turn)
                if known and (wf.turn > turn or not runs):
                    self._round.add(key)
                yield key in self._round


def writes(scheduler: Watched) -> int:
    """Return how often a part of the code ran that can write memory or LDS."""
    return sum(
        count
        for launch in scheduler.launches
        for count, can in zip(scheduler.executed(launch), _writing(launch.program), strict=True)
        if can
    )


def _writing(program: Program) -> list[bool]:
    """Return for each segment whether one of its instructions can write."""
    return [any(map(can_write, segment.instructions)) for segment in program.segments]


def can_write(instruction: Instruction) -> bool:
    """Return whether an instruction can write memory or LDS."""
    name = instruction.mnemonic
    if _MEMORY.match(name) is None:
        return _SCALAR_WRITES.match(name) is not None
    return _READS.search(name) is None or "lds" in instruction.modifiers or "_lds_" in name
