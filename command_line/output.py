"""Output of the command line, robust against a closed pipe, a full disk and a stream with a small character set."""

from __future__ import annotations

import contextlib
import errno
import io
import select
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console


class _Lenient(io.FileIO):
    """Raw stream that never raises: it keeps the first error in ``error`` and discards everything written after it."""

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
            select.select([], [self], [])  # the descriptor is non-blocking, and its buffer is full
        return len(data)


class Streams:
    """State of stdout while ``lenient`` is active."""

    def __init__(self, stdout: _Lenient | None) -> None:
        self._stdout = stdout

    def lost(self) -> str | None:
        """Flush stdout and return why output was lost, or None.

        A reader that closed the pipe, as in ``| head``, wanted no more output: that is not a loss.
        """
        if sys.stdout is not None:
            sys.stdout.flush()
        error = self._stdout.error if self._stdout else None
        return None if error is None or error.errno == errno.EPIPE else error.strerror


@contextlib.contextmanager
def lenient() -> Iterator[Streams]:
    """Make writing to stdout and stderr raise nothing inside the ``with`` block.

    Characters that a stream cannot encode are escaped, and output after an error is dropped. A stream without a file
    descriptor stays as it is.
    """
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


def console() -> Console:
    """Return the console that commands use to print to stdout."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


def say(message: str) -> None:
    """Print one line on stderr."""
    click.echo(f"iris-harness: {printable(' '.join(message.split()))}", err=True)


def printable(text: str) -> str:
    """Return ``text`` in one line with control characters escaped: evidence may hold arbitrary characters."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _wrapped(stream: TextIO) -> tuple[TextIO, _Lenient | None]:
    try:
        stream.flush()
        raw = _Lenient(stream.fileno())
    except (AttributeError, OSError, ValueError):  # closed from the start, or not a file, as in a test
        return stream, None
    lines = raw.isatty() or stream is sys.stderr
    text = io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=stream.encoding, errors="backslashreplace", line_buffering=lines
    )
    return text, raw
