"""``iris-harness``: the command group. Turns every error into one line on stderr and an exit status.

To add a subcommand, write a module in ``command_line.commands`` that defines ``command``, and add it to ``COMMANDS``.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

import click

from command_line.output import lenient, say
from harness.errors import UsageError

COMMANDS = (
    "certify", "bundle", "verify", "key", "check", "doctor", "replay", "report", "compare", "names", "capabilities",
    "bench", "emulate", "cache", "isa", "mutants", "mustpass", "quarantine", "gate", "reach",
    "attribute", "nightly", "history", "dashboard", "bisect", "merge", "submit", "status", "cancel",
)  # fmt: skip
DEVICE_MODULES = ("numpy", "numba", "torch", "triton", "yaml")
SUITE_MODULES = (
    "hypothesis", "pytest", "xdist", "rich", "jinja2", "packaging", "matplotlib", "msgpack", "ruptures", "scipy",
)  # fmt: skip
"""Modules that the extras ``device`` and ``suite`` bring. ``suite`` includes ``device``."""

NEEDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "verify": ("", ()),
    "key": ("", ()),
    "emulate": ("device", DEVICE_MODULES),
}
"""The extra that a command needs, and its modules. Commands that are not named here need the extra ``suite``."""


class _Commands(click.Group):
    """Imports a subcommand when it is needed: each starts by itself, with its own dependencies."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        extra, needed = NEEDS.get(name, ("suite", SUITE_MODULES))
        if missing := [module for module in needed if not importlib.util.find_spec(module)]:
            return _unavailable(name, extra, missing)
        command: click.Command = importlib.import_module(f"command_line.commands.{name}").command
        return command


def _unavailable(name: str, extra: str, missing: list[str]) -> click.Command:
    """A command that stands for ``name`` where the packages of its extra are not installed."""
    install = f"pip install 'iris-harness[{extra}]'"

    def refuse(**_: Any) -> int:
        raise UsageError(f"{name} needs packages that are not installed ({', '.join(missing)}): {install}")

    return click.Command(
        name,
        callback=refuse,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        short_help=f"Not installed: {install}",
    )


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="iris-harness", message="%(prog)s %(version)s")
def cli() -> None:
    """Certify GPU communication libraries of the Iris kind, and run Triton programs on an emulated GPU."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its status.

    A usage error prints one line on stderr and exits with status 2. An error of the operating system prints one line
    and exits with status 1.
    """
    with lenient() as streams:
        status = run(arguments)
        if (reason := streams.lost()) is not None:
            say(f"stdout could not be written: {reason}")
            status = status or 1
    sys.exit(status)


def run(arguments: list[str] | None) -> int:
    """Run the command that ``arguments`` name, print its errors, and return its exit status."""
    try:
        status: Any = cli.main(arguments, prog_name="iris-harness", standalone_mode=False)
    except UsageError as error:
        say(str(error))
        return 2
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help())
        return 2
    except click.ClickException as error:
        say(f"{error.format_message()} (iris-harness --help lists the commands, COMMAND --help its options)")
        return 2
    except (click.Abort, KeyboardInterrupt):
        return 130
    except OSError as error:
        say(f"the run was aborted by an error of the operating system: {_reason(error)}")
        return 1
    return status if isinstance(status, int) else 0


def _reason(error: OSError) -> str:
    names = " to ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
    return f"{names}: {error.strerror}" if names else str(error.strerror or error)


if __name__ == "__main__":
    main()
