"""``python -m harness.emulator coverage``: what the emulator says about compiled kernels, without running them."""

from __future__ import annotations

import json
from pathlib import Path

import click

from harness.emulator.coverage import Coverage, implemented, read, survey
from harness.emulator.faults import ListingError


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array, an object for each arch.")
@click.pass_context
def coverage(context: click.Context, paths: tuple[Path, ...], as_json: bool) -> None:
    """Count the opcodes of compiled kernels that the emulator has.

    PATHS are amdgcn listings, or folders with *.amdgcn below, such as Triton's cache. Exit status 1 when the emulator
    would not run one of the kernels, 2 when a file is no listing of a gfx942 or gfx950 kernel.
    """
    try:
        found = [c for c in survey(read(paths)).values() if c.listings]
    except ListingError as error:
        raise click.UsageError(str(error)) from error
    if not found:
        raise click.UsageError(f"no amdgcn listing at {', '.join(map(str, paths))}")
    if as_json:
        click.echo(json.dumps([c.as_json() for c in found], indent=1))
    else:
        for one in found:
            _show(one)
    context.exit(1 if any(c.lacking or c.refused for c in found) else 0)


def _show(coverage: Coverage) -> None:
    click.echo(
        f"{coverage.arch}: {coverage.listings} listings, {sum(coverage.met.values())} instructions, "
        f"{len(coverage.met)} opcodes; {len(implemented(coverage.arch))} opcodes implemented, "
        f"{len(coverage.lacking)} lacking"
    )
    for name, example in sorted(coverage.lacking.items()):
        click.echo(f"  {name}, {coverage.met[name]} times: {example}")
    for why in coverage.refused.values():
        click.echo(f"  {why}")
