"""Wavefronts that go on for ever in a process of its own: found out, instead of waiting without end.

In ``fast`` and in a mode that is not ``closed``, another process may change memory that a wavefront polls, so a loop
that repeats is not yet an error. After ``PATIENCE`` seconds without the end of a wavefront, the scheduler looks
whether anyone else can change the memory of its launches. If not, a state that returns is an error. Otherwise a rank
reports it to its controller, which knows whether the other ranks can go on: ``harness.standstill``.
"""

from __future__ import annotations

import time
import weakref
from typing import Protocol

from harness import standstill, threads
from harness.emulator.driver import isolation
from harness.emulator.driver.digests import digest, memory_of, state_of
from harness.emulator.driver.progress import Described
from harness.emulator.driver.repetition import Repetition
from harness.emulator.faults import NoProgress, TimeLimit

PATIENCE = 5.0
"""Seconds."""
_SHARE = 8
"""Comparing states takes at most one eighth of the time."""


class Scheduled(Described, Protocol):
    """The part of a scheduler that ``Patience`` examines."""

    limit: float | None


class Patience:
    """Time since a wavefront ended, and the state with which later ones are compared."""

    def __init__(self, scheduler: Scheduled) -> None:
        self._scheduler = weakref.proxy(scheduler)  # which holds this object
        self._turns: dict[bytes, int] = {}
        self.threads = 1
        """Threads that execute the launches; their work-groups do not wait for each other."""
        self.begin(time.perf_counter())

    def begin(self, start: float) -> None:
        """Note that the scheduler's launches began at ``start``, by ``time.perf_counter``."""
        self._begin = self._since = start
        self._alone: bool | None = None
        self._repetition = Repetition()
        self._reference: tuple[bytes, bytes] | None = None
        self._looks, self._renewed, self._next = 0, 1, 0.0

    def restart(self) -> None:
        """Note that a wavefront has ended."""
        self._since = time.perf_counter()
        self._reference = None
        standstill.moves()

    def exhausted(self) -> bool:
        """Return whether no wavefront has ended for long; raises ``TimeLimit`` if the launches have run too long."""
        now = time.perf_counter()
        limit = self._scheduler.limit
        if limit is not None and now - self._begin > limit:
            raise TimeLimit(f"the kernel has not ended after {limit:g} s\n{self._scheduler.describe()}")
        return now - self._since > PATIENCE

    def alone(self) -> bool:
        """Return whether no other process or thread can change the memory of the launches."""
        if self._alone is None:
            self._alone = threads.of_the_program() <= self.threads and self._is_private()
        return self._alone

    def look(self) -> None:
        """Raise ``NoProgress`` if registers and memory are as they were before, and all wavefronts have run since."""
        start = time.perf_counter()
        if start < self._next:
            return
        scheduler = self._scheduler
        if scheduler.pending or (scheduler.watch is not None and not scheduler.watch.settled()):
            return
        turns = {w.wave.tobytes(): w.turn for w in scheduler.ready}
        state = state_of(scheduler.ready)
        before = self._reference
        moved = all(turn > self._turns.get(wave, turn) for wave, turn in turns.items())
        if before is not None and before[0] == state and moved and digest(memory_of(scheduler.launches)) == before[1]:
            raise NoProgress(
                "no wavefront can go on: all registers and all memory are as they were, and nothing else changes them"
                f"\n{scheduler.describe()}"
            )
        self._looks += 1
        if before is None or self._looks >= self._renewed:  # at ever longer distances, as in Brent's algorithm
            self._reference, self._turns = (state, digest(memory_of(scheduler.launches))), turns
            self._looks, self._renewed = 0, 2 * self._renewed
        now = time.perf_counter()
        self._next = now + _SHARE * (now - start)

    def report(self) -> None:
        """Report to the rank's controller, if it has one, whether all wavefronts repeat themselves."""
        start = time.perf_counter()
        if start < self._next or not standstill.reports() or threads.of_the_program() > 1:
            return
        if self._repetition.look(self._scheduler):
            self._repetition.forget()
            standstill.repeats()
        elif not self._repetition.unchanged:
            standstill.moves()
        now = time.perf_counter()
        self._next = now + _SHARE * (now - start)

    def _is_private(self) -> bool:
        allocations = [a for launch in self._scheduler.launches for a in launch.table.allocations]
        if any(allocation.peer is not None for allocation in allocations):
            return False
        return isolation.is_private(allocations)
