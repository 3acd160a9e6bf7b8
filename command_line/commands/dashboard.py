"""``iris-harness dashboard``: the static site of a history."""

from __future__ import annotations

from pathlib import Path

import click

from command_line.options import PATH
from command_line.output import printable
from command_line.preflight import output_folder
from harness.files import write_whole
from history import History
from history.dashboard import NIGHTS, render

PAGE = "index.html"


@click.command("dashboard", short_help="The static site of a history.")
@click.argument("history", type=PATH)
@click.option("--output", type=PATH, default=Path("out", "dashboard"), show_default=True, help="Directory of the site.")
@click.option(
    "--nights", "limit", type=click.IntRange(1, 1000), default=NIGHTS, show_default=True, help="The last ones."
)
@click.option("--title", default="Nights", show_default=True)
def command(history: Path, output: Path, limit: int, title: str) -> int:
    """Write index.html for HISTORY, the SQLite file of iris-harness history: the last nights, new and mended failures,
    flaky groups, trends and nodes.

    The page loads nothing and needs no script. Exit status 0, or 2 if the history cannot be read.
    """
    with History(history) as opened:
        page = render(opened, title, limit)
    folder = output_folder(output, PAGE)
    write_whole(folder / PAGE, page)
    click.echo(f"Dashboard: {printable(str(folder / PAGE))}")
    return 0
