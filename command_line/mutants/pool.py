"""Many trials at a time, and the proof that the tests which killed pass on an unchanged copy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from command_line.mutants.prepared import Prepared
from command_line.mutants.trial import Trial
from mutants import matrix
from mutants.killers import ranks_of
from mutants.matrix import Result
from mutants.mutant import HARNESS, SOURCE, Mutant
from mutants.selection import FIRST, Stage, stages_of


class Stop(Protocol):
    """The signal with which a run is to stop, as ``command_line.suite.run.stop_signals`` yields."""

    signal: int | None


def run_trials(
    trials: Iterable[Callable[[], Trial]], jobs: int, take: Callable[[Trial, Result], None], stop: Stop
) -> None:
    """Run the trials, ``jobs`` at a time, and pass each with its result to ``take``.

    When ``stop`` reports a signal, running trials are closed without a result. No process is left in any case.
    """
    waiting, running = iter(trials), list[Trial]()
    try:
        exhausted = False
        while stop.signal is None:
            while not exhausted and len(running) < jobs:
                make = next(waiting, None)
                if make is None:
                    exhausted = True
                    break
                trial = make()
                running.append(trial)
                if (result := trial.start()) is not None:
                    _end(trial, result, running, take)
            for trial in list(running):
                if (result := trial.poll()) is not None:
                    _end(trial, result, running, take)
            if exhausted and not running:
                return
            time.sleep(0.1)
    finally:
        for trial in running:
            trial.close()


def controlled(
    results: Sequence[Result],
    jobs: int,
    deadline: float,
    limit: float,
    prepared: Callable[[], Prepared],
    stop: Stop,
) -> list[Result]:
    """Run every test that killed on an unchanged copy of the library, at the level at which it killed, and return the
    results.

    ``jobs`` tests run at a time, each at most ``limit`` seconds. A kill by a test that does not pass there becomes an
    error.
    """
    killed = {(one.level or FIRST, one.nodeid) for one in results if one.nodeid and one.verdict == matrix.KILLED}
    bad: dict[tuple[str, str], str] = {}

    def take(trial: Trial, result: Result) -> None:
        if result.verdict != matrix.SURVIVED:
            bad[trial.mutant.operator, trial.mutant.id] = result.message or result.verdict

    def unchanged(level: str, nodeid: str) -> Trial:
        mutant = Mutant(nodeid, SOURCE, level, "__init__.py", 1, 1, 0, "", "")
        return Trial(mutant, [Stage((nodeid,), ranks=ranks_of(nodeid), level=level)], deadline, limit, prepared)

    run_trials([partial(unchanged, *one) for one in sorted(killed)], jobs, take, stop)
    return [
        _denied(one, bad[key])
        if one.verdict == matrix.KILLED and (key := (one.level or FIRST, one.nodeid)) in bad
        else one
        for one in results
    ]


def harness_controlled(
    results: Sequence[Result], jobs: int, limit: float, prepared: Callable[[], Prepared], stop: Stop
) -> list[Result]:
    """Run the tests that killed harness mutants on an unchanged copy, file by file, and return the results.

    A kill by tests that do not pass there becomes an error.
    """
    files = sorted({one.file for one in results if one.kind == HARNESS and one.verdict == matrix.KILLED})
    unchanged = [Mutant(f"unchanged:{file}", HARNESS, "unchanged", file, 1, 1, 0, "", "") for file in files]
    bad: dict[str, str] = {}

    def take(trial: Trial, result: Result) -> None:
        if result.verdict != matrix.SURVIVED:
            bad[result.file] = result.message

    makers = [partial(Trial, mutant, stages_of(mutant), 0, limit, prepared) for mutant in unchanged]
    run_trials(makers, jobs, take, stop)
    return [
        _denied(one, bad[one.file]) if one.kind == HARNESS and one.verdict == matrix.KILLED and one.file in bad else one
        for one in results
    ]


def _denied(result: Result, reason: str) -> Result:
    message = f"the test that killed does not pass on an unchanged copy: {reason}"
    return replace(result, verdict=matrix.ERROR, message=message[: matrix.MESSAGE])


def _end(trial: Trial, result: Result, running: list[Trial], take: Callable[[Trial, Result], None]) -> None:
    trial.close()
    running.remove(trial)
    take(trial, result)
