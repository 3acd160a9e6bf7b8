"""The course of a gate: code of kernels, times, the suite, the base's own run, and the judgement over all."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

import fixtures
from command_line.gate import executing, figures, publish, reach, timing
from command_line.gate.changes import Base
from command_line.gate.choose import Choice
from command_line.gate.executing import OfBase
from command_line.gate.figures import Compared
from command_line.gate.judge import Word, judged
from command_line.gate.statistics import FASTER, SLOWER, UNCLEAR, Comparison
from command_line.gate.times import compared as compare_times
from command_line.gate.units import Sources
from command_line.output import printable, say
from command_line.preflight import Request
from command_line.publishing import write_reports
from command_line.suite.run import Outcome, StopRequest, check_started, conclude, run_suite, set_aside, stop_signals
from harness import runs
from harness.evidence import Evidence, read

if TYPE_CHECKING:
    from command_line.gate.planned import Planned

AUTO, GITHUB, NONE = "auto", "github", "none"
"""When annotations are printed: in GitHub Actions only, always, or never."""
CALLS, KERNELS = 0.15, 0.25
"""Parts of the rest of the budget that the figures of calls, and then the code of planned kernels, may take."""
UNLIMITED = 1800.0
"""Seconds for them without a budget."""
_SHOWN = 12


class Clock:
    """Seconds that a gate has left of its ``budget``, which is None without a limit."""

    def __init__(self, budget: float | None) -> None:
        self._budget = budget
        self._started = time.monotonic()

    def left(self, share: float = 1.0) -> float | None:
        """Return a share of what is left of the budget, at least a second; None without a budget."""
        if self._budget is None:
            return None
        return max(1.0, share * (self._budget - (time.monotonic() - self._started)))

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """The time in this block does not count."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self._started += time.monotonic() - begun


@dataclass(frozen=True)
class Wishes:
    """Comparisons with the base: figures of compiled ``kernels``; times of the ops ``ops`` on a GPU, and ``timed``
    ones; what cases executed, by the evidence ``before`` or by a run of the base (``run_base``). ``limits`` are the
    thresholds of figures. ``annotations``: one of ``AUTO``, ``GITHUB`` and ``NONE``."""

    kernels: bool
    ops: str | None
    timed: Sequence[tuple[str, Comparison | None]]
    before: Evidence | None
    run_base: bool
    limits: figures.Thresholds
    annotations: str


class _StoppedError(Exception):
    """A signal stopped the gate; the argument is its number."""


@dataclass(frozen=True)
class Course:
    """A gate that has chosen: ``copy`` has the base's library, ``library`` is the folder of the head's. The results go
    to ``folder``."""

    request: Request
    base: Base
    library: Path
    copy: Path
    known: reach.Map | None
    sources: Sources
    choice: Choice
    wishes: Wishes
    clock: Clock
    folder: Path
    screen: Console

    def run(self, options: Sequence[str]) -> int:
        """Compare, run and judge; return the exit status. ``options`` are further ones of pytest."""
        try:
            compared, kernels = self._calls(), self._kernels()
            ordered = replace(self, choice=self.choice if kernels is None else kernels.ordered(self.choice))
            return ordered._judge_cases(options, compared, kernels, self._times())
        except _StoppedError as stopped:
            return 128 + int(stopped.args[0])

    def _judge_cases(
        self,
        options: Sequence[str],
        compared: Compared,
        kernels: Planned | None,
        timed: Sequence[tuple[str, Comparison | None]],
    ) -> int:
        outcome = self._suite(options)
        own = self._base(outcome, options)
        final: list[int] = []

        def conclusion(evidence: Evidence) -> int:
            written = write_reports(evidence, self.folder, self.screen)
            gate = self._judged(evidence, compared, kernels, timed, own)
            written = publish.write(gate, self.folder) and written
            written = self._announce(gate) and written
            final.append(gate.judgement.word.status if written else 1)
            return final[0]

        status = conclude(outcome, self.folder, self.screen, conclusion)
        # pytest counts a group that could not be checked, or that did not run in time, among the failures.
        known = (Word.UNCLEAR.status, Word.SHORT.status)
        return final[0] if _is_normal(outcome) and final and final[0] in known else status

    def _calls(self) -> Compared:
        if not (self.wishes.kernels and self.choice.changed):
            return Compared()
        from command_line.gate import kernels  # the suite's table of calls, with torch and Triton

        seconds = self.clock.left(CALLS)
        with _stoppable() as stop:
            return kernels.compared(
                self.copy, self.library, self.request.implementation,
                kernels.calls_of(self.known, self.choice.changed), self.folder / "kernels",
                UNLIMITED if seconds is None else seconds, stop, self.wishes.limits["compiled"], self.screen,
            )  # fmt: skip

    def _kernels(self) -> Planned | None:
        if not (self.wishes.kernels and self.choice.changed):
            return None
        from command_line.gate import planned  # as above

        seconds = self.clock.left(KERNELS)
        with _stoppable() as stop:
            return planned.compared(
                self.copy, self.library, self.request, list(self.choice.reasons), self.folder / "kernels" / "planned",
                UNLIMITED if seconds is None else seconds, stop, self.wishes.limits["compiled"], self.screen,
            )  # fmt: skip

    def _times(self) -> Sequence[tuple[str, Comparison | None]]:
        if self.wishes.ops is None:
            return self.wishes.timed
        with self.clock.stopped(), _stoppable() as stop:
            pairs = timing.measured(
                self.copy, self.library, self.request, self.wishes.ops, self.folder / "times", stop, self.screen
            )
        return [*self.wishes.timed, *compare_times(pairs, medians=True)]

    def _suite(self, options: Sequence[str]) -> Outcome:
        share = 1 - executing.SHARE if self.wishes.run_base else 1.0
        request = replace(self.request, budget=self.clock.left(share))
        earlier = set_aside(self.folder / runs.EVIDENCE)
        order = [option for name in self.choice.order for option in ("--requirement", name)]
        outcome = run_suite(request, self.folder, self.screen, *options, "-p", fixtures.SELECTION, *order)
        check_started(outcome, earlier)
        return outcome

    def _base(self, outcome: Outcome, options: Sequence[str]) -> OfBase:
        head = read(outcome.evidence) if self.wishes.run_base and _is_normal(outcome) else None
        if head is None or not head.runs:
            return OfBase(self.wishes.before)
        own = executing.of_base(
            self.copy, self.request, head, executing.groups_for(head, self.choice), self.clock.left(),
            self.folder / executing.FOLDER, self.screen, *options,
        )  # fmt: skip
        if own.stopped is not None:
            raise _StoppedError(own.stopped)
        return own

    def _judged(
        self,
        evidence: Evidence,
        compared: Compared,
        kernels: Planned | None,
        timed: Sequence[tuple[str, Comparison | None]],
        own: OfBase,
    ) -> publish.Gate:
        limits = self.wishes.limits["executed"]
        executed = [] if own.evidence is None else figures.executed_rows(own.evidence, evidence, limits)
        planned_rows, planned_notes = ((), ()) if kernels is None else (kernels.rows, kernels.notes)
        broken = [*compared.broken, *(() if kernels is None else kernels.broken)]
        rows = [*compared.rows, *planned_rows, *executed, *(_row(cell, one) for cell, one in timed if one is not None)]
        red = [*broken, *(row.sentence for row in rows if row.change == figures.RED)]
        open_times = [(cell, one) for cell, one in timed if one is None or one.answer == UNCLEAR]
        doubts = [*compared.unclear, *(f"{cell}: {_time_words(one)}" for cell, one in open_times)]
        return publish.Gate(
            evidence, judged(evidence, self.choice, red, doubts), self.choice, self.base, rows, broken,
            (*compared.notes, *planned_notes, *own.notes), self.sources.units, _prefix(self.base), own.failing,
            {} if kernels is None else kernels.code,
        )  # fmt: skip

    def _announce(self, gate: publish.Gate) -> bool:
        """Print the judgement and, in GitHub Actions, the annotations; add to the job summary there.

        Returns False, after the reason is printed, if the job summary could not be written.
        """
        screen, written, wanted = self.screen, True, self.wishes.annotations
        if wanted == GITHUB or (wanted == AUTO and os.environ.get("GITHUB_ACTIONS") == "true"):
            for one in publish.remarks(gate):
                click.echo(publish.github(one))
        if target := os.environ.get("GITHUB_STEP_SUMMARY"):
            try:
                with open(target, "a", encoding="utf-8") as file:
                    file.write(publish.summary(gate))
            except OSError as error:
                say(f"the job summary {target} could not be written: {error.strerror}")
                written = False
        _print_sentences(gate.judgement.unclear, screen)
        _print_sentences([row.sentence for row in gate.rows if row.change == figures.RED], screen)
        _print_sentences(gate.broken, screen)
        screen.print(f"\n{printable(gate.judgement.headline)}", markup=False, soft_wrap=True)
        screen.print(f"Summary: {printable(str(self.folder / publish.SUMMARY))}", markup=False, soft_wrap=True)
        return written


@contextmanager
def _stoppable() -> Iterator[StopRequest]:
    """A block that a signal ends early. Raises _StoppedError after it if there was one."""
    with stop_signals() as stop:
        yield stop
    if stop.signal is not None:
        raise _StoppedError(stop.signal)


def _is_normal(outcome: Outcome) -> bool:
    return outcome.stopped is None and outcome.ending is None


def _prefix(base: Base) -> str:
    """Return the folder of the library's parent, relative to the repository, "" if it is the root."""
    folder = base.library.parent.as_posix()
    return "" if folder == "." else folder


def _row(cell: str, comparison: Comparison) -> figures.Row:
    words = {SLOWER: figures.RED, FASTER: figures.BETTER}
    after = f"{1 + comparison.shift:.1%} ({comparison.sentence})"
    return figures.Row(cell, "GPU", "time", "100%", after, words.get(comparison.answer, figures.NOTE))


def _time_words(comparison: Comparison | None) -> str:
    return comparison.sentence if comparison is not None else "one side has no time, or a wrong output"


def _print_sentences(sentences: Sequence[str], screen: Console) -> None:
    for sentence in sentences[:_SHOWN]:
        screen.print(printable(sentence), markup=False, soft_wrap=True)
    if len(sentences) > _SHOWN:
        screen.print(f"and {len(sentences) - _SHOWN} more, in {publish.RESULT}", markup=False)
