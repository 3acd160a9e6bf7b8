"""Ranks that wait on the host for what does not happen: none of them uses a core any more.

A rank that works uses a core; so does a process that compiles for it, and a wavefront that polls. If nothing of that
happens for some time in the ranks that have not answered, they wait for each other: for example in a barrier on the
host that one of them never enters. A call that ends for this reason is a hang, as if its deadline had passed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from harness.ranks import processes

SECONDS = 10.0
"""How long ranks must be idle. No case sleeps so long."""

SHARE = 0.01
"""The part of one core that all ranks together may use meanwhile: a rank may look from time to time whether the others
have gone on."""

FIRST = 1.0
"""Seconds of a call after which the use of cores is read first: short calls pay nothing."""


class Idle:
    """The use of cores during one call. ``ticks(pid)``: see ``processes.cpu_ticks``."""

    def __init__(self, ticks: Callable[[int], int | None] = processes.cpu_ticks) -> None:
        self._ticks = ticks
        self.begin()

    def begin(self) -> None:
        """Begin a call, or begin again: something happened."""
        self._since = time.monotonic()
        self._before: list[int | None] | None = None

    def lap(self, pids: Collection[int]) -> bool:
        """Return whether the processes ``pids``, the same ones since ``begin``, have been idle for ``SECONDS``."""
        now = time.monotonic()
        if now - self._since < (FIRST if self._before is None else SECONDS):
            return False
        before, self._before = self._before, [self._ticks(pid) for pid in sorted(pids)]
        length, self._since = now - self._since, now
        if before is None:
            return False
        used = [
            after - earlier
            for earlier, after in zip(before, self._before, strict=True)
            if earlier is not None and after is not None
        ]
        return len(used) == len(before) and sum(used) <= SHARE * length * processes.TICKS
