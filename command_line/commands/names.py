"""``iris-harness names``: print the verdict of every public name of the library on each device."""

from __future__ import annotations

from pathlib import Path

import click

from command_line.options import PATH
from command_line.output import console
from harness.evidence import read
from harness.printable import plain
from reports import markdown, names_of, print_names


@click.command("names", short_help="Public names by device, with their verdicts.")
@click.argument("evidence", type=PATH, nargs=-1, required=True)
@click.option("--format", "form", type=click.Choice(["table", "markdown"]), default="table", show_default=True)
def command(evidence: tuple[Path, ...], form: str) -> int:
    """Print a table of the library's public names and their verdicts on the devices of these runs.

    EVIDENCE is one evidence.jsonl or more. A name has the worst verdict of the requirements that cover it. Exit status
    0 only if each name passed on every device that planned a requirement of it, and no file is damaged.
    """
    runs = {path: read(path) for path in evidence}
    names = names_of(list(runs.values()))
    if form == "markdown":
        click.echo(markdown(names), nl=False)
    else:
        print_names(names, console())
    problems = [f"{path}: {problem}" for path, run in runs.items() for problem in run.problems]
    for problem in problems:
        click.echo(plain(problem), err=True)
    return 0 if names.good and not problems else 1
