"""The options of every command that runs the suite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import click

from fixtures import adapters
from fixtures.implementation import BUNDLED
from fixtures.levels import LEVELS
from harness import devices
from harness.evidence import APIS, EXTENDED, ONE_PROCESS

PATH = click.Path(path_type=Path)
_LEVELS = "the level's"
_Command = TypeVar("_Command", bound=Callable[..., Any])


def suite_options(
    *, level: str, output: Path, ranks: str | None = None, seed: str | None = None, judge: str | None = ONE_PROCESS
) -> Callable[[_Command], _Command]:
    """Return a decorator that adds the options of a run to a command, with these defaults.

    All of them except ``output`` are parameters of ``preflight.check_request``.
    """
    options = [
        click.option("--device", default="emulated", show_default=True, help=_one_of(devices.names())),
        click.option("--arch", help=f"{_one_of(devices.of_all('archs'))}  [default: the device's first]"),
        click.option(
            "--emulator-mode",
            "mode",
            default="fast",
            show_default=True,
            help=_one_of(devices.of_all("modes"), "weak:SEED"),
        ),
        click.option("--ranks", default=ranks, help=f"World sizes, such as 4 or 2,4.  [default: {ranks or _LEVELS}]"),
        click.option(
            "--ranks-per-gpu", default="1", show_default=True, help="The largest number of ranks that share a GPU."
        ),
        click.option("--level", default=level, show_default=True, help=_one_of(LEVELS)),
        click.option("--output", type=PATH, default=output, show_default=True, help="Directory of the results."),
        implementation_option(),
        library_options(),
        click.option("--api", default=EXTENDED, show_default=True, help=f"Requirements to judge: {_one_of(APIS)}"),
        click.option(
            "--judge",
            default=judge,
            help="Compare in the process that runs the library (together), or in one that the library never enters"
            f" (apart).  [default: {judge or 'apart where possible'}]",
        ),
        click.option("--seed", default=seed, help=f"Seed of the drawn cases.  [default: {seed or _LEVELS}]"),
    ]
    return _all_of(options)


def library_options() -> Callable[[_Command], _Command]:
    """Return a decorator that adds ``--adapter`` and ``--provider`` to a command with ``--implementation``."""
    return _all_of(
        [
            click.option("--adapter", help=f"The API of the package under test: {_one_of(adapters.names())}"),
            click.option("--provider", metavar="MODULE:FACTORY", help="A heap provider instead of a package."),
        ]
    )


def implementation_option() -> Callable[[_Command], _Command]:
    """Return a decorator that adds ``--implementation`` to a command."""
    return click.option("--implementation", default=BUNDLED, show_default=True, help="The package under test.")


def _all_of(options: Sequence[Callable[[Any], Any]]) -> Callable[[_Command], _Command]:
    return lambda command: reduce(lambda decorated, option: option(decorated), reversed(options), command)


def _one_of(names: Iterable[str], *further: str) -> str:
    *others, last = (*names, *further)
    return f"{', '.join(others)} or {last}."
