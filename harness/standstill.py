"""Ranks none of which can ever go on, although their processes run: decided at once, and not by a deadline.

A rank cannot go on

- if its kernels only poll, or try to take a lock: each wavefront has returned to a state of its own, has stored nothing
  since, and the memory that it reads is as it was (``harness.emulator.driver.repetition`` establishes that), or
- if it waits in the harness's barrier for a rank that has not arrived there and cannot go on, or has ended its part.

If that holds for all ranks that have not answered, and each that polls has confirmed it twice since then, no rank has
changed memory meanwhile, and none ever will: what a wavefront does depends on its registers and on memory alone.
Anything else that a rank does, such as computing or a loop that stores, is never taken for a standstill at once. Of a
rank that waits on the host, in a call of torch.distributed or asleep, ``harness.ranks.idle`` decides after some
seconds. A library that changes memory by a process of its own is not supported in this; by a thread, it is.

A rank reports into a memory file that its controller made: ``report_to`` once, ``begin`` for each call.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

EPOCH, CONFIRMED, ARRIVALS, INSIDE = range(4)
"""Words of a rank. EPOCH changes when the rank begins or ceases to repeat itself: it is odd while it does. CONFIRMED
counts the times at which that was established. ARRIVALS counts calls of the harness's barrier in this call, INSIDE is
1 in one."""
_WORDS = 4
_SIZE = 8 * _WORDS
_AGAIN = 2
"""Confirmations after all ranks have come to a stand: between the two, each wavefront has run."""

_words: memoryview | None = None


def memory_file() -> int:
    """Make a memory file for one rank to report to, sealed against truncation."""
    descriptor = os.memfd_create("iris-harness-standstill", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, _SIZE)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return descriptor


# The side of a rank


def report_to(descriptor: int | None) -> None:
    """Report to the memory file ``descriptor`` from now on, None for nowhere. The descriptor may be closed."""
    global _words
    _words = None if descriptor is None else memoryview(mmap.mmap(descriptor, _SIZE)).cast("q")


def reports() -> bool:
    """Return whether this process reports to a controller."""
    return _words is not None


def begin() -> None:
    """Note that a call begins."""
    if _words is not None:
        moves()
        _words[INSIDE] = _words[ARRIVALS] = 0


def repeats() -> None:
    """Note that all wavefronts of this rank repeat themselves, and have run since the last such note."""
    if _words is not None:
        _words[EPOCH] |= 1
        _words[CONFIRMED] += 1


def moves() -> None:
    """Note that this rank may go on."""
    if _words is not None and _words[EPOCH] & 1:
        _words[EPOCH] += 1


@contextlib.contextmanager
def arrived() -> Iterator[None]:
    """Note that this rank is in the harness's barrier during the body."""
    if _words is None:
        yield
        return
    _words[ARRIVALS] += 1
    _words[INSIDE] = 1
    try:
        yield
    finally:
        _words[INSIDE] = 0


# The side of the controller


@dataclass(frozen=True)
class Standstill:
    """Ranks that ``poll``, ranks ``inside`` the harness's barrier, and ranks ``idle`` on the host: none goes on."""

    poll: tuple[int, ...]
    inside: tuple[int, ...]
    idle: tuple[int, ...] = ()

    def __str__(self) -> str:
        parts = [f"ranks {list(self.poll)} poll memory that no rank changes"] if self.poll else []
        parts += [f"ranks {list(self.inside)} wait for the others to end their part"] if self.inside else []
        parts += [f"ranks {list(self.idle)} wait on the host and use no core"] if self.idle else []
        return ", ".join(parts)


@dataclass(frozen=True)
class Polling:
    """Report of a rank that repeats itself: ``epoch`` is another one if it went on in between, and ``confirmed`` counts
    how often it has established that."""

    epoch: int
    confirmed: int


def lasted(before: Mapping[int, Polling], now: Mapping[int, Polling]) -> bool:
    """Return whether the ranks that polled at one moment do now, have not gone on, and have confirmed it twice."""
    return before.keys() == now.keys() and all(
        now[rank].epoch == first.epoch and now[rank].confirmed - first.confirmed >= _AGAIN
        for rank, first in before.items()
    )


class Observer:
    """The controller's view of its ranks during one call. ``descriptors``: rank -> its memory file."""

    def __init__(self, descriptors: Mapping[int, int]) -> None:
        self._memory = {rank: mmap.mmap(descriptor, _SIZE) for rank, descriptor in descriptors.items()}
        self._words = {rank: memoryview(memory).cast("q") for rank, memory in self._memory.items()}
        self.reset()

    def reset(self) -> None:
        """Begin a call."""
        self._first: dict[int, tuple[int, ...]] = {}

    def look(self, waiting: Collection[int]) -> Standstill | None:
        """Return the standstill of the ranks ``waiting``, which have not answered; None if there is none, or if it is
        not certain yet."""
        now = {rank: tuple(words) for rank, words in self._words.items()}
        stopped = standing(now, waiting)
        first = self._first
        same = first.keys() == set(waiting) and all(
            first[rank][EPOCH] == now[rank][EPOCH] and first[rank][ARRIVALS] == now[rank][ARRIVALS] for rank in waiting
        )
        if stopped is None or not same:
            self._first = {} if stopped is None else {rank: now[rank] for rank in waiting}
            return None
        sure = all(now[rank][CONFIRMED] - first[rank][CONFIRMED] >= _AGAIN for rank in stopped.poll)
        return stopped if sure else None

    def polling(self, waiting: Collection[int]) -> dict[int, Polling]:
        """Return which of the ranks ``waiting`` report that they repeat themselves."""
        words = {rank: self._words[rank] for rank in sorted(waiting)}
        return {rank: Polling(of[EPOCH], of[CONFIRMED]) for rank, of in words.items() if of[EPOCH] & 1}

    def close(self) -> None:
        """Unmap the memory files. Idempotent."""
        for rank, words in self._words.items():
            words.release()
            self._memory[rank].close()
        self._words, self._memory = {}, {}


def standing(words: Mapping[int, Sequence[int]], waiting: Collection[int]) -> Standstill | None:
    """Return the standstill that the words of all ranks show at one moment, of which those in ``waiting`` have not
    answered; None if one of these can go on."""
    poll = tuple(sorted(rank for rank in waiting if words[rank][EPOCH] & 1))
    inside = tuple(sorted(set(waiting) - set(poll)))
    still = [rank for rank in words if rank not in inside]
    if not waiting or not still:
        return None
    fewest = min(words[rank][ARRIVALS] for rank in still)
    if all(words[rank][INSIDE] == 1 and words[rank][ARRIVALS] > fewest for rank in inside):
        return Standstill(poll, inside)
    return None
