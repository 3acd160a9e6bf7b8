"""``iris-harness submit``: the suite on the machines of a cluster, by Slurm's command line."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from command_line.fleet import scripts, slurm, submission
from command_line.options import PATH
from harness.printable import plain


@click.command("submit", short_help="Run the suite on many machines, with Slurm.")
@click.argument("plan", type=PATH)
@click.option("--nodes", type=click.IntRange(1, 10_000), required=True, help="Machines that work at the same time.")
@click.option("--output", type=PATH, default=None, help="Folder of the run, which all machines share and none has yet.")
@click.option("--dry-run", is_flag=True, help="Write the folder and print what would be submitted.")
def command(plan: Path, nodes: int, output: Path | None, dry_run: bool) -> int:
    """Divide the suite into shards, and submit an array of jobs that run one shard each and a job that merges them.

    PLAN is a TOML file with the options of certify, those of sbatch, and those of the fleet; see the docs.

    \b
    iris-harness status FOLDER     the state of each shard, and where its log is
    iris-harness cancel FOLDER     ends all jobs
    """
    if not dry_run:
        slurm.check_installed()
    folder = output or Path("out", f"fleet-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}")
    made = submission.create(plan, nodes, folder)
    scripts.write(made.folder)
    where = plain(str(made.folder))
    if dry_run:
        click.echo(f"{made.state.of} shards, plan {made.state.plan[:16]}, in {where}; nothing was submitted")
        return 0
    made = submission.start(made)
    jobs = made.state.jobs
    click.echo(f"{made.state.of} shards on {nodes} nodes: jobs {jobs['array']} and {jobs['merge']} (merge)")
    click.echo(f"Folder: {where}")
    click.echo(f"iris-harness status {where}")
    return 0
