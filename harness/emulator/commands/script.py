"""Run a script that launches kernels, with the emulated device in place of a GPU."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from harness.emulator import ARCHS, activate, deactivate
from harness.emulator.driver.driver import watching
from harness.emulator.watch import Watch
from harness.errors import KernelFault

Command = TypeVar("Command", bound=Callable[..., Any])


def takes_script(command: Command) -> Command:
    """Add the parameters of a command that runs a script: --arch, SCRIPT and its arguments."""
    for parameter in (
        click.argument("arguments", nargs=-1, type=click.UNPROCESSED),
        click.argument("script", type=click.Path(exists=True, dir_okay=False, path_type=Path)),
        click.option("--arch", type=click.Choice(ARCHS), default=ARCHS[0], show_default=True, help="The GPU."),
    ):
        command = parameter(command)
    return command


def execute(script: Path, arguments: tuple[str, ...], arch: str, watch: Watch | None) -> int:
    """Run ``script`` as ``python SCRIPT ARGUMENTS`` would, and return its exit status.

    The status is 1 if a kernel faults; the fault is printed to stderr. A script that activates the device itself gets
    ``watch`` too, unless it names a mode.
    """
    before = sys.argv, sys.path[0]
    sys.argv, sys.path[0] = [str(script), *arguments], str(script.resolve().parent)
    try:
        with watching(watch):
            activate(arch)
            runpy.run_path(str(script), run_name="__main__")
    except KernelFault as fault:
        click.echo(f"{type(fault).__name__}: {fault}", err=True)
        return 1
    except SystemExit as end:
        return _status(end.code)
    finally:
        sys.argv, sys.path[0] = before
        deactivate()
    return 0


def _status(code: object) -> int:
    if code is None or isinstance(code, int):
        return int(code or 0)
    click.echo(str(code), err=True)
    return 1
