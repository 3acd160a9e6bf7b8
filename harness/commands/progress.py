"""Following a run: what the growing evidence says so far, on a terminal or as plain lines."""

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
    """An evidence file, and the files of its workers, while they are written.

    Lines that cannot be used are passed over: the report, which reads everything again, names them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets: dict[Path, int] = {}

    def new(self) -> Iterator[dict[str, Any]]:
        """The records that were appended since the last call. They are JSON objects, and otherwise unchecked."""
        for path in (self._path, *sorted(self._path.parent.glob(worker_path(self._path, "gw*").name))):
            for line in self._new_lines(path):
                with contextlib.suppress(ValueError):
                    yield parse(line)

    def _new_lines(self, path: Path) -> list[bytes]:
        """The whole lines since the last look. Of a line that is too long, only the end is looked for."""
        found = []
        try:
            with open_regular(path, follow=path == self._path) as file:
                start = file.seek(self._offsets.get(path, 0))
                while line := file.readline(MAX_LINE):
                    if line.endswith(b"\n"):
                        found.append(line)
                    elif len(line) < MAX_LINE or not skip_line(file):
                        break
                    start = file.tell()
                self._offsets[path] = start
        except OSError:  # not begun, absorbed between two looks, or not a regular file
            return []
        return found


class Follower:
    """What the growing evidence of a run says so far."""

    def __init__(self, path: Path) -> None:
        self._growing = Growing(path)
        self._ended: set[str] = set()
        self.planned = 0
        self.cases = 0
        self.not_passed = 0
        self.current = ""

    @property
    def done(self) -> int:
        """Groups that have ended."""
        return len(self._ended)

    def look(self) -> bool:
        """Read on; True if there was anything new."""
        news = False
        for record in self._growing.new():
            self._take(record)
            news = True
        return news

    def _take(self, record: Mapping[str, Any]) -> None:
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
    """Shows a Follower: a live bar on a terminal, otherwise a line now and then."""

    def __init__(
        self, follower: Follower, console: Console, interval: float = 15.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._follower = follower
        self._console = console
        self._interval = interval
        self._clock = clock
        self._started = self._told = clock()
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
        """Show what is new; call it often."""
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
        elif self._clock() - self._told >= self._interval:
            self._told = self._clock()
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
