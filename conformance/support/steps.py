"""Calls in which one rank stops inside its kernels, each time before another step that the other ranks can notice.

It goes on when each other rank has ended all calls or can do nothing more without it. In the first call no rank stops:
it counts the steps, over which the places of the others are spread. See ``harness.emulator.watch.steps``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from fixtures.findings import Findings

PLACES = 6
CALLS = 1 + PLACES
"""Calls of a case: the first one, and those in which a rank stops."""


def place(number: int, steps: int) -> int:
    """Return the step, from 1, before which a rank stops in its call ``number``, from 1 to PLACES.

    The last step is left out: the number of steps may differ by one from call to call, as waits are longer or shorter.
    Example: with 11 steps, the calls 1 to 6 stop before the steps 1, 2, 4, 6, 8 and 10.
    """
    last = max(1, steps - 1)
    return 1 + (number - 1) * (last - 1) // (PLACES - 1)


class Stops:
    """The calls of one case; ``stopping``: the rank that stops. Every rank makes one, and makes every call."""

    def __init__(self, env: Any, stopping: int) -> None:
        self._env = env
        self._stops = env.rank == stopping
        self._steps = [env.gate.step() for _ in range(CALLS + 1)]
        self._counted = 0

    @contextlib.contextmanager
    def call(self, number: int) -> Iterator[None]:
        """Make the call ``number``, from 0, in the body."""
        gate, step = self._env.gate, self._steps[number]
        at = place(number, self._counted) if number else 0
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
