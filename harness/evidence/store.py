"""Writing evidence: append-only, one line per record, whole lines only."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from types import TracebackType

from harness.errors import HarnessError
from harness.evidence.records import Record, to_json
from harness.evidence.schema import problem_with

_DURABLE = ("run", "plan", "group", "end")


def worker_path(path: Path, worker: str) -> Path:
    """Where xdist worker ``worker`` ("gw0") writes for a run at ``path``: ``evidence-gw0.jsonl`` beside it."""
    return path.with_name(f"{path.stem}-{worker}{path.suffix}")


class Store:
    """Appends records to ``path``, which is created with its folders.

    Each record goes out in one ``write`` to a descriptor opened for appending, so it survives the death of this process
    at once, and lines of several threads do not mix. What closes a step (run, plan, group, end) is also synced to
    disk, with all lines before it. Processes do not share a file: an xdist worker opens ``worker_path`` and the
    controller absorbs it. Raises HarnessError for a record that does not fit the schema, and OSError as the file
    system does.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._close_torn_line()

    def append(self, record: Record) -> None:
        """Check ``record`` against the schema and write its line."""
        line = to_json(record)
        if problem := problem_with(line):
            raise HarnessError(f"a {record.record} record does not fit the evidence schema: {problem}")
        try:
            text = json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError) as error:
            raise HarnessError(f"a {record.record} record is not plain JSON: {error}") from error
        self._write(text.encode("utf-8", "backslashreplace") + b"\n", durable=record.record in _DURABLE)

    def absorb(self, path: Path | str) -> int:
        """Move a finished worker's whole lines to the end of this file, remove its file, and give their number.

        A last line that the worker did not finish is kept as it is, so that a reader reports it.
        """
        source = Path(path)
        content = source.read_bytes()
        if content and not content.endswith(b"\n"):
            content += b"\n"
        self._write(content, durable=True)
        source.unlink()
        return content.count(b"\n")

    def absorb_workers(self) -> int:
        """Absorb the file of every worker of this run; call it when they have ended."""
        return sum(self.absorb(path) for path in sorted(self.path.parent.glob(worker_path(self.path, "gw*").name)))

    def close(self) -> None:
        """Sync and close; calling it again does nothing."""
        with self._lock:
            if self._descriptor >= 0:
                os.fsync(self._descriptor)
                os.close(self._descriptor)
                self._descriptor = -1

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, data: bytes, *, durable: bool) -> None:
        with self._lock:
            if self._descriptor < 0:
                raise HarnessError(f"{self.path} is closed")
            view = memoryview(data)
            while view:
                view = view[os.write(self._descriptor, view) :]
            if durable:
                os.fsync(self._descriptor)

    def _close_torn_line(self) -> None:
        """End a line that a killed writer left open, so that it does not swallow the next record."""
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":
            os.write(self._descriptor, b"\n")
