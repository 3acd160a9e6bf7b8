"""Public names x devices x verdict: what the requirements that cover a name say of it, on each device that was run."""

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
    """One name on one device: the worst verdict of the requirements that were planned there; ``planned`` of ``known``
    that cover the name (a requirement may need a device or more ranks)."""

    verdict: Verdict
    planned: int
    known: int

    @property
    def text(self) -> str:
        """``pass``, ``fail``, ``pass, 2 of 3`` where a requirement was not planned, ``not run``."""
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
        """It passed somewhere, and did nothing else anywhere; a device that plans nothing of it is no fault."""
        ran = {cell.verdict for cell in self.cells if cell.planned}
        return ran == {Verdict.PASS}


@dataclass(frozen=True)
class Names:
    """``devices`` are the columns, as ``emulated gfx942``; ``partial`` are those of which no run was complete."""

    devices: tuple[str, ...]
    rows: tuple[NameRow, ...]
    partial: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """``public names passed: 102 of 104 on emulated gfx942, 30 of 104 on cuda sm_90 (74 had nothing to run)``."""
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
        """There are names, and all of them are good."""
        return bool(self.rows) and all(row.good for row in self.rows)


def names_of(runs: Sequence[Evidence]) -> Names:
    """One column per device of ``runs``; runs on the same device make one column, with the worst of their verdicts.

    The names are those that the requirements of all these runs cover. Raises UsageError for runs of different
    implementations.
    """
    implementations = {str(run.implementation.get("name")) for evidence in runs for run in evidence.runs}
    if len(implementations) > 1:
        raise UsageError(f"these are runs of different implementations: {', '.join(sorted(implementations))}")
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
    """A row per name, a column per device."""
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
    """The same as a Markdown table, with the headline below it."""
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
    return f"{run.device} {run.arch}" + ("" if run.mode == "fast" else f" {run.mode}") + shared


def _cell(ids: Iterable[str], column: Mapping[str, Sequence[Verdict]]) -> Cell:
    known = set(ids)
    planned = known & set(column)
    return Cell(merge(verdict for identity in planned for verdict in column[identity]), len(planned), len(known))


def _order(name: str) -> tuple[str, str]:
    """Names of the top level first, then each class and module together."""
    owner, _, member = name.rpartition(".")
    return owner.lower(), member.lower()


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(plain(cell).replace("|", "\\|") for cell in cells) + " |"
