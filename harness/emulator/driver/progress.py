"""Progress of launches whose memory nothing else can change: found to be missing when a state returns."""

from __future__ import annotations

import weakref
from typing import Protocol

from harness.emulator.driver.digests import digest, memory_of, state_of
from harness.emulator.driver.repetition import Watched
from harness.emulator.faults import NoProgress


class Described(Watched, Protocol):
    """The part of a scheduler that is examined and reported."""

    def describe(self) -> str: ...


class Progress:
    """States that a scheduler has reached since memory changed, with the turns used by each wavefront."""

    def __init__(self, scheduler: Described) -> None:
        self._scheduler = weakref.proxy(scheduler)  # which holds this object
        self._memory = b""
        self._states: dict[bytes, dict[tuple[int, bytes], int]] = {}

    def look(self) -> None:
        """Raise ``NoProgress`` if all wavefronts have used a turn and left memory and every register unchanged.

        A deterministic machine that returns to an earlier state, while no other process changes memory, repeats for
        ever.
        """
        scheduler = self._scheduler
        memory = digest(memory_of(scheduler.launches))
        calm = (
            not scheduler.pending and memory == self._memory and (scheduler.watch is None or scheduler.watch.settled())
        )
        if not calm:
            self._memory = memory
            self._states.clear()
        state = state_of(scheduler.ready)
        turns = {(w.chunk.launch.rank, w.wave.tobytes()): w.turn for w in scheduler.ready}
        before = self._states.setdefault(state, turns)
        if all(turn > before[wave] for wave, turn in turns.items()):
            raise NoProgress(
                f"no wavefront can go on: each polls memory that nothing will change\n{scheduler.describe()}"
            )
