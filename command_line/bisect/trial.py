"""A case with one revision of the library: built if need be, imported, replayed."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from command_line.bisect.revisions import BAD, GOOD, SKIP
from command_line.commands.replay import Replay
from command_line.nightly.leg import Stopped
from command_line.suite.process import BEHIND, Suite, child_environment, pytest_command, refusal
from command_line.suite.run import LOG, stop_signals
from fixtures.adapters import package_of
from harness.errors import UsageError
from harness.evidence import Verdict, merge, read
from harness.files import write_whole
from harness.runs import EVIDENCE

BUILD_LOG = "build.log"


@dataclass(frozen=True)
class Library:
    """Place of the library: its package, the package's folder in the repository, the command that builds a revision."""

    package: str
    place: Path
    build: tuple[str, ...] = ()
    limit: float = 1800.0


@dataclass(frozen=True)
class Tried:
    """Result of a revision: ``GOOD``, ``BAD`` or ``SKIP``, and the reason."""

    word: str
    reason: str


def attempt(replay: Replay, library: Library, tree: Path, folder: Path, repeat: int) -> Tried:
    """Run the case with the library in ``tree``, up to ``repeat`` times until it fails.

    A revision that cannot be built or imported, or whose run has no verdict, cannot be tried. Raises Stopped if it was
    stopped from outside.
    """
    folder.mkdir(parents=True)
    if library.build:
        status = _run(library.build, folder / BUILD_LOG, _environment(replay, library, folder), library.limit, tree)[0]
        if status:
            return Tried(SKIP, f"it does not build: {shlex.join(library.build)} ended with status {status}")
    package = tree / library.place
    if not package.is_dir():
        return Tried(SKIP, f"it does not have the package {library.place}")
    (folder / "lib").mkdir()
    (folder / "lib" / library.package).symlink_to(package, target_is_directory=True)
    environment = _environment(replay, library, folder)
    check = f"import sys, importlib; importlib.import_module({library.package!r})"
    status, tail = _run((sys.executable, "-c", check), folder / "import.log", environment, library.limit, folder)
    if status:
        return Tried(SKIP, f"it cannot be imported: {tail[-1] if tail else f'status {status}'}")
    for number in range(1, repeat + 1):
        tried = _once(replay, folder / str(number), environment, library.limit)
        if tried.word != GOOD:
            return tried
    return Tried(GOOD, "the case passed" if repeat == 1 else f"the case passed {repeat} times")


def _once(replay: Replay, folder: Path, environment: dict[str, str], limit: float) -> Tried:
    folder.mkdir()
    record, evidence = folder / "case.json", folder / EVIDENCE
    write_whole(record, json.dumps(replay.record))
    options = [*replay.request.options(), "--replay", str(record), "--evidence", str(evidence), BEHIND]
    status, tail = _run(pytest_command([replay.nodeid], *options), folder / LOG, environment, limit, folder)
    try:
        recorded = read(evidence)
    except UsageError:
        return Tried(SKIP, f"the run left no evidence: {refusal(tail):.200}")
    verdict = merge(each.verdict for records in recorded.groups.values() for each in records)
    if verdict is Verdict.PASS and status == 0:
        return Tried(GOOD, "the case passed")
    if verdict in (Verdict.FAIL, Verdict.FLAKY):
        message = next((case.message for case in recorded.cases if case.verdict is not Verdict.PASS), "")
        return Tried(BAD, message.splitlines()[0] if message else "the case failed")
    return Tried(SKIP, f"the case has no verdict ({verdict})")


def _environment(replay: Replay, library: Library, folder: Path) -> dict[str, str]:
    """Return the environment in which the library of the revision is imported and the suite is this one's."""
    environment = child_environment(replay.request.implementation)
    known = environment.get("PYTHONPATH", "")
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder / "lib"), known]))
    # Triton knows a function by its text: the user's cache must not get code whose source files are gone afterwards.
    return {**environment, "PYTHONDONTWRITEBYTECODE": "1", "TRITON_CACHE_DIR": str(folder.parent / "triton")}


def _run(
    command: Sequence[str], log: Path, environment: dict[str, str], limit: float, folder: Path
) -> tuple[int, list[str]]:
    """Run a command in its own process group; return its status, or 124 if it was ended after ``limit`` seconds, and
    the last lines of its output."""
    deadline = time.monotonic() + limit
    try:
        with stop_signals() as stop, Suite(command, log, environment, folder=folder) as suite:
            while (status := suite.poll()) is None and stop.signal is None and time.monotonic() < deadline:
                time.sleep(0.05)
            if status is None:
                suite.stop(hurry=stop.again)
            suite.join()
            tail = list(suite.tail)
    except FileNotFoundError:
        return 127, [f"{command[0]} does not exist"]
    if stop.signal is not None:
        raise Stopped(stop.signal)
    return (124 if status is None else status), tail


def library_of(implementation: str, place: Path, build: str | None) -> Library:
    """Return the library of an implementation whose package is in ``place`` of its repository."""
    try:
        words = tuple(shlex.split(build)) if build else ()
    except ValueError as error:
        raise UsageError(f"--build: {error}, got {build!r:.100}") from None
    return Library(package_of(implementation), place, words)
