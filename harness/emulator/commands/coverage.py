"""``python -m harness.emulator coverage``: opcodes of compiled kernels that the emulator has, without running them."""

from __future__ import annotations

import json
from pathlib import Path

import click

from harness.emulator.driver.coverage import Coverage, implemented, read, survey
from harness.emulator.faults import ListingError


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array, an object for each arch.")
@click.pass_context
def coverage(context: click.Context, paths: tuple[Path, ...], as_json: bool) -> None:
    """Count the opcodes that compiled kernels use, and list those that the emulator lacks.

    PATHS are amdgcn listings, or folders that contain *.amdgcn files, such as Triton's cache. The exit status is 1 if
    the emulator cannot run one of the kernels, and 2 if a file is not a listing of a gfx942 or gfx950 kernel.
    """
    try:
        surveyed = [c for c in survey(read(paths)).values() if c.listings]
    except ListingError as error:
        raise click.UsageError(str(error)) from error
    if not surveyed:
        raise click.UsageError(
            f"no amdgcn listing at {', '.join(map(str, paths))}: expected .amdgcn files or folders that contain them"
        )
    if as_json:
        click.echo(json.dumps([c.as_json() for c in surveyed], indent=1))
    else:
        for one in surveyed:
            _show(one)
    context.exit(1 if any(c.lacking or c.refused for c in surveyed) else 0)


def _show(coverage: Coverage) -> None:
    click.echo(
        f"{coverage.arch}: {coverage.listings} listings, {sum(coverage.opcodes.values())} instructions, "
        f"{len(coverage.opcodes)} opcodes; {len(implemented(coverage.arch))} opcodes implemented, "
        f"{len(coverage.lacking)} lacking"
    )
    for name, example in sorted(coverage.lacking.items()):
        click.echo(f"  {name}, {coverage.opcodes[name]} times: {example}")
    for reason in coverage.refused.values():
        click.echo(f"  {reason}")
