"""Run the suite, keep its evidence, and say what came of it."""

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

from harness.commands.preflight import Request
from harness.commands.progress import Display, Follower
from harness.commands.suite import Suite, child_environment, pytest_command
from harness.runs import EVIDENCE

LOG = "pytest.log"


@dataclass(frozen=True)
class Outcome:
    """How the suite's process ended.

    ``stopped`` is the signal that a person or a supervisor stopped the run with, ``ending`` a clause when the process
    did not end as a test run does, ``tail`` the last lines of its output, ``evidence`` where its records lie (the
    file may be missing), ``log_problem`` why pytest.log is not whole, if it is not.
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
) -> Outcome:
    """Run the suite with its evidence in ``output``, showing progress on ``console``; the whole suite, or only
    ``targets`` (paths below its folder's parent).

    ``look`` is called now and then, and once at the end. SIGINT and SIGTERM stop the run in bounded time; a second one
    stops it at once. Call it in the main thread. When it returns, no process of the run is left.
    """
    evidence = output / EVIDENCE
    command = pytest_command(targets, *request.options(), "--evidence", str(evidence), *extra)
    with stop_signals() as stop, Suite(command, output / LOG, child_environment(request.implementation)) as suite:
        with Display(Follower(evidence), console) as display:
            while suite.poll() is None and stop.signal is None:
                display.update()
                look()
                time.sleep(0.1)
            display.update()
        if stop.signal is not None:
            console.print("stopping: closing the rank groups (again to stop at once)", markup=False)
            suite.stop(hurry=stop.again)
        status = suite.poll()
        assert status is not None  # sanity check: it was polled or stopped above
    look()
    return Outcome(evidence, status, stop.signal, suite.ending(), tuple(suite.tail), suite.log_problem)


def set_aside(evidence: Path) -> Path | None:
    """Rename evidence of an earlier run to ``evidence.DATE.jsonl``: records are never mixed and never thrown away.

    Returns its new place; None where there was none.
    """
    for path in sorted(evidence.parent.glob(f"{evidence.stem}-gw*{evidence.suffix}")):
        path.rename(path.with_name(path.name.replace("-gw", ".unmerged-gw")))
    if os.path.lexists(evidence):  # a dangling link, too, would be written through
        written = time.strftime("%Y%m%dT%H%M%S", time.gmtime(evidence.lstat().st_mtime))
        target, number = evidence.with_name(f"{evidence.stem}.{written}{evidence.suffix}"), 1
        while os.path.lexists(target):
            number += 1
            target = evidence.with_name(f"{evidence.stem}.{written}-{number}{evidence.suffix}")
        return evidence.rename(target)
    return None


class _Stop:
    def __init__(self) -> None:
        self.signal: int | None = None
        self.again = threading.Event()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            self.again.set()
        self.signal = self.signal or number


@contextlib.contextmanager
def stop_signals() -> Iterator[_Stop]:
    """Note SIGINT and SIGTERM instead of raising: an exception at any line could leave processes behind."""
    stop = _Stop()
    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
