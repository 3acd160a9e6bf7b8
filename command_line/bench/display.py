"""Terminal output of a benchmark: progress, and the table at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from command_line.bench.ops import OURS
from command_line.bench.plan import AUTO, TORCH, CellKey, Request, size_text
from command_line.bench.results import EMULATED, SEMANTICS, Cell, Results, Size

AIM = 1.0
"""Goal for the ratio to torch.distributed's bandwidth."""


class ProgressDisplay:
    """Progress display: a live bar on a terminal, otherwise a line per size and per ``interval`` seconds."""

    def __init__(self, console: Console, interval: float = 15.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._interval = interval
        self._clock = clock
        self._started = self._last_printed = clock()
        self._op, self._at, self._steps, self._done = "", "", 0, 0
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        if console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("timings"),
                TimeElapsedColumn(),
                TextColumn("{task.fields[current]}", style="dim"),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task("starting", total=None, current="")

    def op(self, request: Request) -> None:
        """Note that an op begins."""
        self._op = f"{request.op} {request.dtype}, "

    def size(self, size: Size, steps: int) -> None:
        """Note that a size begins."""
        self._at, self._steps, self._done = f"{self._op}{size_text(size.requested)}", steps, 0
        if self._bar is not None and self._task is not None:
            self._bar.reset(self._task, total=steps, description=self._at, current="")
        else:
            self._print("begins")

    def step(self, key: CellKey) -> None:
        """Note that a timing begins."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done, current=str(key))
        elif self._clock() - self._last_printed >= self._interval:
            self._print(f"{self._done}/{self._steps} timings, {key}")
        self._done += 1

    def _print(self, progress: str) -> None:
        self._last_printed = self._clock()
        line = f"{self._clock() - self._started:.0f} s: {self._at}: {progress}"
        self._console.print(line, markup=False, soft_wrap=True)

    def __enter__(self) -> ProgressDisplay:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def print_results(results: Results, console: Console) -> None:
    """Print the table of each size's best cells, then notes and failures."""
    request = results.request
    title = f"{request.op}, {request.ranks} ranks, {request.dtype}: times in us per call, bandwidths in GB/s"
    table = Table(title=title, title_justify="left", title_style="bold", box=None)
    for heading in ("size", "backend"):
        table.add_column(heading, no_wrap=True)
    for heading in ("median", "p10–p90", "algbw", "busbw", "x nccl", "CUs"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column(f"≥ {AIM:g}", justify="center")
    for size in results.sizes:
        for number, backend in enumerate(request.forms):
            table.add_row(size_text(size.requested) if number == 0 else "", backend, *_figures(results, size, backend))
    console.print(table)
    for size in results.sizes:
        if size.note:
            console.print(f"{size_text(size.requested)}: {size.note}", markup=False, style="yellow", soft_wrap=True)
    for size, cell in results.bad():
        line = f"{cell.status}: {cell.key} at {size_text(size.requested)}: {cell.detail.splitlines()[0]}"
        console.print(line, markup=False, style="bold red", soft_wrap=True)


def print_meaning(results: Results, console: Console) -> None:
    """Print the definition of a time."""
    request = results.request
    if TORCH in request.backends:
        console.print(f"nccl: {results.label(TORCH)}", markup=False, style="dim", soft_wrap=True)
    console.print(EMULATED if request.emulated else SEMANTICS, markup=False, style="dim", soft_wrap=True)


def _figures(results: Results, size: Size, backend: str) -> list[str]:
    cell = size.best(backend)
    if cell is None:
        faults = sorted({cell.status for cell in size.cells if cell.key.backend == backend})
        return [", ".join(faults), "", "", "", "", "", ""]
    median = cell.time()
    ratio = size.ratio(cell)
    return [
        _short(median * 1e6),
        f"{_short(cell.time(0.1) * 1e6)}–{_short(cell.time(0.9) * 1e6)}",
        _short(results.algorithm_bandwidth(size, median)),
        _short(results.bus_bandwidth(size, median)),
        "" if ratio is None else f"{ratio:.2f}",
        _configured(cell.key),
        _aim(cell, ratio, results),
    ]


def _configured(key: CellKey) -> str:
    """Return the CU count as text. A candidate's other fields are in the files: the table would get too wide."""
    if key.cus is None:
        return AUTO if key.backend in OURS else ""
    return str(key.cus)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2g}"


def _aim(cell: Cell, ratio: float | None, results: Results) -> str:
    if ratio is None or cell.key.backend not in OURS or results.request.emulated:
        return ""
    return "[green]yes[/green]" if ratio >= AIM else "[yellow]no[/yellow]"
