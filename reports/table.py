"""The table that a command prints when a run is over."""

from __future__ import annotations

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from reports.gpus import Mark
from reports.text import duration, plural, shown
from reports.view import LABELS, STYLES, Failure, Report

_FAILURES_SHOWN = 10
_GAPS_SHOWN = 10


def print_table(report: Report, console: Console) -> None:
    """Requirement x verdict, cases, kernels and remote widths; then the failing cases and what is missing."""
    table = Table(box=None, pad_edge=False, header_style="bold", collapse_padding=True)
    for column in ("requirement", "verdict"):
        table.add_column(column, no_wrap=True)
    for column in ("groups", "cases", "kernels", "time"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("remote accesses", overflow="fold")
    area = ""
    for row in report.rows:
        result = row.result
        if area and row.area != area:
            table.add_row()
        area = row.area
        table.add_row(
            Text(result.id),
            Text(LABELS[result.verdict], style=STYLES[result.verdict]),
            f"{len(result.groups):,}",
            f"{result.cases:,}",
            f"{len(result.kernels):,}",
            duration(result.seconds),
            Text(row.isa, style="dim"),
        )
    console.print()
    console.print(table)
    for failure in report.failures[:_FAILURES_SHOWN]:
        console.print()
        console.print(_failure(failure))
        console.print(Text("  repeat  ", style="dim"), Text(failure.case.repeat, style="bold"), soft_wrap=True, sep="")
    if len(report.failures) > _FAILURES_SHOWN:
        console.print(f"\n... and {len(report.failures) - _FAILURES_SHOWN} more failing groups, in the report")
    if report.gaps:
        console.print(Text(f"\n{plural(len(report.gaps), 'gap')} in the evidence", style="bold"))
        for gap in report.gaps[:_GAPS_SHOWN]:
            console.print(Padding(Text(gap), (0, 0, 0, 2), expand=False))
        if len(report.gaps) > _GAPS_SHOWN:
            console.print(f"  ... and {len(report.gaps) - _GAPS_SHOWN} more, in the report")
    if report.measured:
        console.print()
        console.print(Text.assemble(("telemetry  ", "dim"), report.measured.headline))
        for mark in report.measured.marks[:_GAPS_SHOWN]:
            console.print(Padding(Text(f"{mark.text} ({_place(mark)})", style="yellow"), (0, 0, 0, 2), expand=False))
        if len(report.measured.marks) > _GAPS_SHOWN:
            console.print(f"  ... and {len(report.measured.marks) - _GAPS_SHOWN} more, in the report")
    console.print()
    console.print(Text(report.headline, style=STYLES[report.verdict]))


def _place(mark: Mark) -> str:
    if not mark.groups:
        return "no case"
    return mark.groups[0] + (f" and {len(mark.groups) - 1} more groups" if len(mark.groups) > 1 else "")


def _failure(failure: Failure) -> Group:
    """What a person needs to start: which case, what was wrong first, how to repeat it."""
    case = failure.case
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("demands", Text(failure.statement)) if failure.statement else None
    grid.add_row("case", Text(", ".join(f"{name}={shown(value)}" for name, value in case.case["fields"].items())))
    grid.add_row("says", Text(case.message))
    if case.differs:
        d = case.differs
        where = [f"rank {d.rank}" if d.rank is not None else "", f"index {d.index}" if d.index is not None else ""]
        place = ", ".join(part for part in where if part)
        grid.add_row("first wrong", Text(f"{d.what} ({place}): got {shown(d.got)}, wanted {shown(d.wanted)}"))
    if case.fault:
        grid.add_row("fault", Text(case.fault))
    if case.fault_source:
        grid.add_row("at", Text(case.fault_source))
    if failure.marks:
        grid.add_row("telemetry", Text("; ".join(failure.marks), style="yellow"))
    if case.stacks:
        grid.add_row("stacks", Text(f"of {plural(len(case.stacks), 'rank')}, in the report"))
    title = Text.assemble((LABELS[case.verdict], STYLES[case.verdict]), " ", case.group)
    return Group(title, Padding(grid, (0, 0, 0, 2), expand=False))
