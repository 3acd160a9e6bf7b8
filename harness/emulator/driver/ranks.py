"""All ranks in one process: the kernels of several ranks run under one scheduler, so that an ordering failure replays.

    driver = emulator.activate(mode="weak", choices=7)
    with emulator.concurrent_ranks(driver) as ranks:
        with ranks.rank(0):
            produce[(1,)](heaps[0], ...)          # queued
        with ranks.rank(1):
            consume[(1,)](heaps[1], ...)
                                                  # all run here, concurrently

Launches of one rank run in the order of their calls, as on one stream. No other process or thread may change the memory
meanwhile: then the run depends only on the inputs and the driver's choices, and wavefronts that wait for ever are
reported. The output of kernels is written at the end, rank after rank.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from harness.emulator.driver.driver import EmulatedDriver
from harness.emulator.execution.launch import Launch, nothing


class Ranks:
    """Launches of each rank, queued inside ``concurrent_ranks``."""

    def __init__(self, driver: EmulatedDriver) -> None:
        self._driver = driver
        self.streams: dict[int, list[Launch]] = {}
        self._printed: dict[int, list[str]] = {}

    @contextmanager
    def rank(self, number: int) -> Iterator[None]:
        """Assign kernels launched in this block to rank ``number``.

        ``ValueError`` for a negative number, or inside the block of another rank.
        """
        if number < 0:
            raise ValueError(f"rank number must be 0 or more, got {number}")
        if self._driver.rank is not None:
            raise ValueError(
                f"rank({number}) cannot be used inside the block of rank {self._driver.rank}: leave that block first"
            )
        self._driver.rank = number
        self._driver.defer = self.streams.setdefault(number, []).append
        self._driver.write = self._printed.setdefault(number, []).append
        try:
            yield
        finally:
            self._driver.rank = None
            self._driver.defer = self._outside
            self._driver.write = None

    def show(self) -> None:
        """Write the output of the kernels, rank after rank."""
        for number in sorted(self._printed):
            sys.stdout.write("".join(self._printed[number]))
            self._printed[number].clear()
        sys.stdout.flush()

    def _outside(self, launch: Launch) -> None:
        raise ValueError(
            f"kernel {launch.program.name} was launched inside concurrent_ranks(), but outside any rank(n) block"
        )


@contextmanager
def concurrent_ranks(driver: EmulatedDriver) -> Iterator[Ranks]:
    """Queue the launches made inside the block, by rank, and run them concurrently at its end.

    Raises a kernel's fault: the first fault ends all ranks. ``ValueError`` inside another ``concurrent_ranks``.
    """
    if driver.defer is not None:
        raise ValueError("concurrent_ranks() cannot be used inside another concurrent_ranks()")
    ranks = Ranks(driver)
    driver.defer = ranks._outside
    try:
        yield ranks
    finally:
        driver.defer = None
    launches = [launch for stream in ranks.streams.values() for launch in stream]
    try:
        driver.run(list(ranks.streams.values()), closed=True)
    finally:
        ranks.show()
        for launch in launches:
            launch.record_it()
            launch.record_it = nothing  # it holds the launch
