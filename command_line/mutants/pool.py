"""Many trials at a time, and the proof that the tests which killed pass on an unchanged copy."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

from command_line.mutants.prepared import Prepared
from command_line.mutants.trial import EVIDENCE, LOG, Trial, arguments_of
from harness import evidence
from harness.evidence import Verdict
from mutants import matrix, planting
from mutants.matrix import Result
from mutants.mutant import HARNESS, Mutant
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
    results: Sequence[Result], deadline: float, limit: float, prepared: Callable[[], Prepared], stop: Stop
) -> list[Result]:
    """Run every test that killed on an unchanged copy of the library, at the level at which it killed, and return the
    results.

    A kill by a test that does not pass there, or did not end within ``limit`` seconds for all of one level and number
    of ranks together, becomes an error.
    """
    killed = [one for one in results if one.nodeid and one.verdict == matrix.KILLED]
    by_stage: dict[tuple[str, int], set[str]] = {}
    for one in killed:
        by_stage.setdefault((one.level or FIRST, _ranks(one.nodeid)), set()).add(one.nodeid)
    bad: dict[tuple[str, str], str] = {}
    for (level, ranks), nodeids in sorted(by_stage.items()):
        stage = Stage(tuple(sorted(nodeids)), ranks=ranks, level=level)
        reasons = _not_passing(stage, deadline, limit, prepared(), stop)
        bad |= {(level, nodeid): reason for nodeid, reason in reasons.items()}
    return [
        _denied(one, bad[key]) if one in killed and (key := (one.level or FIRST, one.nodeid)) in bad else one
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


def _ranks(nodeid: str) -> int:
    """Return the number of ranks of a test, which is in its id."""
    match = re.search(r"\branks=(\d+)", nodeid)
    assert match is not None, nodeid  # sanity check: the plugin adds it to every test with ranks
    return int(match[1])


def _denied(result: Result, reason: str) -> Result:
    message = f"the test that killed does not pass on an unchanged copy: {reason}"
    return replace(result, verdict=matrix.ERROR, message=message[: matrix.MESSAGE])


def _not_passing(stage: Stage, deadline: float, limit: float, prepared: Prepared, stop: Stop) -> dict[str, str]:
    """Return the tests of ``stage``, node ids, that do not pass on an unchanged copy, with the reason."""
    with tempfile.TemporaryDirectory(prefix="iris-harness-control-") as name:
        folder = Path(name)
        planting.write_copy(folder, {})
        arguments = arguments_of(stage, folder / EVIDENCE, deadline)
        ends = time.monotonic() + limit
        with prepared.run(arguments, folder, folder / LOG) as suite:
            while suite.poll() is None and stop.signal is None and time.monotonic() < ends:
                time.sleep(0.1)
        records = folder / EVIDENCE
        recorded = evidence.read(records) if records.is_file() and records.stat().st_size else None
        passed = {
            planned.nodeid
            for planned in (recorded.plan.values() if recorded else ())
            if recorded and [group.verdict for group in recorded.groups.get(planned.group, [])] == [Verdict.PASS]
        }
        messages = {
            case.nodeid: case.message
            for case in (recorded.cases if recorded else ())
            if case.verdict is not Verdict.PASS
        }
        return {nodeid: messages.get(nodeid, "it did not run") for nodeid in stage.targets if nodeid not in passed}


def _end(trial: Trial, result: Result, running: list[Trial], take: Callable[[Trial, Result], None]) -> None:
    trial.close()
    running.remove(trial)
    take(trial, result)
