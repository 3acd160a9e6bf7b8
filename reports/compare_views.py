"""The renderings of a comparison: a table for the terminal, Markdown, and one HTML page."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from reports.compare import Comparison
from reports.html import page_of
from reports.text import cut, markdown_row, plain

_ROWS, _CHARACTERS = 200, 400
"""Limits of the terminal table and of Markdown: rows of a section, characters of a cell."""


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print a table for each section, then the headline."""
    for section in comparison.sections:
        console.print(Text(f"\n{section.title}", style="bold red" if section.bad else "bold"))
        grid = Table(box=None, pad_edge=False, header_style="dim")
        for column in section.columns:
            grid.add_column(column, overflow="fold")
        for row in section.rows[:_ROWS]:
            grid.add_row(*(Text(_cell(value)) for value in row))
        console.print(grid)
        if rest := _rest(len(section.rows)):
            console.print(rest)
    console.print()
    console.print(Text(comparison.headline, style="bold red" if comparison.worse else "green"))


def comparison_markdown(comparison: Comparison) -> str:
    """Return the headline and a table for each section."""
    lines = [f"**{comparison.headline}**"]
    for section in comparison.sections:
        lines += [
            "",
            f"### {section.title}",
            "",
            markdown_row(section.columns),
            markdown_row(["---"] * len(section.columns)),
        ]
        lines += [markdown_row([_cell(value) for value in row]) for row in section.rows[:_ROWS]]
        lines += ["", rest] if (rest := _rest(len(section.rows))) else []
    return "\n".join([*lines, ""])


def comparison_html(comparison: Comparison) -> str:
    """Return the page as text; it loads nothing."""
    return page_of("compare.html.j2", comparison=comparison, max_rows=1000)


def _cell(value: str) -> str:
    return plain(cut(value, _CHARACTERS))


def _rest(rows: int) -> str:
    return f"... and {rows - _ROWS:,} more" if rows > _ROWS else ""
