"""Public names by device: for each public name and each device that was run, the verdict of the requirements that cover
the name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.errors import UsageError
from harness.evidence import Evidence, Verdict, merge
from reports.text import plain
from reports.view import LABELS, PARTIAL_STYLE, STYLES


@dataclass(frozen=True)
class Cell:
    """One name on one device.

    ``known`` requirements cover the name, and ``planned`` of them were planned on the device: a requirement may need
    another device or more ranks. ``verdict`` is the worst of the planned ones.
    """

    verdict: Verdict
    planned: int
    known: int

    @property
    def text(self) -> str:
        """The verdict as text, as ``pass``, ``not run``, or ``pass, 2 of 3`` if only some requirements were planned."""
        label = LABELS[self.verdict]
        return f"{label}, {self.planned} of {self.known}" if 0 < self.planned < self.known else label


@dataclass(frozen=True)
class NameRow:
    """A public name, the ids of the requirements that cover it, and a cell per device."""

    name: str
    requirements: tuple[str, ...]
    cells: tuple[Cell, ...]

    @property
    def good(self) -> bool:
        """True if the name passed on every device that planned a requirement of it, and at least one did."""
        ran = {cell.verdict for cell in self.cells if cell.planned}
        return ran == {Verdict.PASS}


@dataclass(frozen=True)
class Names:
    """The table of public names. ``devices`` are the columns, as ``emulated gfx942``; ``partial`` are the devices
    without a complete run."""

    devices: tuple[str, ...]
    rows: tuple[NameRow, ...]
    partial: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """A sentence as ``public names passed: 102 of 104 on emulated gfx942, 30 of 104 on cuda sm_90 (74 had nothing
        to run)``."""
        parts = []
        for number, device in enumerate(self.devices):
            cells = [row.cells[number] for row in self.rows]
            idle = sum(not cell.planned for cell in cells)
            passed = sum(cell.verdict is Verdict.PASS for cell in cells)
            parts.append(f"{passed} of {len(cells)} on {device}" + (f" ({idle} had nothing to run)" if idle else ""))
        partial = f"; partial: {', '.join(self.partial)}" if self.partial else ""
        return f"public names passed: {', '.join(parts) or 'no device'}{partial}"

    @property
    def good(self) -> bool:
        """True if there are names and all of them are good."""
        return bool(self.rows) and all(row.good for row in self.rows)


def names_of(runs: Sequence[Evidence]) -> Names:
    """Return the table of names with one column per device. Runs on one device share a column with their worst verdict.

    The names are all those that the requirements of these runs cover. Raises UsageError if the runs are of different
    implementations.
    """
    implementations = {str(run.implementation.get("name")) for evidence in runs for run in evidence.runs}
    if len(implementations) > 1:
        raise UsageError(
            f"EVIDENCE: expected runs of one implementation, got {', '.join(sorted(implementations))}: give files"
            " of one of them"
        )
    verdicts: dict[str, dict[str, list[Verdict]]] = {}
    covered: dict[str, set[str]] = {}
    complete: dict[str, bool] = {}
    for evidence in runs:
        device = _device(evidence)
        complete[device] = complete.get(device, False) or evidence.complete
        column = verdicts.setdefault(device, {})
        for identity, result in evidence.requirements().items():
            column.setdefault(identity, []).append(result.verdict)
        for identity, statement in evidence.statements.items():
            for name in statement.covers:
                covered.setdefault(name, set()).add(identity)
    rows = (
        NameRow(name, tuple(sorted(ids)), tuple(_cell(ids, column) for column in verdicts.values()))
        for name, ids in sorted(covered.items(), key=lambda item: _order(item[0]))
    )
    return Names(tuple(verdicts), tuple(rows), tuple(device for device, whole in complete.items() if not whole))


def print_names(names: Names, console: Console) -> None:
    """Print a row for each name and a column for each device."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("public name", no_wrap=True)
    for device in names.devices:
        table.add_column(Text(plain(device)), no_wrap=True)
    table.add_column("requirements", overflow="fold")
    for row in names.rows:
        cells = (Text(cell.text, style=STYLES[cell.verdict] if cell.planned else "dim") for cell in row.cells)
        table.add_row(Text(plain(row.name)), *cells, Text(plain(", ".join(row.requirements)), style="dim"))
    console.print(table)
    style = "bold red" if not names.good else PARTIAL_STYLE if names.partial else "green"
    console.print()
    console.print(Text(plain(names.headline), style=style))


def markdown(names: Names) -> str:
    """Return the names as a Markdown table, with the headline below it."""
    lines = [
        _line(["public name", *names.devices, "requirements"]),
        _line(["---"] * (len(names.devices) + 2)),
        *(
            _line([f"`{row.name}`", *(cell.text for cell in row.cells), ", ".join(row.requirements)])
            for row in names.rows
        ),
    ]
    return "\n".join([*lines, "", f"{plain(names.headline)}.", ""])


def _device(evidence: Evidence) -> str:
    if not evidence.runs:
        return "unknown device"
    run = evidence.runs[0]
    shared = "" if run.ranks_per_gpu == 1 else f" up to {run.ranks_per_gpu} on a GPU"
    nodes = "" if run.nodes == 1 else f" on {run.nodes} nodes"
    return f"{run.device} {run.arch}" + ("" if run.mode == "fast" else f" {run.mode}") + nodes + shared


def _cell(ids: Iterable[str], column: Mapping[str, Sequence[Verdict]]) -> Cell:
    known = set(ids)
    planned = known & set(column)
    return Cell(merge(verdict for identity in planned for verdict in column[identity]), len(planned), len(known))


def _order(name: str) -> tuple[str, str]:
    """Return a sort key: top-level names first, then the members of each class and module."""
    owner, _, member = name.rpartition(".")
    return owner.lower(), member.lower()


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(plain(cell).replace("|", "\\|") for cell in cells) + " |"
