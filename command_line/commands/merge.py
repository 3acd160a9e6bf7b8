"""``iris-harness merge``: one run of its shards."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from command_line import preflight
from command_line.options import PATH
from command_line.output import console, say
from command_line.publishing import JUNIT, REPORT, publish
from harness import runs
from harness.errors import UsageError
from harness.evidence import plain_arguments, read, shards, waivers
from harness.evidence.merging import merge_shards
from harness.printable import plain


@click.command("merge", short_help="Make one run of the shards of a run.")
@click.argument("output", type=PATH)
@click.argument("shard", type=PATH, nargs=-1, required=True)
@click.option("--plan", type=PATH, help=f"The division into shards.  [default: {shards.FILE} next to a shard]")
@click.option("--no-report", is_flag=True, help="Write the evidence only.")
def command(output: Path, shard: tuple[Path, ...], plan: Path | None, no_report: bool) -> int:
    """Write evidence.jsonl and the reports of a run into the folder OUTPUT, from each SHARD: an evidence.jsonl of
    certify --shard, or its folder.

    It refuses shards that do not belong together: of another plan, commit, device, driver, Triton, or with another
    relevant variable; the same shard twice; and a shard that is damaged or has no end. A shard that is missing leaves
    its groups not run, which is red. The groups that every shard runs are in the result once, with their worst verdict.

    \b
    Exit status: that of certify; 2 if shards do not belong together. Nothing is written then. With --no-report 0 if
    every planned group passed, is quarantined or unsupported, else 1.
    """
    files = [path / runs.EVIDENCE if path.is_dir() else path for path in shard]
    division = plan or next((file for path in files if (file := path.parent / shards.FILE).is_file()), None)
    if division is None:
        raise UsageError(f"there is no {shards.FILE} next to a shard: name the file of the division with --plan")
    folder = preflight.output_folder(output, REPORT, JUNIT)
    evidence = folder / runs.EVIDENCE
    with runs.claimed(folder):
        merged = merge_shards(evidence, files, division, plain_arguments(sys.argv))
        copy = files[0].with_name(waivers.FILE)
        if copy.is_file():  # a certificate has the file; whether it is the recorded one is checked there
            (folder / waivers.FILE).write_bytes(copy.read_bytes())
        present = merged.of - len(merged.missing)
        click.echo(f"Merged {present} of {merged.of} shards: {plain(str(evidence))}")
        if merged.missing:
            listed = ", ".join(map(str, merged.missing[:10])) + (" and more" if len(merged.missing) > 10 else "")
            say(f"missing shards, whose groups are not run: {listed}")
        for line in (*merged.stopped, *merged.disagreements, *merged.remarks):
            say(line)
        if no_report:
            return 0 if merged.green else 1
        return publish(read(evidence), folder, console())
