"""``python -m harness.emulator run``: a script, in any mode."""

from __future__ import annotations

from pathlib import Path

import click

from harness.emulator.commands.script import execute, takes_script
from harness.emulator.watch import MODES, make
from harness.emulator.watch.race import Race


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--mode", type=click.Choice(MODES), default="check", show_default=True, help="What is watched.")
@click.option("--seed", type=int, default=None, help="Decides the interleaving, and in mode weak what memory does.")
@takes_script
def run(mode: str, seed: int | None, arch: str, script: Path, arguments: tuple[str, ...]) -> int:
    """Run SCRIPT with its ARGUMENTS on the emulated device.

    Kernels that it launches on CPU tensors are compiled for the arch and executed, in this process: those of processes
    that it starts are not watched. Exit status: the script's, 1 when a kernel faults, 2 for bad input.
    """
    try:
        watch = make(mode, seed)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    status = execute(script, arguments, arch, watch)
    if isinstance(watch, Race):
        for message in (*watch.unspecified, *watch.replicated):
            click.echo(f"note: {message}", err=True)
    return status
