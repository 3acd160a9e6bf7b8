"""``iris-harness report``: write the reports of a run again."""

from __future__ import annotations

from pathlib import Path

import click

from command_line import preflight
from command_line.options import PATH
from command_line.output import console
from command_line.publishing import JUNIT, REPORT, publish
from harness.evidence import read
from reports import read_benchmarks


@click.command("report", short_help="Write the reports of a run again.")
@click.argument("evidence", type=PATH)
@click.option("--output", type=PATH, default=None, help="Directory for the reports.  [default: that of the evidence]")
@click.option(
    "--bench",
    "results",
    type=PATH,
    multiple=True,
    help="Results of bench to show: a bench.json, or the folder that bench wrote. May be given several times.",
)
@click.option("--no-waivers", is_flag=True, help="Judge the run without the waivers that it recorded.")
def command(evidence: Path, output: Path | None, results: tuple[Path, ...], no_waivers: bool) -> int:
    """Write report.html and junit.xml again from EVIDENCE, an evidence.jsonl, and print the table.

    With --bench, the report also has bandwidth and time over size, of the same library on the same machine. The exit
    status is that of certify.
    """
    run = read(evidence)
    run = run.without_waivers() if no_waivers else run
    benchmarks = read_benchmarks(results, run)
    return publish(run, preflight.output_folder(output or evidence.parent, REPORT, JUNIT), console(), benchmarks)
