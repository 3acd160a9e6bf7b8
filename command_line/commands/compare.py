"""``iris-harness compare``: what failed, was mended or changed from one run to another."""

from __future__ import annotations

from pathlib import Path

import click

from command_line.options import PATH
from command_line.output import console, say
from harness.evidence import read
from harness.files import write_whole
from reports import compare, comparison_html, comparison_markdown, print_comparison

DAMAGED = 2


@click.command("compare", short_help="New failures and changes between two runs.")
@click.argument("before", metavar="A", type=PATH)
@click.argument("after", metavar="B", type=PATH)
@click.option("--format", "form", type=click.Choice(["table", "markdown", "html"]), default="table", show_default=True)
@click.option("--output", type=PATH, default=None, help="File for Markdown or HTML.  [default: standard output]")
def command(before: Path, after: Path, form: str, output: Path | None) -> int:
    """Compare run B with run A, each an evidence.jsonl: new failures, mended groups, compiled code, and time.

    The exit status is 0 if nothing new failed; 1 if a group of B failed, could not be checked or did not run, and did
    not do so in A; 2 if a file is missing, damaged, or is not evidence.
    """
    if output is not None and form == "table":
        raise click.UsageError("--output needs --format markdown or --format html")
    runs = {path: read(path) for path in (before, after)}
    comparison = compare(runs[before], runs[after])
    if form == "table":
        print_comparison(comparison, console())
    else:
        text = comparison_markdown(comparison) if form == "markdown" else comparison_html(comparison)
        if output is None:
            click.echo(text, nl=False)
        else:
            write_whole(output, text)
    problems = [f"{path}: {problem}" for path, run in runs.items() for problem in run.problems]
    for problem in problems:
        say(problem)
    return DAMAGED if problems else int(comparison.worse)
