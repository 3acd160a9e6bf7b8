"""``iris-harness mustpass``: the lists of the groups that a complete run has."""

from __future__ import annotations

import click

from command_line import mustpass
from command_line.output import say
from harness.evidence.mustpass import WRITE
from harness.evidence.suite import FOLDER


@click.group("mustpass", short_help="The lists of the groups that a complete run has.")
def command() -> None:
    """Write or check the lists of groups that a complete run of a level must have, for each hardware profile and API.

    They are files of the suite, made from its tests. No device is needed.
    """


@command.command("write", short_help="Write the lists that are not those of the suite's tests.")
def write() -> int:
    """Write the lists that are not those of the suite's tests, after a test or a requirement was changed."""
    outdated = mustpass.outdated()
    for path, text in outdated.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        click.echo(f"written: {FOLDER}/{path.name}")
    if not outdated:
        click.echo("All lists are those of the suite's tests.")
    return 0


@command.command("check", short_help="Check that the lists are those of the suite's tests.")
def check() -> int:
    """Check that the lists are those of the suite's tests. The exit status is 1 if one is not."""
    outdated = mustpass.outdated()
    for path, text in outdated.items():
        say(f"{FOLDER}/{path.name} {mustpass.first_difference(path, text)}: write it again with {WRITE}")
    return 1 if outdated else 0
