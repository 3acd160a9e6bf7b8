"""Ranks that wait on the host for what does not happen: none of them uses a core any more.

A rank that works uses a core; so does a process that compiles for it, and a wavefront that polls. If nothing of that
happens for some time in the ranks that have not answered, they wait for each other: for example in a barrier on the
host that one of them never enters. A call that ends for this reason is a hang, as if its deadline had passed.

A rank may also poll, for what a rank that waits on the host would have to write. Polling uses a core, but the rank
reports that it repeats itself (``harness.standstill``), and so it does not make the others busy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from harness import standstill
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
        self._before: dict[int, int | None] | None = None
        self._polled: Mapping[int, standstill.Polling] = {}

    def lap(self, pids: Collection[int], polling: Mapping[int, standstill.Polling] | None = None) -> bool:
        """Return whether the processes ``pids`` have been idle for ``SECONDS``, and the ranks ``polling`` have polled
        in vain as long: then none of them goes on. The time begins again if they are others than at the last look."""
        now = time.monotonic()
        if now - self._since < (FIRST if self._before is None else SECONDS):
            return False
        before, polled, length = self._before, self._polled, now - self._since
        self._before = {pid: self._ticks(pid) for pid in pids}
        self._polled, self._since = polling or {}, now
        if before is None or before.keys() != self._before.keys() or not standstill.lasted(polled, self._polled):
            return False
        used = [
            after - earlier
            for pid, after in self._before.items()
            if after is not None and (earlier := before[pid]) is not None
        ]
        return len(used) == len(before) and sum(used) <= SHARE * length * processes.TICKS
