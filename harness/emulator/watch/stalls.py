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


class Stalls:
    """Outstanding operations of each wavefront of one launch, by the counters vmcnt and lgkmcnt.

    Wavefronts with the same outstanding operations have the same number in ``_numbers``, an index of ``_queues``.
    """

    def __init__(self, launch: Launch) -> None:
        self._counts = launch.stalls
        self._numbers = np.zeros(launch.groups * launch.waves_per_group, np.int64)
        self._queues: list[_Queues] = [((), ())]
        self._number_of: dict[_Queues, int] = {((), ()): 0}

    def issue(self, waves: np.ndarray, kind: str) -> None:
        """Add an operation of each of ``waves``. If its counter is full, the oldest one has completed."""
        for number, some in self._alike(waves):
            vm, lgkm = self._queues[number]
            if kind in ("lds", "scalar"):
                lgkm = (*lgkm, kind)[-LGKMCNT_MOST:]
            else:
                vm = (*vm, kind)[-VMCNT_MOST:]
            self._numbers[some] = self._number(vm, lgkm)

    def wait(self, waves: np.ndarray, source: str, vm: int, lgkm: int) -> None:
        """Execute an s_waitcnt at ``source``: at most ``vm`` and ``lgkm`` operations stay outstanding."""
        for number, some in self._alike(waves):
            queues = self._queues[number]
            left = [max(0, len(queue) - allowed) for queue, allowed in zip(queues, (vm, lgkm), strict=True)]
            waited = [kind for queue, done in zip(queues, left, strict=True) for kind in queue[:done]]
            if waited:
                key = min(waited, key=KINDS.index), source
                self._counts[key] = self._counts.get(key, 0) + len(some)
                self._numbers[some] = self._number(*(queue[done:] for queue, done in zip(queues, left, strict=True)))

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

    def _number(self, vm: tuple[str, ...], lgkm: tuple[str, ...]) -> int:
        if (vm, lgkm) not in self._number_of:
            self._number_of[vm, lgkm] = len(self._queues)
            self._queues.append((vm, lgkm))
        return self._number_of[vm, lgkm]
