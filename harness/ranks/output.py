"""Output of the ranks' processes (stdout and stderr), in memory files that a thread of the controller keeps short."""

from __future__ import annotations

import os
import threading

from harness import threads

OUTPUT_LIMIT = 1 << 24
"""Bytes that a memory file may hold. A longer one is emptied; its beginning and all later output are kept."""

_LOOK = 0.05
"""Seconds between two checks of the files: a process that writes as fast as it can adds about ten MB in that time."""
_HEAD, _TAIL = 1 << 12, 1 << 14


class Output:
    """The output of one process in a memory file that is opened for appending. Safe for use from several threads."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._head = self._last = b""
        self._lost = 0

    @property
    def lost(self) -> int:
        """Bytes discarded since ``mark``. Slightly more may be lost while the file is emptied."""
        return self._lost

    def mark(self) -> None:
        """Discard all earlier output: ``text`` and ``lost`` start here."""
        with self._lock:
            if os.fstat(self._descriptor).st_size:
                os.ftruncate(self._descriptor, 0)  # opened for appending: the process goes on at the new end
            self._head, self._last, self._lost = b"", b"", 0

    def shorten(self) -> None:
        """Empty the file if it is longer than OUTPUT_LIMIT."""
        with self._lock:
            size = os.fstat(self._descriptor).st_size
            if size <= OUTPUT_LIMIT:
                return
            if not self._head:
                self._head = os.pread(self._descriptor, _HEAD, 0)
                self._lost = -len(self._head)
            self._last = os.pread(self._descriptor, _TAIL, size - _TAIL)
            self._lost += size
            os.ftruncate(self._descriptor, 0)

    def text(self) -> str:
        """Return the output since ``mark``: all of it if it is short, else its beginning, a note, and its end."""
        with self._lock:
            size = os.fstat(self._descriptor).st_size
            head = self._head or os.pread(self._descriptor, _HEAD, 0)
            tail = os.pread(self._descriptor, _TAIL, max(0, size - _TAIL))
        if not self._head and size <= _HEAD + _TAIL:
            return (head + tail[max(0, len(head) + len(tail) - size) :]).decode(errors="replace")
        tail = (self._last + tail)[-_TAIL:]
        written = size if not self._lost else self._lost + len(self._head) + size
        cut = f"{'at least ' if self._lost else ''}{written - len(head) - len(tail):,} bytes of output cut"
        return f"{head.decode(errors='replace')}\n[... {cut} ...]\n{tail.decode(errors='replace')}"


class Watch:
    """A daemon thread that keeps outputs short, from the first ``add`` until ``stop``."""

    def __init__(self) -> None:
        self._outputs: list[Output] = []
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, descriptor: int) -> Output:
        """Watch a memory file, which must stay open until ``remove`` or ``stop``."""
        output = Output(descriptor)
        with self._lock:
            self._outputs.append(output)
        if self._thread is None:
            # The thread gets no reference to this object, so that it and its owner can be collected.
            arguments = (self._outputs, self._lock, self._stopped)
            self._thread = threads.start(_keep_short, arguments, "output-watch")
        return output

    def remove(self, output: Output) -> None:
        """Stop watching ``output``; its descriptor may be closed then. Idempotent."""
        with self._lock:
            if output in self._outputs:
                self._outputs.remove(output)

    def stop(self) -> None:
        """Stop watching all outputs. Idempotent."""
        self._stopped.set()
        with self._lock:
            self._outputs.clear()


def _keep_short(outputs: list[Output], lock: threading.Lock, stopped: threading.Event) -> None:
    while not stopped.wait(_LOOK):
        with lock:
            for output in outputs:
                output.shorten()
