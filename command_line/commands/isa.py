"""``iris-harness isa``: compile the library's kernels without a GPU, judge their contracts, compare with a baseline."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import click

from command_line.isa import baseline
from command_line.isa.compiled import Result, compile_all
from command_line.options import implementation_option
from command_line.output import say
from conformance.isa.compilers import defect_of
from conformance.isa.targets import ARCHS
from fixtures.implementation import BUNDLED
from harness.errors import UsageError

BROKEN, DIFFERENT = 1, 3
"""Exit statuses: a contract is broken, or only the baseline differs."""
INTERVAL = 5.0
"""Seconds between two lines of progress."""

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _options(command: _Command) -> _Command:
    for option in (
        click.option("--output", type=click.Path(path_type=Path), default=Path("out/isa"), show_default=True,
                     help="Folder for the listings."),
        implementation_option(),
        click.option("--only", multiple=True, metavar="TEXT", help="Only calls whose name contains TEXT, as 'ring'."),
        click.option("--arch", "archs", multiple=True, type=click.Choice(list(ARCHS)),
                     help="Target; may be repeated.  [default: all]"),
    ):  # fmt: skip
        command = option(command)
    return command


def _baselines(command: _Command) -> _Command:
    return click.option(
        "--baselines", type=click.Path(path_type=Path), help="Their folder.  [default: the bundled library's]"
    )(command)  # fmt: skip


@click.group("isa", short_help="Judge compiled kernels without a GPU, and compare them with a baseline.")
def command() -> None:
    """Compile the library's kernels for GPUs that are not there, and read the code.

    A contract states what the kernels of a call must have: fences around flags, polls that read memory, widths. A
    baseline holds the figures of all kernels with one release of Triton.

    \b
    iris-harness isa check                       # contracts only
    iris-harness isa diff --arch gfx942          # and what differs from the baseline
    iris-harness isa accept                      # the present code becomes the baseline
    """


@command.command("check")
@_options
def check(archs: tuple[str, ...], only: tuple[str, ...], implementation: str, output: Path) -> int:
    """Judge the contracts. Exit status 0, or 1 if one is broken."""
    return _judge(_compile(archs, only, implementation, output), implementation)


@command.command("diff")
@_baselines
@_options
def diff(
    archs: tuple[str, ...], only: tuple[str, ...], implementation: str, output: Path, baselines: Path | None
) -> int:
    """Judge the contracts, and show what differs from the baseline.

    Exit status 0, 1 if a contract is broken, or 3 if only figures differ or there is no baseline.
    """
    folder = _folder(baselines, implementation)
    results = _compile(archs, only, implementation, output)
    status = _judge(results, implementation)
    different = 0
    for arch in _archs(archs):
        path = baseline.path_of(folder, arch)
        known = baseline.load(path)
        if known is None:
            lines = [f"{path}: there is no such baseline; iris-harness isa accept --arch {arch} writes it"]
        else:
            lines = list(baseline.differences(known, [one for one in results if one.arch == arch and not one.error]))
        different += len(lines)
        for line in lines:
            click.echo(line)
    if different == 0:
        click.echo("as in the baseline")
    return status or (DIFFERENT if different else 0)


@command.command("accept")
@_baselines
@_options
def accept(
    archs: tuple[str, ...], only: tuple[str, ...], implementation: str, output: Path, baselines: Path | None
) -> int:
    """Make the present code the baseline, unless it breaks a contract."""
    folder = _folder(baselines, implementation)
    results = _compile(archs, only, implementation, output)
    if status := _judge(results, implementation):
        say("nothing was written: a baseline has no broken contract")
        return status
    for arch in _archs(archs):
        path = baseline.path_of(folder, arch)
        baseline.save(path, [one for one in results if one.arch == arch])
        click.echo(f"{path}: {sum(one.arch == arch for one in results)} calls")
    return 0


def _archs(archs: tuple[str, ...]) -> tuple[str, ...]:
    return archs or tuple(ARCHS)


def _folder(baselines: Path | None, implementation: str) -> Path:
    if baselines is None and implementation != BUNDLED:
        raise UsageError(f"--baselines: the default is about {BUNDLED}; name a folder for those of {implementation}")
    return baselines or baseline.FOLDER


def _compile(archs: tuple[str, ...], only: tuple[str, ...], implementation: str, output: Path) -> list[Result]:
    from conformance.isa.catalogue import CALLS  # imports torch, which --help does not need

    calls = [call for call in CALLS if not only or any(text in call for text in only)]
    if not calls:
        raise UsageError(f"--only: no call has {' or '.join(map(repr, only))} in its name; they are {', '.join(CALLS)}")
    tasks = [(arch, call) for arch in _archs(archs) for call in calls]
    last = time.monotonic()

    def progress(done: int) -> None:
        nonlocal last
        if time.monotonic() - last >= INTERVAL:
            last = time.monotonic()
            say(f"compiled {done} of {len(tasks)} calls")

    results = compile_all(tasks, implementation, output, progress)
    say(f"listings: {output}")
    return results


def _judge(results: list[Result], implementation: str) -> int:
    """Print what breaks a contract, and return the exit status. Known defects of Triton itself are counted apart."""
    from conformance.isa.catalogue import CALLS

    wrong = 0
    triton, known = version("triton"), Counter[str]()
    for result in results:
        for line in result.broken:
            if (defect := defect_of(triton, CALLS[result.call].contract, line)) is not None:
                known[defect.reason] += 1
                continue
            wrong += 1
            click.echo(f"{result.call}: {line}")
        if result.error:
            # Another library need not have every call.
            wrong += implementation == BUNDLED
            click.echo(f"{result.call}, {result.arch}: not compiled: {result.error}")
    for reason, count in known.items():
        click.echo(f"{count} findings are a known defect of Triton {triton}: {reason}")
    judged = sum(not result.error for result in results)
    click.echo(f"{judged} of {len(results)} calls judged, {wrong} findings")
    return BROKEN if wrong or not judged else 0
