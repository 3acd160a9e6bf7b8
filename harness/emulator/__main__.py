"""``python -m harness.emulator``: trace a script, and list the opcodes that the emulated device executes."""

from __future__ import annotations

import sys
from typing import Any

import click

from harness.emulator.commands.coverage import coverage
from harness.emulator.commands.trace import trace

_NAME = "python -m harness.emulator"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Trace scripts on the emulated gfx942 and gfx950, and check which kernels they can execute.

    ``iris-harness emulate`` runs programs.
    """


for command in (coverage, trace):
    cli.add_command(command)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its status; on bad input print one line to stderr and exit with 2."""
    try:
        status: Any = cli.main(arguments, prog_name=_NAME, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help())
        sys.exit(2)
    except click.ClickException as error:
        click.echo(f"{_NAME}: {' '.join(error.format_message().split())} ({_NAME} --help lists the commands)", err=True)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
