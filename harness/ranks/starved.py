"""Time in which ranks were ready to run and the machine gave them no core.

A deadline distinguishes a rank that hangs from one that works. On a machine that is busy with other work, a rank that
works needs longer, so the time in which the kernel let it wait for a core extends the deadline, by up to as much again.
Linux states that time for each thread, in ``/proc/PID/task/TID/schedstat``.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import psutil

LAP = 1.0
"""Seconds between two looks. The first one comes so long after the beginning of a call: short calls pay nothing."""


class Starved:
    """The waits for a core during one call, of the processes ``pids`` and their descendants."""

    def __init__(self, pids: Iterable[int], delays: Callable[[Iterable[int]], Mapping[int, int]] | None = None) -> None:
        self._pids = tuple(pids)
        self._delays = delays or run_delays
        self.begin(0.0)

    def begin(self, limit: float) -> None:
        """Begin a call, which may have ``limit`` seconds more."""
        self.seconds = 0.0
        self._limit = limit
        self._at = time.monotonic()
        self._before: Mapping[int, int] | None = None

    def lap(self) -> float:
        """Return the seconds since the last look in which the thread that waited longest had no core, within what is
        left of ``limit``; 0 if the last look was less than ``LAP`` ago."""
        now = time.monotonic()
        if now - self._at < LAP or self.seconds >= self._limit:
            return 0.0
        length, self._at = now - self._at, now
        before, self._before = self._before, self._delays(self._pids)
        if before is None:
            return 0.0
        seconds = min(_longest(before, self._before), length, self._limit - self.seconds)
        self.seconds += seconds
        return seconds


def starved_since(before: Mapping[int, int], pids: Iterable[int]) -> float:
    """Return the seconds since ``before``, a result of ``run_delays``, in which the thread that waited longest had no
    core."""
    return _longest(before, run_delays(pids))


def _longest(before: Mapping[int, int], after: Mapping[int, int]) -> float:
    return max((delay - before.get(thread, 0) for thread, delay in after.items()), default=0) / 1e9


def run_delays(pids: Iterable[int]) -> dict[int, int]:
    """Return the nanoseconds that each thread of the processes, and of their descendants, has waited for a core. Empty
    where the kernel does not state it."""
    parents = {one.pid: one.info["ppid"] for one in psutil.process_iter(["ppid"])}
    wanted = set(pids)
    grown = True
    while grown:
        below = {pid for pid, parent in parents.items() if parent in wanted} - wanted
        wanted |= below
        grown = bool(below)
    delays = {}
    for pid in wanted:
        with contextlib.suppress(OSError):  # it ended
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    delays[int(task.name)] = int((task / "schedstat").read_text("ascii").split()[1])
    return delays
