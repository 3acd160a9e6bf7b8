"""``iris-harness key``: the keys that sign certificates."""

from __future__ import annotations

from pathlib import Path

import click

import certificates
from harness.printable import plain

KEY = Path("iris-harness.key")


@click.group("key", short_help="Keys that sign certificates.")
def command() -> None:
    """Create the keys that sign certificates."""


@command.command("new", short_help="Create a key.")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=KEY,
    show_default=True,
    help="File of the private key. The public key gets the same name and .pub.",
)
@click.option(
    "--type", "algorithm", type=click.Choice(certificates.ALGORITHMS), default=certificates.P256, show_default=True
)
def new(output: Path, algorithm: str) -> int:
    """Create a private key, which only you can read, and its public key, and print the key's id.

    Existing files are never replaced. The private key has no passphrase: keep it where only the signer can read it.
    """
    key = certificates.new_key(output, algorithm)
    click.echo(f"private key: {plain(str(output))}")
    click.echo(f"public key:  {plain(str(certificates.public_part(output)))}")
    click.echo(f"key id:      {key.public.id}")
    return 0
