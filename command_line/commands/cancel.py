"""``iris-harness cancel``: end a run on many machines."""

from __future__ import annotations

from pathlib import Path

import click

from command_line.fleet import slurm, submission
from command_line.options import PATH


@click.command("cancel", short_help="End all jobs of a run that submit started.")
@click.argument("folder", type=PATH)
def command(folder: Path) -> int:
    """Cancel all jobs of the run in FOLDER. Shards that have ended stay, and iris-harness merge can join them."""
    run = submission.load(folder)
    slurm.check_installed()
    slurm.cancel(*run.state.jobs.values())
    ended = run.finished()
    click.echo(f"cancelled: jobs {', '.join(run.state.jobs.values())}; {len(ended)} of {run.state.of} shards had ended")
    return 0
