"""``iris-harness status``: the state of a run on many machines."""

from __future__ import annotations

from pathlib import Path

import click

from command_line.fleet import progress, slurm, submission
from command_line.options import PATH
from command_line.output import console


@click.command("status", short_help="The state of a run that submit started.")
@click.argument("folder", type=PATH)
@click.option("--release", is_flag=True, help="Have requeued shards start now, not on a machine that was not healthy.")
def command(folder: Path, release: bool) -> int:
    """Print the state of each shard of the run in FOLDER, the findings about machines, and where the logs are.

    \b
    Exit status: 0  the run has ended and passed
                 1  it has ended otherwise
                 2  the folder is not one of a run
                 3  it has not ended
    """
    run = submission.load(folder)
    slurm.check_installed()
    tasks = slurm.tasks(*run.state.jobs.values())
    if release:
        for line in progress.release(run, tasks):
            click.echo(line)
        tasks = slurm.tasks(*run.state.jobs.values())
    return progress.show(run, tasks, console())
