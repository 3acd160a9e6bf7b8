"""Compilation time of the ranks, which the controller does not count against the deadline of a call.

A rank reports into a memory file that its controller made with ``memory_file``: ``report_to`` once, then ``with
compiling()`` around every compilation and every wait for one. The controller reads it with ``Meter``. Launches of
compiled kernels do not run any of this.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import threading
import time
from collections.abc import Iterator, Sequence

from harness.errors import HarnessError

_SIZE = 8
_lock = threading.Lock()
_word: memoryview | None = None
_depth = 0
_total = 0


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Report that this process compiles, or waits for another process's compilation, during the body. May be nested."""
    _enter()
    try:
        yield
    finally:
        _leave()


def memory_file() -> int:
    """Make a memory file for one process to report to. It is sealed: a process that truncates it would crash its
    readers."""
    descriptor = os.memfd_create("iris-harness-compiling", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, _SIZE)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return descriptor


def report_to(descriptor: int) -> None:
    """Report to the memory file ``descriptor`` from now on; the descriptor may be closed afterwards."""
    global _word, _depth, _total
    with _lock:
        _word = _mapped(descriptor)
        _depth = _total = 0


class Meter:
    """The controller's view of the compilation of several processes during one call.

    ``descriptors``: their memory files. ``limit``: seconds of compilation that a call may have. ``seconds``: how long
    at least one of them compiled between ``reset`` and the last ``lap``, up to ``limit``.
    """

    def __init__(self, descriptors: Sequence[int], limit: float) -> None:
        self._memory = [mmap.mmap(descriptor, _SIZE) for descriptor in descriptors]
        self._words = [memoryview(memory).cast("q") for memory in self._memory]
        self._limit = limit
        self.reset()

    def reset(self) -> None:
        """Begin a call."""
        self.seconds = 0.0
        self._at, self._spent = self._read()

    def lap(self) -> float:
        """Return the seconds since the last lap in which at least one process compiled, within what is left of
        ``limit``.

        Compilations of several processes within one lap count one after the other, up to the lap's length: ranks that
        wait for each other take turns.
        """
        at, spent = self._read()
        compiled = sum(max(0, after - before) for before, after in zip(self._spent, spent, strict=True))
        seconds = min(compiled, at - self._at) / 1e9
        self._at, self._spent = at, spent
        seconds = min(seconds, self._limit - self.seconds)
        self.seconds += seconds
        return seconds

    def check(self) -> None:
        """Raise HarnessError if a process still compiles after ``limit`` seconds of compilation."""
        busy = [place for place, word in enumerate(self._words) if word[0] < 0]
        if busy and self.seconds >= self._limit:
            raise HarnessError(
                f"ranks {busy} still compile, or wait for a compilation, after {self._limit:g} s of it in one call: the"
                " compiler, or the process that runs it, hangs"
            )

    def close(self) -> None:
        """Unmap the memory files and close their descriptors. Idempotent."""
        for word, memory in zip(self._words, self._memory, strict=True):
            word.release()
            memory.close()
        self._words, self._memory = [], []

    def _read(self) -> tuple[int, list[int]]:
        """Return the current time, and each process's compilation time so far, both in nanoseconds."""
        now = time.monotonic_ns()
        values = [word[0] for word in self._words]
        return now, [value if value >= 0 else now + value for value in values]


# The word of a process: nanoseconds of compilation so far; while it compiles, that less the start of the compilation
# on the monotonic clock, which is negative. So one store of 8 bytes changes both, and a reader needs one load.


def _enter() -> None:
    global _depth
    with _lock:
        _depth += 1
        if _depth == 1 and _word is not None:
            _word[0] = min(-1, _total - time.monotonic_ns())


def _leave() -> None:
    global _depth, _total
    with _lock:
        _depth -= 1
        if _depth == 0 and _word is not None:
            _total = time.monotonic_ns() + _word[0]
            _word[0] = _total


def _mapped(descriptor: int) -> memoryview:
    return memoryview(mmap.mmap(descriptor, _SIZE)).cast("q")
