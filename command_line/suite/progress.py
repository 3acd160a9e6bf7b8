"""Progress of a run, read from its growing evidence file: a live bar on a terminal, otherwise plain lines."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from harness.evidence import parse, worker_path
from harness.evidence.lines import MAX_LINE, open_regular, skip_line
from harness.printable import plain


class Growing:
    """Reader of an evidence file, and of its workers' files, while they are written.

    Malformed lines are skipped here; the report reads everything again and names them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets: dict[Path, int] = {}

    def new(self) -> Iterator[dict[str, Any]]:
        """Yield the records appended since the last call: JSON objects, not checked against the schema."""
        for path in (self._path, *sorted(self._path.parent.glob(worker_path(self._path, "gw*").name))):
            for line in self._new_lines(path):
                with contextlib.suppress(ValueError):
                    yield parse(line)

    def _new_lines(self, path: Path) -> list[bytes]:
        """Return the complete lines written since the last call. A line longer than ``MAX_LINE`` is skipped."""
        lines = []
        try:
            with open_regular(path, follow=path == self._path) as file:
                start = file.seek(self._offsets.get(path, 0))
                while line := file.readline(MAX_LINE):
                    if line.endswith(b"\n"):
                        lines.append(line)
                    elif len(line) < MAX_LINE or not skip_line(file):
                        break
                    start = file.tell()
                self._offsets[path] = start
        except OSError:  # not created yet, merged into the main file since the last call, or not a regular file
            return []
        return lines


class Follower:
    """Counts of a running suite: planned groups, cases so far, groups that ended, groups that did not pass."""

    def __init__(self, path: Path) -> None:
        self._growing = Growing(path)
        self._ended: set[str] = set()
        self.planned = 0
        self.cases = 0
        self.not_passed = 0
        self.current = ""

    @property
    def done(self) -> int:
        """Number of groups that have ended."""
        return len(self._ended)

    def look(self) -> bool:
        """Read the new records; return True if there were any."""
        changed = False
        for record in self._growing.new():
            self._count(record)
            changed = True
        return changed

    def _count(self, record: Mapping[str, Any]) -> None:
        kind, group = record.get("record"), record.get("group")
        if kind == "plan" and isinstance(record.get("groups"), list):
            self.planned = max(self.planned, len(record["groups"]))
        elif not isinstance(group, str) or group in self._ended:
            return
        elif kind == "case":
            self.cases += 1
            self.current = group
        elif kind == "group":
            self._ended.add(group)
            self.not_passed += record.get("verdict") != "pass"
            self.current = group


class Display:
    """Progress display of a Follower: a live bar on a terminal, otherwise a line every ``interval`` seconds."""

    def __init__(
        self, follower: Follower, console: Console, interval: float = 15.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._follower = follower
        self._console = console
        self._interval = interval
        self._clock = clock
        self._started = self._last_printed = clock()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        if console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("groups  {task.fields[figures]}"),
                TimeElapsedColumn(),
                TextColumn("{task.fields[current]}", style="dim"),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task("collecting", total=None, figures="", current="")

    def update(self) -> None:
        """Read new records and refresh the display. Call it often."""
        self._follower.look()
        if self._bar is not None and self._task is not None:
            self._bar.update(
                self._task,
                description="running" if self._follower.planned else "collecting",
                total=self._follower.planned or None,
                completed=self._follower.done,
                figures=self._figures(),
                current=plain(self._follower.current).replace("[", "\\["),
            )
        elif self._clock() - self._last_printed >= self._interval:
            self._last_printed = self._clock()
            planned = self._follower.planned or "?"
            elapsed = f"{self._clock() - self._started:.0f} s"
            line = (
                f"{elapsed}: {self._follower.done}/{planned} groups, {self._figures()}  {plain(self._follower.current)}"
            )
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _figures(self) -> str:
        bad = f", {self._follower.not_passed} not passed" if self._follower.not_passed else ""
        return f"{self._follower.cases:,} cases{bad}"

    def __enter__(self) -> Display:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
