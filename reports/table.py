"""The table that a command prints at the end of a run."""

from __future__ import annotations

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from harness.evidence import Verdict
from reports.absent import Completeness, by_reason
from reports.capabilities import print_capabilities
from reports.gpus import Mark
from reports.text import cut, duration, fields_of, plain, plural, shown
from reports.view import LABELS, PARTIAL_STYLE, STYLES, Failure, Report

_FAILURES_SHOWN = 10
_GAPS_SHOWN = 10
_ABSENT_SHOWN = 5
_UNSUPPORTED_SHOWN = 40
_CHARACTERS_SHOWN = 4000


def print_table(report: Report, console: Console) -> None:
    """Print each requirement's verdict, cases, kernels and remote widths, then the failing cases and what is missing.

    Control characters in the evidence are printed as escape sequences, so that they cannot act on the terminal.
    """
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
            _text(f"  {result.id}" if row.form else result.id),
            Text(LABELS[result.verdict], style=STYLES[result.verdict]),
            f"{len(result.groups):,}",
            f"{result.cases:,}",
            f"{len(result.kernels):,}",
            duration(result.seconds),
            _text(": ".join(filter(None, (row.form, row.isa))), style="dim"),
        )
    console.print()
    console.print(table)
    for failure in report.failures[:_FAILURES_SHOWN]:
        console.print()
        console.print(_failure(failure))
        _print_command("replay", failure.replay, console)
        if failure.case.repeat != failure.replay:
            _print_command("repeat", failure.case.repeat, console)
    if len(report.failures) > _FAILURES_SHOWN:
        console.print(f"\n... and {len(report.failures) - _FAILURES_SHOWN:,} more failing groups, in the report")
    if report.gaps:
        console.print(Text(f"\n{plural(len(report.gaps), 'gap')} in the evidence", style="bold"))
        _print_list([_text(gap) for gap in report.gaps[:_GAPS_SHOWN]], len(report.gaps), console)
    if report.measured:
        console.print()
        console.print(Text.assemble(("telemetry  ", "dim"), plain(report.measured.headline)))
        marks = report.measured.marks
        lines = [_text(f"{mark.text} ({_place(mark)})", style="yellow") for mark in marks[:_GAPS_SHOWN]]
        _print_list(lines, len(marks), console)
    if report.capabilities.rows:
        console.print(Text(f"\n{report.capabilities.sentence}", style="bold"))
        print_capabilities(report.capabilities, console)
    _print_absent(report.completeness, console)
    console.print()
    console.print(_headline(report))


def _text(value: str, style: str = "", *, lines: bool = False) -> Text:
    """Return text of the evidence for the terminal: bounded, printable, never interpreted as markup."""
    return Text(plain(cut(value, _CHARACTERS_SHOWN), lines=lines), style=style)


def _headline(report: Report) -> Text:
    """Return the last line. A partial run is never shown in the colour of a pass."""
    partial = report.completeness.sentence
    rest = report.headline.removeprefix(partial).strip()
    passed = STYLES[report.verdict] if not partial or LABELS[report.verdict] != "pass" else ""
    return Text(" ").join([part for part in (Text(partial, PARTIAL_STYLE), Text(rest, passed)) if part])


def _print_absent(completeness: Completeness, console: Console) -> None:
    if reasons := by_reason(completeness.not_applicable):
        count = plural(len(completeness.not_applicable), "requirement")
        console.print(Text(f"\n{count} not applicable here", style="bold"))
        lines = [_text(f"{reason}: {', '.join(ids)}", style="dim") for reason, ids in reasons.items()]
        _print_list(lines[:_GAPS_SHOWN], len(lines), console)
    if reasons := by_reason(completeness.unsupported):
        count = plural(len(completeness.unsupported), "item")
        console.print(Text(f"\n{count} that the library does not support", style=f"bold {STYLES[Verdict.UNSUPPORTED]}"))
        lines = [_text(f"{reason}: {', '.join(ids)}") for reason, ids in reasons.items()]
        _print_list(lines[:_UNSUPPORTED_SHOWN], len(lines), console)
    if missing := completeness.missing:
        console.print(Text(f"\n{plural(len(missing), 'item')} left out of this run", style=PARTIAL_STYLE))
        lines = [_text(f"{absent.id}: {absent.reason}" if absent.reason else absent.id) for absent in missing]
        _print_list(lines[:_ABSENT_SHOWN], len(lines), console)


def _print_list(lines: list[Text], total: int, console: Console) -> None:
    for line in lines:
        console.print(Padding(line, (0, 0, 0, 2), expand=False))
    if total > len(lines):
        console.print(f"  ... and {total - len(lines):,} more, in the report")


def _print_command(label: str, command: str, console: Console) -> None:
    """Print a command on one line, even on a narrow terminal, so that it can be copied."""
    console.print(Text(f"  {label}  ", style="dim"), _text(command, style="bold"), soft_wrap=True, sep="")


def _place(mark: Mark) -> str:
    if not mark.groups:
        return "no case"
    return mark.groups[0] + (f" and {len(mark.groups) - 1} more groups" if len(mark.groups) > 1 else "")


def _failure(failure: Failure) -> Group:
    """Return the table of one failure: the case, the first wrong value, where it happened."""
    case = failure.case
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("case id", _text(case.id, style="bold"))
    grid.add_row("requirement", _text(failure.statement)) if failure.statement else None
    grid.add_row("case", _text(", ".join(f"{name}={value}" for name, value in fields_of(case))))
    grid.add_row("message", _text(case.message, lines=True))
    if case.differs:
        d = case.differs
        where = [f"rank {d.rank}" if d.rank is not None else "", f"index {d.index}" if d.index is not None else ""]
        place = ", ".join(part for part in where if part)
        grid.add_row("first wrong", _text(f"{d.what} ({place}): got {shown(d.got)}, wanted {shown(d.wanted)}"))
    if case.fault:
        grid.add_row("fault", _text(case.fault, lines=True))
    if case.fault_source:
        grid.add_row("source", _text(case.fault_source))
    if failure.marks:
        grid.add_row("telemetry", _text("; ".join(failure.marks), style="yellow"))
    if case.stacks:
        grid.add_row("stacks", Text(f"of {plural(len(case.stacks), 'rank')}, in the report"))
    title = Text.assemble((LABELS[case.verdict], STYLES[case.verdict]), " ", _text(case.group))
    return Group(title, Padding(grid, (0, 0, 0, 2), expand=False))
