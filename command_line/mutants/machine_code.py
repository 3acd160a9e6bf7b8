"""Binary mutants: record the calls of the suite, then repeat them with each mutant in one session of warm ranks."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from command_line.mutants.pool import Stop
from command_line.mutants.trial import how_of
from command_line.suite.process import Suite, child_environment, pytest_command
from harness.errors import UsageError
from mutants import matrix
from mutants.binary import recorder, session
from mutants.matrix import Result, result_of
from mutants.mutant import BINARY, Mutant

PLAN, RESULTS, LOG = "plan.json", "results.jsonl", "binary.log"
LEVEL = "gate"
"""Of the run whose calls are repeated: those that certify the library, on fewer ranks."""


def run_binary(
    output: Path,
    *,
    targets: Sequence[str],
    chosen: str,
    further: Sequence[str],
    ranks: int,
    sample: int | None,
    seed: int,
    only: Sequence[str],
    deadline: float,
    known: set[str],
    take: Callable[[Result], None],
    count: Callable[[int, Sequence[str]], None],
    stop: Stop,
) -> None:
    """Make the mutants of the kernels that the tests ``targets`` launch, run them, and pass each result to ``take``.

    ``chosen``: for pytest's -k. ``further``: tests whose calls judge these kernels too. ``ranks``: of the run whose
    calls are repeated. ``known``: ids that are not run again. ``count`` gets the number and the ids of all mutants. The
    logs are kept in ``output``. Raises UsageError if the tests do not pass without a mutant.
    """
    folder = Path(tempfile.mkdtemp(prefix="iris-harness-binary-"))
    try:
        plan, results = folder / PLAN, folder / RESULTS
        like = ["-k", chosen] if chosen else []
        recorded = {}
        for name, tests, more in (("calls", targets, like), ("further", further, [])):
            recorded[name] = str(folder / f"{name}.jsonl")
            _record(tests, more, ranks, Path(recorded[name]), output / f"recording-{name}.log", deadline, stop)
            if stop.signal is not None:
                return
        request = {**recorded, "results": str(results), "sample": sample, "seed": seed, "only": only}
        plan.write_text(json.dumps({**request, "known": sorted(known), "deadline": deadline}), encoding="utf-8")
        results.touch()
        with results.open(encoding="utf-8") as lines:
            reader = _Reader(lines, take, count)
            command = [sys.executable, "-m", session.__name__, str(plan)]
            status = _wait(command, output / LOG, stop, reader.look)
        if status and stop.signal is None:
            raise UsageError(f"the session of binary mutants ended with exit status {status}: see {output / LOG}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _record(
    targets: Sequence[str], options: Sequence[str], ranks: int, calls: Path, log: Path, deadline: float, stop: Stop
) -> None:  # fmt: skip
    """Run tests, and write their calls on the ranks to ``calls``. UsageError if they do not pass."""
    calls.touch()
    if not targets:
        return
    of_run = ["--ranks", str(ranks), "--level", LEVEL, "--seed", "0", "--deadline", f"{deadline:g}", "-q"]
    recording = ["-p", recorder.__name__, "--record-calls", str(calls)]
    evidence = ["--evidence", str(calls.with_suffix(".evidence.jsonl"))]
    status = _wait(pytest_command(targets, *of_run, *options, *recording, *evidence), log, stop, lambda: None)
    if stop.signal is None and (status or not calls.stat().st_size):
        raise UsageError(f"the tests do not pass without a mutant (exit status {status}): see {log}")


class _Reader:
    """Reads the growing file of a session's results."""

    def __init__(self, lines: Any, take: Callable[[Result], None], count: Callable[[int, Sequence[str]], None]) -> None:
        self._lines = lines
        self._take = take
        self._count = count
        self._begun = ""

    def look(self) -> None:
        """Pass on the lines that are new and complete."""
        while text := self._lines.readline():
            self._begun += text
            if not self._begun.endswith("\n"):
                return
            line, self._begun = json.loads(self._begun), ""
            if session.COUNT in line:
                self._count(line[session.COUNT], line[session.LISTED])
            else:
                self._take(_result(line[session.RESULTS]))


def _result(line: Mapping[str, Any]) -> Result:
    names = ("id", "operator", "file", "line", "column", "start", "old", "new")
    mutant = Mutant(kind=BINARY, **{name: line[name] for name in names})
    verdict = {"pass": matrix.SURVIVED, "fail": matrix.KILLED}.get(line["verdict"], matrix.ERROR)
    times = line["seconds"], line["message"], line["cpu_seconds"]
    if verdict != matrix.KILLED:
        return result_of(mutant, verdict, *times)
    killer = {"requirement": line["requirement"], "nodeid": line["nodeid"], "group": line["nodeid"].rpartition("::")[2]}
    return result_of(mutant, verdict, *times, how=how_of(line["message"], line["fault"]), **killer)


def _wait(command: Sequence[str], log: Path, stop: Stop, look: Callable[[], None]) -> int | None:
    """Run a command to its end, or until ``stop`` reports a signal; call ``look`` several times a second."""
    with Suite(command, log, child_environment()) as process:
        while process.poll() is None and stop.signal is None:
            look()
            time.sleep(0.1)
        process.join()
        look()
        return process.poll()
