"""``iris-harness cache``: keep compiled kernels from one CI run to the next."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path

import click

from command_line import kernel_cache
from command_line.options import implementation_option
from command_line.output import say
from fixtures.adapters import package_of
from harness.errors import UsageError
from harness.evidence import read
from harness.evidence.environment import sources_of

INTERVAL = 5.0
"""Seconds between two lines of progress."""


@click.group("cache", short_help="Export, import and prune compiled kernels.")
def command() -> None:
    """Keep the kernels that Triton has compiled, for example from one CI run to the next. Or compile the emulated
    device's own functions, for example when you build a container.

    \b
    key=$(iris-harness cache key)
    iris-harness cache import kernels-$key.tar.gz     # at the start, if the CI has it
    iris-harness certify
    iris-harness cache export kernels-$key.tar.gz     # at the end

    Import only archives that your own CI has exported: they hold machine code, which is run.
    """


@command.command("key")
@implementation_option()
def key(implementation: str) -> int:
    """Print a key that changes when the kernels may change: Triton's version, and the sources of library and suite.

    Kernels of another key remain useful: those whose sources are the same are found, whatever the key.
    """
    packages = (package_of(implementation), "conformance", "fixtures", "harness")
    parts = [version("triton"), *(f"{name} {sources_of(name)}" for name in packages)]
    click.echo(f"triton-{version('triton')}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}")
    return 0


@command.command("compile")
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Processes at the same time.  [default: the cores of this machine]"
)
def compile_(jobs: int | None) -> int:
    """Compile the emulated device's own functions for this processor now, instead of when a run first needs them.

    It takes about three minutes of one core, once per installation, and some seconds if it was done before. A run that
    starts meanwhile shares the work.
    """
    from harness.emulator.driver.ahead import MODULES, compile_all
    from harness.ranks.processes import die_with_parent

    with _progress("compiled", f"of {len(MODULES)} modules") as progress:
        compile_all(jobs or len(os.sched_getaffinity(0)), progress, partial(die_with_parent, os.getpid()))
    click.echo("The functions of the emulated device are compiled.")
    return 0


@command.command("export")
@click.argument("archive", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--evidence", type=click.Path(path_type=Path), help="Only kernels that ran in this evidence.jsonl.")
def export(archive: Path, evidence: Path | None) -> int:
    """Write the compiled kernels to ARCHIVE, a .tar.gz. The same kernels give the same bytes."""
    keys = None if evidence is None else _keys_in(evidence)
    with _progress("exported") as progress:
        count = kernel_cache.save(kernel_cache.folder(), archive, keys, progress)
    click.echo(f"{archive}: {count:,} kernels, {_mebibytes(archive.stat().st_size)}")
    return 0


@command.command("import")
@click.argument("archive", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def import_(archive: Path) -> int:
    """Add the kernels of ARCHIVE to Triton's cache; kernels that it has are kept. A wrong ARCHIVE changes nothing."""
    with _progress("read") as progress:
        new, known = kernel_cache.load(archive, kernel_cache.folder(), progress)
    click.echo(f"{kernel_cache.folder()}: {new:,} new kernels, {known:,} were there")
    return 0


@command.command("prune")
@click.option("--days", type=click.FloatRange(min=0), help="Remove kernels last used more than this many days ago.")
@click.option("--mebibytes", type=click.IntRange(min=0), help="Then remove the longest unused beyond this size.")
def prune(days: float | None, mebibytes: int | None) -> int:
    """Remove kernels from Triton's cache. Not while a run compiles."""
    if days is None and mebibytes is None:
        raise UsageError("cache prune removes nothing without a limit: give --days or --mebibytes")
    limit = None if mebibytes is None else mebibytes << 20
    count, freed = kernel_cache.prune(kernel_cache.folder(), days, limit)
    click.echo(f"{kernel_cache.folder()}: {count:,} kernels removed, {_mebibytes(freed)}")
    return 0


@command.command("info")
def info() -> int:
    """Print the folder of Triton's cache, the number of its kernels and their size."""
    kernels = list(kernel_cache.entries(kernel_cache.folder()))
    size = _mebibytes(sum(entry.bytes for entry in kernels))
    click.echo(f"{kernel_cache.folder()}: {len(kernels):,} kernels, {size}")
    return 0


def _keys_in(evidence: Path) -> set[str]:
    hashes = {hash_ for case in read(evidence).cases for hash_ in case.kernels}
    try:
        return {kernel_cache.key_of(hash_) for hash_ in hashes}
    except ValueError:
        raise UsageError(f"{evidence} names kernels by something else than Triton's hashes") from None


def _mebibytes(count: int) -> str:
    return f"{count / (1 << 20):,.1f} MiB"


@contextlib.contextmanager
def _progress(done: str, noun: str = "kernels") -> Iterator[Callable[[int], None]]:
    """Yield a function that prints how many have been ``done`` so far, at most every ``INTERVAL`` seconds."""
    last = time.monotonic()

    def show(count: int) -> None:
        nonlocal last
        if time.monotonic() - last >= INTERVAL:
            last = time.monotonic()
            say(f"{done} {count:,} {noun}")

    yield show
    sys.stdout.flush()
