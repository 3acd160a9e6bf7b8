"""``python -m harness.emulator trace``: the timeline of a script's kernels."""

from __future__ import annotations

from pathlib import Path

import click

from harness.emulator.commands.script import execute, takes_script
from harness.emulator.watch import Seeded
from harness.emulator.watch.timeline import Trace

_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--output", type=_FILE, required=True, help="The timeline, for ui.perfetto.dev (JSON).")
@click.option("--heat-map", type=_FILE, default=None, help="Bytes accessed by rank, allocation and address (HTML).")
@click.option("--seed", type=int, default=None, help="Decides the interleaving.")
@click.option("--wavefronts", type=click.IntRange(1), default=64, show_default=True, help="Tracks of each rank.")
@click.option("--limit", type=click.IntRange(1), default=200_000, show_default=True, help="Accesses that are kept.")
@takes_script
def trace(
    output: Path,
    heat_map: Path | None,
    seed: int | None,
    wavefronts: int,
    limit: int,
    arch: str,
    script: Path,
    arguments: tuple[str, ...],
) -> int:
    """Run SCRIPT with its ARGUMENTS on the emulated device and write what its kernels did.

    Time is virtual, in executed wavefront-instructions: the same run gives the same file. It is written when a kernel
    faults as well. Exit status: the script's, 1 when a kernel faults, 2 for bad input.
    """
    for path in (output, heat_map):
        if path is not None and not path.parent.is_dir():
            raise click.UsageError(f"there is no folder {path.parent} to write {path.name} to")
    watch = Trace(None if seed is None else Seeded(seed), limit=limit, wavefronts=wavefronts)
    status = execute(script, arguments, arch, watch)
    watch.write(output)
    if heat_map is not None:
        watch.write_heat_map(heat_map)
    timeline = watch.timeline
    click.echo(
        f"{output}: {len(timeline.launches)} launches, {timeline.now} wavefront-instructions, {len(timeline.accesses)} "
        f"accesses ({timeline.dropped['accesses']} more left out)"
    )
    return status
