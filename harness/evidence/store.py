"""Writer of evidence: append-only, one line per record, whole lines only, each part of the file's hash chain."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.errors import HarnessError, UsageError
from harness.evidence.chain import Chain
from harness.evidence.lines import MAX_LINE, NotRegularError, lines, parse
from harness.evidence.records import Record, Run, to_json
from harness.evidence.schema import problem_with

_DURABLE = ("run", "plan", "group", "end")
_ENVELOPE = ("run", "sequence", "chain")
_KEPT = 4096
"""Bytes that are kept of a worker's damaged line: enough to recognise it."""


def worker_path(path: Path, worker: str) -> Path:
    """Return the file of xdist worker ``worker`` ("gw0") for a run at ``path``: ``evidence-gw0.jsonl`` next to it."""
    return path.with_name(f"{path.stem}-{worker}{path.suffix}")


def worker_of(path: Path, worker_file: Path) -> str:
    """Return the worker that writes ``worker_file`` for a run at ``path``: the inverse of ``worker_path``."""
    return worker_file.name.removeprefix(f"{path.stem}-").removesuffix(path.suffix)


def check_unused(path: Path) -> None:
    """Raise UsageError if ``path`` is not empty: records of two runs are never in one file."""
    try:
        status = path.lstat()  # of the link itself, not of its target
    except OSError:  # missing, or not accessible: then opening it raises later
        return
    if not _is_unused(status):
        raise _in_use(path)


def _is_unused(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and not status.st_size


def _in_use(path: Path) -> UsageError:
    return UsageError(f"{path} exists already, and runs do not share a file: move or remove it, or name another file")


class Store:
    """Appends records to ``path``, which is created with its folders.

    Each record is written in one ``write`` to a descriptor opened for appending, so it survives the death of this
    process, and lines of several threads do not mix. Records that complete a step (run, plan, group, end) are also
    synced to disk, with all lines before them. Processes do not share a file: an xdist worker opens ``worker_path`` and
    the controller absorbs it.

    ``run_id`` may be omitted if the run record is appended first; ``writer`` is the name of an xdist worker. Raises
    UsageError if the file is not empty or another process writes it, HarnessError for a record that does not fit the
    schema, and OSError for errors of the file system.
    """

    def __init__(self, path: Path | str, run_id: str | None = None, writer: str = "") -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        check_unused(self.path)
        self._writer = writer
        self._chain = Chain(run_id, writer) if run_id is not None else None
        self._lock = threading.Lock()
        self._descriptor = _created(self.path)

    def append(self, record: Record) -> None:
        """Check ``record`` against the schema and write its line."""
        with self._lock:
            chain = self._chain_for(record)
            line = {"schema": 0, "record": "", "run": chain.run, "sequence": chain.sequence, **to_json(record)}
            if self._writer:
                line["writer"] = self._writer
            if problem := problem_with({**line, "chain": chain.value}):
                raise HarnessError(f"a {record.record} record does not fit the evidence schema: {problem}")
            self._chain = chain
            self._seal(line, chain, check=True)
            if record.record in _DURABLE:
                os.fsync(self._descriptor)

    def absorb(self, path: Path | str) -> int:
        """Move a finished worker's records to the end of this file's chain, remove its file, and return their number.

        A line that is damaged or does not fit the worker's own chain is copied as it is (cut after some kilobytes), so
        that a reader reports it.
        """
        source = Path(path)
        with self._lock:
            if self._chain is None:
                raise HarnessError(f"{self.path} has no run record yet: append it before the records of workers")
            theirs, count = Chain(self._chain.run, worker_of(self.path, source)), 0
            for line in _lines_of(source):
                count += 1
                if (plain := _intact(line, theirs)) is None:
                    self._write((line or b"a line that is too long")[:_KEPT].rstrip(b"\n") + b"\n")
                    continue
                body = {key: value for key, value in plain.items() if key not in _ENVELOPE}
                head = {"schema": 0, "record": "", "run": self._chain.run, "sequence": self._chain.sequence}
                self._seal({**head, **body}, self._chain)
            os.fsync(self._descriptor)
        if not source.is_dir():
            source.unlink()
        return count

    def absorb_workers(self) -> int:
        """Absorb the file of every worker of this run. Call it after they have ended."""
        return sum(self.absorb(path) for path in sorted(self.path.parent.glob(worker_path(self.path, "gw*").name)))

    def close(self) -> None:
        """Sync and close the file. Idempotent."""
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

    def _chain_for(self, record: Record) -> Chain:
        if self._chain is not None:
            if isinstance(record, Run) and record.id != self._chain.run:
                raise HarnessError(f"{self.path} is of run {self._chain.run}, not of {record.id}")
            return self._chain
        if not isinstance(record, Run):
            raise HarnessError(f"{self.path} begins with a run record, not with a {record.record} record")
        return Chain(record.id, self._writer)

    def _seal(self, line: dict[str, Any], chain: Chain, *, check: bool = False) -> None:
        """Write ``line`` with its hash. ``check``: check that a reader accepts it; not needed for a line that was
        read."""
        try:
            text = json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except (TypeError, ValueError, RecursionError) as error:
            raise HarnessError(f"a {line['record']} record is not plain JSON: {error}") from error
        data, value = chain.sealed(text.encode("utf-8", "backslashreplace"))
        if len(data) > MAX_LINE:
            raise HarnessError(f"a {line['record']} record has {len(data):,} bytes, and at most {MAX_LINE:,} are read")
        if check:
            try:
                parse(data)
            except ValueError as error:
                raise HarnessError(f"a {line['record']} record cannot be read again: it {error}") from error
        self._write(data)
        chain.advance(value)

    def _write(self, data: bytes) -> None:
        """Append all of ``data`` or, if the file system fails (a full disk), nothing of it."""
        if self._descriptor < 0:
            raise HarnessError(f"{self.path} is closed")
        size = os.fstat(self._descriptor).st_size
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, size)
            raise


def _created(path: Path) -> int:
    """Create an empty file and lock it for this process; the kernel drops the lock when the descriptor is closed."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"another run{_writer_of(descriptor)} writes {path}, and runs do not share a file: name another file"
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise
            # The file system has no locks: check_unused and the chain's run id still show a second run.
        if not _is_unused(os.fstat(descriptor)):  # a run began and ended since check_unused
            raise _in_use(path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _writer_of(descriptor: int) -> str:
    """Return ", process N," for the process that holds the lock of an open file; "" if Linux does not show it."""
    inode = os.fstat(descriptor).st_ino
    with contextlib.suppress(OSError):
        listed = Path("/proc/locks").read_text(encoding="ascii", errors="replace")
        if match := re.search(rf"FLOCK +\w+ +WRITE +(\d+) +\w+:\w+:{inode} ", listed):
            return f", process {match[1]},"
    return ""


def _lines_of(source: Path) -> Iterator[bytes | None]:
    """Yield the lines of a worker's file; if it is not a regular file, one line that a reader reports as a problem."""
    try:
        yield from lines(source)
    except NotRegularError:
        yield f"{source.name} is not a regular file".encode()


def _intact(line: bytes | None, chain: Chain) -> dict[str, Any] | None:
    """Return the content of a worker's line, or None if it is damaged."""
    if line is None or not line.endswith(b"\n"):
        return None
    try:
        plain = parse(line)
    except ValueError:
        return None
    return None if chain.problem_with(line[:-1], plain) else plain
