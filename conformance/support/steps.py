"""Calls in which one rank stops inside its kernels, each time before another step that the other ranks can notice.

It goes on when each other rank has ended all calls or can do nothing more without it. In the first call no rank stops:
it counts the steps, over which the places of the others are spread. Each rank has its turn to be the one that stops, in
calls of its own, and at places between those of the others. See ``harness.emulator.watch.steps``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from fixtures.findings import Findings

PLACES = 4
"""Places at which each rank stops."""
CALLS = 1 + PLACES
"""Calls of a case: the first one, and those in which a rank stops. More may follow, which show what those left."""


def place(number: int, steps: int, stopping: int, ranks: int) -> int:
    """Return the step, from 1, before which rank ``stopping`` stops in its call ``number``, from 1 to PLACES.

    The first rank begins at the first step, and the last rank ends at the last one but one: the number of steps may
    differ by one from call to call, as waits are longer or shorter. Example: with 17 steps, of four ranks the first one
    stops before the steps 1, 5, 9 and 13, and the second one before 2, 6, 10 and 14.
    """
    last = max(1, steps - 1)
    position, positions = (number - 1) * ranks + stopping, PLACES * ranks
    return 1 + position * (last - 1) // (positions - 1)


class Stops:
    """The calls of one case; ``stopping``: the rank that stops. Every rank makes one, and makes every call."""

    def __init__(self, env: Any, stopping: int, calls: int = CALLS) -> None:
        self._env = env
        self._stopping = stopping
        self._stops = env.rank == stopping
        self._steps = [env.gate.step() for _ in range(calls + 1)]
        self._counted = 0

    @contextlib.contextmanager
    def call(self, number: int) -> Iterator[None]:
        """Make the call ``number``, from 0, in the body."""
        gate, step = self._env.gate, self._steps[number]
        at = place(number, self._counted, self._stopping, self._env.world_size) if 0 < number < CALLS else 0
        gate.enter(step)
        with gate.holding_inside(step, at, self._steps[-2]) if self._stops else gate.watching() as count:
            yield
            self._env.device.synchronize()
        if number == 0:
            self._counted = count[0]
        gate.reach(step)

    def end(self, findings: Findings) -> None:
        """Note a finding if the kernels of the rank that stops had no steps. Call it when all work has ended."""
        findings.true("the kernels of the rank that stops have steps", not self._stops or self._counted)
        self._env.gate.enter(self._steps[-1])
        self._env.gate.reach(self._steps[-1])
