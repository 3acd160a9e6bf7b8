"""Counts of stalls: executions of s_waitcnt with more operations outstanding than it allows.

On hardware such a wait lasts until the memory has answered, which may be at once; here nothing takes time, so the count
is an upper bound of the stalls of a kernel. A wait is counted once, under the slowest kind of operation it waits for.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.emulator.execution.launch import Launch
from harness.emulator.watch.check.queues import LGKMCNT_MOST, VMCNT_MOST

KINDS = (
    "peer atomic",
    "peer load",
    "peer store",
    "atomic",
    "load",
    "write-back",
    "store",
    "invalidate",
    "lds",
    "scalar",
)
"""Kinds of outstanding operations, the slowest first. *peer*: at least one lane accessed another rank's memory."""


_Queues = tuple[tuple[str, ...], tuple[str, ...]]


class States:
    """Combinations of outstanding operations, by the counters vmcnt and lgkmcnt. Each has a number, 0 without any."""

    def __init__(self) -> None:
        self._queues: list[_Queues] = [((), ())]
        self._numbers: dict[_Queues, int] = {((), ()): 0}

    def __len__(self) -> int:
        return len(self._queues)

    def issue(self, number: int, kind: str) -> int:
        """Return the state after one more operation. If its counter is full, the oldest one has completed."""
        vm, lgkm = self._queues[number]
        if kind in ("lds", "scalar"):
            return self._number((vm, (*lgkm, kind)[-LGKMCNT_MOST:]))
        return self._number(((*vm, kind)[-VMCNT_MOST:], lgkm))

    def wait(self, number: int, vm: int, lgkm: int) -> tuple[int, str | None]:
        """Return the state after an s_waitcnt, at which at most ``vm`` and ``lgkm`` operations stay outstanding.

        Also return the slowest kind of operation that it waits for, None if it does not wait.
        """
        queues = self._queues[number]
        left = [max(0, len(queue) - allowed) for queue, allowed in zip(queues, (vm, lgkm), strict=True)]
        waited = [kind for queue, done in zip(queues, left, strict=True) for kind in queue[:done]]
        if not waited:
            return number, None
        first, second = (queue[done:] for queue, done in zip(queues, left, strict=True))
        return self._number((first, second)), min(waited, key=KINDS.index)

    def _number(self, queues: _Queues) -> int:
        if queues not in self._numbers:
            self._numbers[queues] = len(self._queues)
            self._queues.append(queues)
        return self._numbers[queues]


class Stalls:
    """Outstanding operations of each wavefront of one launch."""

    def __init__(self, launch: Launch) -> None:
        self._counts = launch.stalls
        self._numbers = np.zeros(launch.groups * launch.waves_per_group, np.int64)
        self._states = States()

    def issue(self, waves: np.ndarray, kind: str) -> None:
        """Add an operation of each of ``waves``."""
        for number, some in self._alike(waves):
            self._numbers[some] = self._states.issue(number, kind)

    def wait(self, waves: np.ndarray, source: str, vm: int, lgkm: int) -> None:
        """Execute an s_waitcnt at ``source``, see ``States.wait``."""
        for number, some in self._alike(waves):
            following, kind = self._states.wait(number, vm, lgkm)
            if kind is not None:
                self._counts[kind, source] = self._counts.get((kind, source), 0) + len(some)
                self._numbers[some] = following

    def _alike(self, waves: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the wavefronts with the same outstanding operations, and their number."""
        numbers = self._numbers[waves]
        if not len(numbers):
            return
        if (numbers == numbers[0]).all():
            yield int(numbers[0]), waves
            return
        for number in np.unique(numbers).tolist():
            yield number, waves[numbers == number]
