"""``python -m harness.emulator``: run scripts on the emulated device, and ask what it can execute."""

from __future__ import annotations

import sys
from typing import Any

import click

from harness.emulator.commands.coverage import coverage
from harness.emulator.commands.run import run
from harness.emulator.commands.trace import trace

_NAME = "python -m harness.emulator"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """The emulated gfx942 and gfx950."""


for command in (coverage, run, trace):
    cli.add_command(command)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its status: bad input is one line on stderr and status 2."""
    try:
        status: Any = cli.main(arguments, prog_name=_NAME, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help())
        sys.exit(2)
    except click.ClickException as error:
        click.echo(
            f"{_NAME}: {' '.join(error.format_message().split())} ({_NAME} --help lists what there is)", err=True
        )
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
