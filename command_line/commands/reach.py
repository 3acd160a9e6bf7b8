"""``iris-harness reach``: record what each requirement reaches in the library, for ``iris-harness gate``."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

import fixtures
from command_line import preflight
from command_line.gate import reach
from command_line.gate.changes import folder_of
from command_line.options import PATH, suite_options
from command_line.output import console, say
from command_line.suite import groups as suite_groups
from command_line.suite.process import Suite, child_environment, conformance_folder, pytest_command
from command_line.suite.progress import Growing
from command_line.suite.run import stop_signals
from fixtures import dry
from fixtures.adapters import package_of
from harness import devices
from harness.errors import HarnessError, UsageError
from harness.evidence import sources_of
from harness.ranks import CaseFailed, RankGroup
from reports.text import plural

RANKS, SECONDS = 2, 60.0
"""Ranks that make the calls of the catalogue, and the seconds that each may take."""

INTERVAL = 15.0
"""Seconds between lines of progress, where output goes to no terminal."""


@click.command("reach", short_help="Record what each requirement reaches in the library.")
@suite_options(level="gate", output=Path("out", "reach"))
@click.option("--to", type=PATH, default=None, help="File of the map.  [default: reach.json in the output]")
@click.option(
    "--groups", metavar="N", help="Processes that record at the same time.  [default: what the machine holds]"
)
def command(output: Path, to: Path | None, groups: str | None, **options: Any) -> int:
    """Execute the cases of a level without launching kernels, and write which functions of the library each requirement
    reaches.

    The map is what iris-harness gate selects by. Record it again where what tests call has changed, such as after each
    merge or in each night; an older map is safe and selects more.

    Exit status 0 if the map was written, 1 if the recording did not come to its end, 2 if the request was wrong, 130 if
    interrupted.
    """
    request = preflight.check_request(**options)
    if devices.kind(request.device).is_gpu:
        raise UsageError(f"--device: a map is recorded without kernels, on the emulated device, got {request.device!r}")
    preflight.check_software(request.device, request.arch, request.ranks, request.ranks_per_gpu)
    folder = preflight.output_folder(output, reach.BUNDLED.name)
    target = (to or folder / reach.BUNDLED.name).absolute()
    library = folder_of(request.implementation)
    count = suite_groups.number(request, groups)
    with tempfile.TemporaryDirectory(prefix="iris-harness-reach-") as name:
        with stop_signals() as stop, contextlib.ExitStack() as stack:
            parts = [_start(request, Path(name), folder, part, count, stack) for part in range(1, count + 1)]
            with _progress(parts) as look:
                while any(part.suite.poll() is None for part in parts) and stop.signal is None:
                    time.sleep(0.2)
                    look()
            if stop.signal is not None:
                for part in parts:
                    part.suite.stop(hurry=stop.again)
                return 128 + stop.signal
        records = [record for part in parts for record in part.records()]
        for part in parts:
            if not part.ended:
                say(f"the recording ended with status {part.suite.poll()} before its end: see {part.log}")
                return 1
    calls = calls_of(request.implementation)
    run = {
        "level": request.level,
        "arch": request.arch,
        "triton": version("triton"),
        "harness": sources_of("harness") or "",
    }
    made = reach.made(records, calls, request.implementation, library, conformance_folder(), run)
    reach.write(made, target)
    unknown = sum(bool(one.problem) for one in made.requirements.values())
    click.echo(f"{target}: {len(made.requirements)} requirements, {unknown} of them not fully known")
    return 0


@dataclass
class _Part:
    """A process that records a part of the requirements into the file ``raw``. ``ended``: the last line was read."""

    suite: Suite
    raw: Path
    log: Path
    ended: bool = False

    def records(self) -> list[dict[str, Any]]:
        lines = self.raw.read_text("utf-8").splitlines() if self.raw.is_file() else []
        self.ended = bool(lines) and json.loads(lines[-1]) == dry.END
        return [json.loads(line) for line in lines[: None if self.ended else -1]]


@contextlib.contextmanager
def _progress(parts: Sequence[_Part]) -> Iterator[Callable[[], None]]:
    """Show what is recorded so far, each time the yielded function is called; without a terminal, every 15 seconds."""
    files = [Growing(part.raw) for part in parts]
    requirements: set[str] = set()
    cases, printed = 0, time.monotonic()
    shown = console()
    with shown.status("recording") as status:

        def look() -> None:
            nonlocal cases, printed
            for record in (record for file in files for record in file.new() if "requirement" in record):
                requirements.add(record["requirement"])
                cases += 1
            recorded = f"recorded {plural(cases, 'case')} of {plural(len(requirements), 'requirement')}"
            status.update(recorded)
            if not shown.is_terminal and time.monotonic() - printed >= INTERVAL:
                printed = time.monotonic()
                say(recorded)

        yield look


def _start(
    request: preflight.Request, scratch: Path, output: Path, part: int, count: int, stack: contextlib.ExitStack
) -> _Part:
    raw, log = scratch / f"reach-{part}.jsonl", output / f"reach-{part}.log"
    extra = ["-p", fixtures.REACH, "--reach", str(raw), "--reach-part", f"{part}/{count}", "--ahead", "0"]
    extra += ["--evidence", str(scratch / f"evidence-{part}.jsonl")]
    recording = pytest_command(("",), *request.options(), *extra)
    return _Part(stack.enter_context(Suite(recording, log, child_environment(request.implementation))), raw, log)


def calls_of(implementation: str) -> dict[str, tuple[set[str], str]]:
    """Return the places that each call of the catalogue reaches, and why they may be incomplete, or ""."""
    from conformance.isa.catalogue import CALLS  # imports torch, which --help does not need

    kind = devices.kind("emulated")
    device = devices.known(kind.name, kind.archs[0])
    setup = {"backend": device.backend, "device": kind.name, "arch": kind.archs[0], "implementation": implementation}
    preload = (*device.modules, package_of(implementation), "conformance.isa.reaching")
    reached = {}
    with RankGroup(RANKS, setup="fixtures.reach_rank:setup", options=setup, preload=preload) as group:
        for call in CALLS:
            group.renew()
            try:
                answers: list[Any] = group.call("conformance.isa.reaching:reach_call", {"call": call}, SECONDS)
            except (CaseFailed, HarnessError) as error:
                reached[call] = (set[str](), " ".join(f"{type(error).__name__}: {error}".split())[:200])
                continue
            places = {place for answer in answers for place in answer["places"]}
            reached[call] = (places, next((answer["problem"] for answer in answers if answer["problem"]), ""))
    return reached
