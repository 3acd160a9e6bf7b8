"""The causes and the table that a command prints at the end of a run."""

from __future__ import annotations

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from harness.evidence import Verdict
from reports.absent import Completeness, by_reason
from reports.capabilities import print_capabilities
from reports.causes import Cause
from reports.gpus import Mark
from reports.picture import picture_of
from reports.text import cut, duration, fields_of, plain, plural
from reports.view import LABELS, PARTIAL_STYLE, STYLES, Report

_FAILURES_SHOWN = 10
_GAPS_SHOWN = 10
_ABSENT_SHOWN = 5
_UNSUPPORTED_SHOWN = 40
_CHARACTERS_SHOWN = 4000


def print_table(report: Report, console: Console) -> None:
    """Print each requirement's verdict, cases, kernels and remote widths, the failing groups, what is missing, and at
    the end the causes of the failures, the most frequent first.

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
    _print_failing(report, console)
    if report.waivers:
        console.print(Text("\nWaivers and quarantine", style="bold"))
        _print_list([_text(line) for line in report.waivers], len(report.waivers), console)
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
    _print_causes(report, console)
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


def _print_line(label: str, text: str, console: Console, style: str = "") -> None:
    """Print a command or a source position on one line, even on a narrow terminal, so that it can be copied."""
    console.print(Text(f"  {label}  ", style="dim"), _text(text, style=style), soft_wrap=True, sep="")


def _print_failing(report: Report, console: Console) -> None:
    """Print a line for each failing group: its name, the case, and the command that runs it again."""
    if not report.failures:
        return
    console.print(Text(f"\n{plural(len(report.failures), 'failing group')}", style="bold"))
    for failure in report.failures[:_FAILURES_SHOWN]:
        console.print(
            Text("  ").join(
                [Text(LABELS[failure.case.verdict], STYLES[failure.case.verdict]), _text(failure.case.group)]
            )
        )
        if failure.marks:
            console.print(Padding(_text("; ".join(failure.marks), style="yellow"), (0, 0, 0, 2), expand=False))
        _print_line("replay", failure.replay, console, style="bold")
    if len(report.failures) > _FAILURES_SHOWN:
        console.print(f"  ... and {len(report.failures) - _FAILURES_SHOWN:,} more, in the report")


def _print_causes(report: Report, console: Console) -> None:
    if not report.causes:
        return
    count = f"{plural(len(report.causes), 'cause')} of {plural(len(report.failures), 'failing group')}"
    console.print(Text(f"\n{count}", style="bold"))
    for cause in report.causes[:_FAILURES_SHOWN]:
        console.print()
        console.print(_cause(cause))
        if source := cause.symptom.source:
            lines = " called at ".join((source, *cause.symptom.calls))
            _print_line("last store" if cause.stores else "source", lines, console)
        _print_line("repeat", cause.case.repeat, console, style="bold")
    if len(report.causes) > _FAILURES_SHOWN:
        console.print(f"\n... and {len(report.causes) - _FAILURES_SHOWN:,} more, in the report")


def _place(mark: Mark) -> str:
    if not mark.groups:
        return "no case"
    return mark.groups[0] + (f" and {len(mark.groups) - 1} more groups" if len(mark.groups) > 1 else "")


def _cause(cause: Cause) -> Group:
    """Return the card of one cause: the failure in words, its spread, the first wrong element, the reduced case."""
    case, symptom = cause.case, cause.symptom
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("case id", _text(case.id, style="bold"))
    grid.add_row("spread", _text("; ".join(cause.spread)))
    grid.add_row("case", _text(", ".join(f"{name}={value}" for name, value in fields_of(case)) or case.case["type"]))
    grid.add_row("first wrong", _text(cause.wrong)) if cause.wrong else grid.add_row(
        "message", _text(case.message, lines=True)
    )
    if drawn := picture_of(case.differs):
        grid.add_row("where", _text(drawn, lines=True))
    if len(cause.stores) > 1:
        grid.add_row("written by", _text("; ".join(cause.stores)))
    if cause.fences:
        grid.add_row("fences", _text("\n".join(cause.fences), lines=True))
    if cause.waits:
        grid.add_row("waits", _text("\n".join(cause.waits), lines=True))
    if symptom.kernel:
        grid.add_row("kernel", _text(", ".join(filter(None, (symptom.kernel, symptom.instruction)))))
    if case.stacks:
        grid.add_row("stacks", Text(f"of {plural(len(case.stacks), 'rank')}, in the report"))
    title = Text.assemble((LABELS[cause.verdict], STYLES[cause.verdict]), " ", _text(cause.title, style="bold"))
    return Group(title, Padding(grid, (0, 0, 0, 2), expand=False))
