"""Run the suite, keep its evidence, and report how the run ended."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rich.console import Console

from command_line.output import printable, say
from command_line.preflight import Request
from command_line.suite.process import BEHIND, Suite, child_environment, environment_of, pytest_command, refusal
from command_line.suite.progress import Display, Follower
from harness.errors import UsageError
from harness.evidence import Evidence, read
from harness.printable import plain
from harness.runs import EVIDENCE

LOG = "pytest.log"


@dataclass(frozen=True)
class Outcome:
    """Result of the suite's process.

    ``evidence`` is the path of its records; the file may be missing. ``stopped`` is the signal with which a person or
    a supervisor stopped the run. ``ending`` is a clause that describes an abnormal end, ``tail`` the last lines of the
    output. ``log_problem`` is the reason why pytest.log is incomplete, if it is.
    """

    evidence: Path
    status: int
    stopped: int | None
    ending: str | None
    tail: tuple[str, ...]
    log_problem: str | None = None


def run_suite(
    request: Request,
    output: Path,
    console: Console,
    *extra: str,
    targets: Sequence[str] = ("",),
    look: Callable[[], None] = lambda: None,
    library: Path | None = None,
) -> Outcome:
    """Run the suite, write its evidence into ``output``, and show progress on ``console``.

    ``targets`` are paths relative to the parent of the suite's folder; the default is the whole suite. ``extra`` are
    further options for pytest. ``look`` is called several times a second, and once at the end. ``library`` is the
    folder to import the package under test from, by default where it is installed. SIGINT and SIGTERM stop the run in
    bounded time; a second signal stops it at once. Call this function in the main thread. When it returns,
    no process of the run is left.
    """
    evidence = output / EVIDENCE
    options = [*request.options(), "--evidence", str(evidence.absolute()), *extra]
    environment, folder = child_environment(request.implementation), None
    if library is not None:
        # Python 3.10 imports from the current folder first, which may have another copy of the library.
        options, environment, folder = [*options, BEHIND], environment_of(library), output
    command = pytest_command(targets, *options)
    with stop_signals() as stop, Suite(command, output / LOG, environment, folder) as suite:
        with Display(Follower(evidence), console) as display:
            while suite.poll() is None and stop.signal is None:
                display.update()
                look()
                time.sleep(0.1)
            display.update()
        if stop.signal is not None:
            console.print("stopping: closing the rank groups (interrupt again to stop at once)", markup=False)
            suite.stop(hurry=stop.again)
        status = suite.poll()
        assert status is not None  # sanity check: it was polled or stopped above
    look()
    return Outcome(evidence, status, stop.signal, suite.ending(), tuple(suite.tail), suite.log_problem)


def set_aside(evidence: Path) -> Path | None:
    """Rename the evidence of an earlier run to ``evidence.DATE.jsonl``: records are never mixed and never deleted.

    Returns its new path, or None if there was no earlier evidence.
    """
    for path in sorted(evidence.parent.glob(f"{evidence.stem}-gw*{evidence.suffix}")):
        path.rename(path.with_name(path.name.replace("-gw", ".unmerged-gw")))
    if os.path.lexists(evidence):  # lexists: the suite would also write through a dangling link
        written = time.strftime("%Y%m%dT%H%M%S", time.gmtime(evidence.lstat().st_mtime))
        target, number = evidence.with_name(f"{evidence.stem}.{written}{evidence.suffix}"), 1
        while os.path.lexists(target):
            number += 1
            target = evidence.with_name(f"{evidence.stem}.{written}-{number}{evidence.suffix}")
        return evidence.rename(target)
    return None


def check_started(outcome: Outcome, earlier: Path | None) -> None:
    """Raise UsageError if the suite refused its options and recorded nothing.

    The ``earlier`` evidence, which ``set_aside`` renamed, gets its old name back.
    """
    if outcome.status == 4 and not (outcome.evidence.exists() and outcome.evidence.stat().st_size):
        if earlier is not None:
            earlier.replace(outcome.evidence)
        raise UsageError(refusal(outcome.tail))


def conclude(outcome: Outcome, output: Path, console: Console, publish: Callable[[Evidence], int]) -> int:
    """Publish the evidence, print how the run ended if it ended abnormally, and return the exit status.

    The status is that of ``publish`` if the run itself ended normally.
    """
    status, ending = 1, outcome.ending
    if outcome.evidence.exists():
        evidence = read(outcome.evidence)
        status = publish(evidence)
        if not evidence.ends and ending is None:
            ending = f"ended before its evidence was complete (exit status {outcome.status})"
    else:
        console.print("The suite left no evidence, so nothing is certified.", style="bold red")
        ending = ending or f"ended with exit status {outcome.status}"
    if outcome.log_problem is not None:
        say(f"{output / LOG} is incomplete: {outcome.log_problem}")
    if outcome.stopped is not None:
        console.print("Stopped before the end; the evidence so far is kept.", style="yellow")
        return 128 + outcome.stopped
    if ending is not None:
        console.print(f"\nThe suite {ending}. The last lines of {plain(str(output / LOG))}:", markup=False)
        for line in outcome.tail:
            console.print(f"  {printable(line)}", markup=False, style="dim")
        return 1
    return 1 if outcome.status else status


class StopRequest:
    """The first signal that required the run to stop, None before; ``again`` is set by a second one."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.again = threading.Event()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            self.again.set()
        self.signal = self.signal or number


@contextlib.contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Record SIGINT and SIGTERM instead of raising: an exception at an arbitrary line could leave processes behind."""
    stop = StopRequest()
    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
