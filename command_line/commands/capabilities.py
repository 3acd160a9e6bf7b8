"""``iris-harness capabilities``: print what a library offers of what the requirements need."""

from __future__ import annotations

import click

from command_line.options import implementation_option, library_options
from command_line.output import console, say
from fixtures import adapters
from fixtures.adapters.applicability import reason_against
from fixtures.capabilities import query
from fixtures.tables import SUITE, vocabulary_of
from harness import devices
from harness.evidence import read_table
from harness.printable import plain
from reports import offered, print_capabilities


@click.command("capabilities", short_help="What a library offers of what the suite needs.")
@implementation_option()
@library_options()
@click.option("--device", default="emulated", show_default=True, help="Where an instance is made, if that is needed.")
@click.option("--all", "everything", is_flag=True, help="List what it offers as well, with signatures.")
def command(implementation: str, adapter: str | None, provider: str | None, device: str, everything: bool) -> int:
    """Print which of the capabilities that requirements need a library does not offer.

    A child process imports the library, looks each name up, and makes an instance if its class does not show a member.
    An iris_capabilities.toml in the package is read. No case is run.

    Exit status 0, 1 if the library declares a capability that it does not have, 2 if the request was wrong.
    """
    library = adapters.adapter_of(adapters.specification(implementation, adapter=adapter, provider=provider))
    library.check_installed()
    arch = devices.known(device, None, "fast", 1).arch
    requirements = [each for each in read_table(SUITE).values() if reason_against(library, each) is None]
    known = vocabulary_of(SUITE)
    names = {name for each in requirements for name in each.capabilities}
    answer = query(library, names | known.names, known, (device, arch, "fast"))
    table, screen = offered(answer.states, requirements), console()
    print_capabilities(table, screen, everything=everything)
    screen.print(f"{plain(library.subject)}: {table.sentence}", markup=False, soft_wrap=True)
    for problem in answer.problems:
        say(problem)
    return 1 if answer.problems else 0
