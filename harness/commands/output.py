"""What the command line prints, where printing can fail: a closed pipe, a full disk, a stream of few characters."""

from __future__ import annotations

import contextlib
import errno
import io
import select
import sys
from collections.abc import Iterator
from typing import Any, TextIO


class _Lenient(io.FileIO):
    """A descriptor that takes what is written to it, and discards it after the first error, which it keeps."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        while self.error is None:
            try:
                count: int | None = super().write(data)
            except OSError as error:
                self.error = error
                continue
            if count is not None:
                return count
            select.select([], [self], [])  # not blocking, and full
        return len(data)


class Streams:
    """What became of what was written to stdout."""

    def __init__(self, stdout: _Lenient | None) -> None:
        self._stdout = stdout

    def lost(self) -> str | None:
        """Why output was lost, or None. A reader that went away, as in ``| head``, wanted no more: nothing is lost."""
        if sys.stdout is not None:
            sys.stdout.flush()
        error = self._stdout.error if self._stdout else None
        return None if error is None or error.errno == errno.EPIPE else error.strerror


@contextlib.contextmanager
def lenient() -> Iterator[Streams]:
    """Inside, writing to stdout and stderr raises nothing: characters that they cannot show are escaped, and output
    after an error is dropped. A stream without a descriptor stays as it is."""
    before = sys.stdout, sys.stderr
    sys.stdout, stdout = _wrapped(sys.stdout)
    sys.stderr, _ = _wrapped(sys.stderr)
    try:
        yield Streams(stdout)
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        sys.stdout, sys.stderr = before


def _wrapped(stream: TextIO) -> tuple[TextIO, _Lenient | None]:
    try:
        stream.flush()
        raw = _Lenient(stream.fileno())
    except (AttributeError, OSError, ValueError):  # closed from the start, or not a file: replaced by a test
        return stream, None
    lines = raw.isatty() or stream is sys.stderr
    text = io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=stream.encoding, errors="backslashreplace", line_buffering=lines
    )
    return text, raw


def printable(text: str) -> str:
    """``text`` in one line, with control characters escaped: evidence may hold anything."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
