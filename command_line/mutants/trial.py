"""One mutant: an isolated copy with its change, and the tests that may kill it, stage after stage."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from command_line.mutants.prepared import FOREIGN, Prepared, Run
from command_line.suite.process import pytest_arguments, refusal
from harness import evidence
from harness.evidence import Verdict
from mutants import matrix, planting
from mutants.matrix import Result, result_of
from mutants.mutant import HARNESS, Mutant
from mutants.selection import Stage

EVIDENCE, LOG = "evidence.jsonl", "pytest.log"
FAILED, REFUSED, NO_TESTS = 1, 4, 5
"""Exit statuses of pytest."""

FAILED_OF_HARNESS = (FAILED, 2, 3, REFUSED)
"""Exit statuses of the harness's tests that a mutant may cause: it also breaks collection, pytest's plugin, and the
import of conftest.py. The control shows that none of them occurs on an unchanged copy."""

_FAILURE = re.compile(r"(?:FAILED|ERROR) (\S+?\.py(?:::.+?)?)(?: - .*)?")


class Trial:
    """The runs of one mutant's ``stages`` with a limit of ``limit`` seconds for all of one level together.

    ``plain``: the stages are the plain suite. ``prepared`` returns the process that runs the stages: on copies of the
    library, or of the checkout for a harness mutant. Start the trial in the main thread, poll it until it returns a
    result, and close it in any case: that kills its processes, and removes its copy or gives it back.
    """

    def __init__(
        self,
        mutant: Mutant,
        stages: Sequence[Stage],
        deadline: float,
        limit: float,
        prepared: Callable[[], Prepared],
        *,
        plain: bool = False,
    ) -> None:
        self.mutant = mutant
        self.plain = plain
        self._prepared = prepared
        self._stages = list(stages)
        self._deadline = deadline
        self._limit = limit
        self._folder: Path
        self._ending = contextlib.ExitStack()
        self._suite: Run | None = None
        self._cpu_seconds = 0.0
        self._tested = False
        self._levels: dict[str, str] = {}
        self._started = self._level_started = time.monotonic()

    def start(self) -> Result | None:
        """Write the copy and start the first stage. Returns an error at once if the mutant cannot be made."""
        self._started = self._level_started = time.monotonic()
        try:
            if self.mutant.kind == HARNESS:
                checkouts = self._prepared().checkouts
                self._folder = checkouts.take()
                self._ending.callback(checkouts.give_back, self._folder)
                path = self._folder / self.mutant.file
                path.write_text(self.mutant.applied(path.read_text(encoding="utf-8")), encoding="utf-8")
            else:
                self._folder = Path(tempfile.mkdtemp(prefix="iris-harness-mutant-"))
                self._ending.callback(shutil.rmtree, self._folder, ignore_errors=True)
                text = self.mutant.applied(planting.original(self.mutant.file))
                planting.write_copy(self._folder, {self.mutant.file: text})
        except LookupError as error:
            return self._result(matrix.ERROR, str(error))
        self._next_stage()
        return None

    def poll(self) -> Result | None:
        """Return the result if the last stage has ended, or one has failed; start the next stage if one has passed."""
        assert self._suite is not None  # sanity check: started
        status = self._suite.poll()
        if status is None:
            if time.monotonic() - self._level_started < self._limit:
                return None
            self._end_stage()
            at_level = "" if self.mutant.kind == HARNESS else f" at level {self._stages[0].level}"
            return self._result(matrix.TIMEOUT, f"not decided within {self._limit:g} s{at_level}")
        self._suite.join()
        self._end_stage()
        if status == FAILED:
            return self._killed()
        if status == REFUSED and self._stages[0].optional:
            status = NO_TESTS  # the tests of an earlier run have other names now
        if self.mutant.kind == HARNESS and status in FAILED_OF_HARNESS:
            return self._killed()
        self._tested = self._tested or status != NO_TESTS
        if status == NO_TESTS and (len(self._stages) > 1 or self._tested):
            status = 0  # a stage without a test for this op, or on so few ranks; another one has some
        if status:
            reason = refusal(self._suite.tail) if status in (REFUSED, FOREIGN) else self._suite.ending()
            return self._result(matrix.ERROR, reason)
        if len(self._stages) == 1:
            return self._result(matrix.SURVIVED)
        level = self._stages.pop(0).level
        if self._stages[0].level != level:
            self._levels[level] = matrix.SURVIVED
            self._level_started = time.monotonic()
        self._next_stage()
        return None

    def close(self) -> None:
        """Kill what still runs, and remove the copy or give it back."""
        with self._ending:
            if self._suite is not None:
                self._suite.__exit__(None, None, None)

    def _next_stage(self) -> None:
        stage, records, log = self._stages[0], self._folder / EVIDENCE, self._folder / LOG
        records.unlink(missing_ok=True)
        log.unlink(missing_ok=True)
        if self.mutant.kind == HARNESS:
            arguments = self._of_harness(stage)
        else:
            arguments = arguments_of(stage, records, self._deadline, "-x")
        self._suite = self._prepared().run(arguments, self._folder, log)

    def _end_stage(self) -> None:
        """End what is left of the stage, and count its CPU seconds."""
        assert self._suite is not None  # sanity check: started
        self._suite.__exit__(None, None, None)
        self._cpu_seconds += self._suite.cpu_seconds

    def _of_harness(self, stage: Stage) -> list[str]:
        paths = [str(self._folder / target) for target in stage.targets]
        plugins = ["-p", "no:cacheprovider", "-m", "not slow and not nightly"]
        return [*paths, f"--rootdir={self._folder}", *plugins, "-x", "-q"]

    def _killed(self) -> Result:
        """Return the result of a stage that failed."""
        assert self._suite is not None  # sanity check
        if self.mutant.kind == HARNESS:
            lines = list(self._suite.tail)
            failed = [(line, match[1]) for line in lines if (match := _FAILURE.fullmatch(line))]
            line, nodeid = failed[0] if failed else (lines[-1] if lines else "no output", "")
            return self._result(matrix.KILLED, line, how="test", nodeid=nodeid if "::" in nodeid else "")
        return killed_by(self._folder / EVIDENCE, self._result, self._suite.tail)

    def _result(self, verdict: str, message: str | None = "", **killer: str) -> Result:
        seconds = time.monotonic() - self._started
        levels = dict(self._levels)
        if verdict != matrix.ERROR and self.mutant.kind != HARNESS and not self.plain:
            levels[self._stages[0].level] = verdict
        text = without_folders(message or "", self._folder)
        return result_of(self.mutant, verdict, seconds, text, self._cpu_seconds, levels, self._limit, **killer)


def without_folders(message: str, copy: Path) -> str:
    """Return a message with places relative to the copy of the library and to the project: a matrix is published."""
    for folder in (copy, planting.ROOT):
        message = message.replace(f"{folder}{os.sep}", "")
    return message


def arguments_of(stage: Stage, records: Path, deadline: float, *options: str) -> list[str]:
    """Return pytest's arguments to run a stage on the copy of the library and write its evidence to ``records``.

    No kernels are compiled ahead: the trials use the cores, and most of them end with the first group.
    """
    chosen = ["-k", stage.chosen] if stage.chosen else []
    request = ["--implementation", planting.NAME, "--ranks", str(stage.ranks), "--level", stage.level]
    request += ["--seed", "0", "--deadline", f"{deadline:g}", "--ahead", "0", "--evidence", str(records)]
    return pytest_arguments(stage.targets, *request, *chosen, "-q", *options)


def killed_by(records: Path, result: Callable[..., Result], tail: Sequence[str]) -> Result:
    """Return the result for a failed run, from its evidence and the last lines of its output.

    A run that is red only because cases could not be judged (verdict ``unknown``) has killed nothing: it is an error.
    """
    recorded = evidence.read(records) if records.is_file() and records.stat().st_size else None
    failing = [case for case in recorded.cases if case.verdict is Verdict.FAIL] if recorded else []
    if failing:
        last = failing[-1]  # the smallest: cases are recorded as they shrink
        killer = {"requirement": last.requirement, "group": last.group, "case": last.id, "nodeid": last.nodeid}
        return result(matrix.KILLED, last.message, how=how_of(last.message, last.fault), **killer)
    unknown = [case for case in recorded.cases if case.verdict is Verdict.UNKNOWN] if recorded else []
    if unknown:
        return result(matrix.ERROR, f"{unknown[0].group} could not be judged: {unknown[0].message}")
    lines = [line for line in tail if line.startswith(("ERROR", "E  "))] or list(tail)[-1:] or ["no output"]
    return result(matrix.KILLED, lines[-1], how="collection")


def how_of(message: str, fault: str | None = None) -> str:
    """Return how a case failed, as ``matrix.Result.how``, from the case's message."""
    if "CompilationError" in message or "UnsupportedLanguageConstruct" in message or "PassManager" in message:
        return "compilation"
    if "did not end" in message or "NoProgress" in message:
        return "hang"
    return "fault" if fault else "result"
