"""``iris-harness bundle``: the certificate of a finished run."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import click

import certificates
from command_line import kernel_cache
from command_line.options import PATH
from command_line.output import say
from harness.errors import UsageError
from harness.printable import plain

CERTIFICATE = "certificate.zip"


@click.command("bundle", short_help="Write the certificate of a finished run.")
@click.argument("evidence", type=PATH)
@click.option("--sign", "key", type=PATH, default=None, help="Private key to sign with. [default: unsigned]")
@click.option("--output", type=PATH, default=None, help=f"[default: {CERTIFICATE} next to the evidence]")
@click.option(
    "--log", type=PATH, default=None, help="A log to include, such as pytest.log. It may name paths and users."
)
def command(evidence: Path, key: Path | None, output: Path | None, log: Path | None) -> int:
    """Write one file with EVIDENCE, an evidence.jsonl, and everything that another person needs to check it.

    Run it on the machine of the run: the listings of the kernels are read from Triton's cache. certify --sign does the
    same at the end of a run. iris-harness verify checks the file.
    """
    signer = certificates.load_private(key) if key is not None else None
    write(evidence, output or evidence.parent / CERTIFICATE, signer, log)
    return 0


def of_run(evidence: Path, output: Path, key: certificates.PrivateKey) -> int:
    """Write the certificate of a run that has just ended; return 0, or 1 after printing why it could not be written.

    A certificate of an earlier run is removed first.
    """
    output.unlink(missing_ok=True)
    try:
        write(evidence, output, key)
    except UsageError as error:
        say(f"no certificate was written: {error}")
        return 1
    return 0


def write(evidence: Path, output: Path, key: certificates.PrivateKey | None, log: Path | None = None) -> None:
    """Write the certificate of a run and print its path and key. Raises as ``certificates.make``."""
    cache = kernel_cache.folder()
    certificates.make(
        evidence,
        output,
        key,
        datetime.now(timezone.utc),
        lambda kernel_hash: cache / kernel_cache.key_of(kernel_hash),
        log=log,
    )
    signer = f"signed with the key {key.public.id}" if key else "not signed: name a key with --sign"
    click.echo(f"Certificate: {plain(str(output.absolute()))}, {signer}")
