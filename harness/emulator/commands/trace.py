"""``python -m harness.emulator trace``: write the timeline of a script's kernels."""

from __future__ import annotations

from pathlib import Path

import click

from harness.emulator.commands.script import execute, takes_script
from harness.emulator.watch import Seeded
from harness.emulator.watch.trace import Trace

_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--output", type=_FILE, required=True, help="File for the timeline (JSON, for ui.perfetto.dev).")
@click.option("--heat-map", type=_FILE, default=None, help="File for the bytes per rank and address (HTML).")
@click.option("--seed", type=int, default=None, help="Seed of the interleaving.")
@click.option("--wavefronts", type=click.IntRange(1), default=64, show_default=True, help="Tracks per rank.")
@click.option("--limit", type=click.IntRange(1), default=200_000, show_default=True, help="Most accesses recorded.")
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
    """Run SCRIPT with its ARGUMENTS on the emulated device and write a timeline of its kernels.

    Time is virtual, in executed wavefront-instructions: the same run gives the same file. The file is also written if
    a kernel faults. Exit status: that of the script, 1 if a kernel faults, 2 for bad input.
    """
    for path in (output, heat_map):
        if path is not None and not path.parent.is_dir():
            raise click.UsageError(f"there is no folder {path.parent} to write {path.name} to: create it first")
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
