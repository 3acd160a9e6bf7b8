"""One leg of a night: a run of the suite with a budget, which continues after a crash."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

import fixtures
from command_line.commands.check import files_of
from command_line.nightly.plan import Leg
from command_line.nightly.union import ORDER, Attempts, attempts_of, numbered
from command_line.preflight import check_software
from command_line.suite.process import refusal
from command_line.suite.run import Outcome, run_suite
from fixtures.order import Order
from harness.casefile import FOLDER
from harness.errors import UsageError
from harness.evidence import Case, Verdict, merge
from harness.files import write_whole
from harness.printable import plain

GRACE = 600.0
"""Seconds after the end of the budget in which the last group may end. Then its run is ended from outside."""
IDLE = 2
"""Attempts in a row in which no group ended, after which the leg ends."""
_LEAST = 1.0


class Stopped(Exception):  # noqa: N818 - an order from outside, no error
    """A person or a supervisor stopped the night by signal ``number``; it can be continued."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Overrun(Exception):  # noqa: N818 - it never leaves this file
    """The last group did not end within the grace."""


@dataclass(frozen=True)
class LegResult:
    """Result of a leg: its attempts, the verdict of each planned group, and sentences about what went wrong."""

    name: str
    attempts: Attempts
    groups: Mapping[str, Verdict]
    problems: tuple[str, ...] = ()
    budget: float = 0.0

    @property
    def counts(self) -> Counter[str]:
        """The number of groups by verdict."""
        return Counter(verdict.value for verdict in self.groups.values())

    @property
    def verdict(self) -> Verdict:
        """The worst verdict; ``unknown`` with a problem; ``not_run`` if the budget ended before the last group."""
        return merge([*self.groups.values(), *([Verdict.UNKNOWN] if self.problems or not self.groups else [])])

    def failing(self) -> list[tuple[Case, Path]]:
        """Return the reduced cases of the groups that failed or were flaky, and the file of each."""
        union = self.attempts.union
        wanted = {
            record.failing_case
            for records in union.groups.values()
            for record in records
            if record.verdict in (Verdict.FAIL, Verdict.FLAKY) and record.failing_case
        }
        cases = {case.id: case for case in union.cases if case.id in wanted}
        places = [
            (case, file.parent / FOLDER / f"{case.id}.json") for case in cases.values() for file in self.attempts.files
        ]
        return [(case, path) for case, path in places if path.is_file()]


def run_leg(
    leg: Leg,
    folder: Path,
    seed: int,
    screen: Console,
    *,
    first: Sequence[str] = (),
    ran: Mapping[str, float] | None = None,
    database: Path | None = None,
) -> LegResult:
    """Run the groups of a leg that have no verdict in ``folder`` yet, and return the result of all attempts.

    A run that dies is continued with the groups that are left; a group in which it died twice is left out. ``first``
    and ``ran`` order the groups, see ``fixtures.order``; ``database`` is Hypothesis's folder of failing examples.
    Raises Stopped if the run was stopped from outside.
    """
    attempts, idle, problems = attempts_of(folder), 0, []
    while not (attempts.complete or attempts.ended) and idle < IDLE:
        remaining = leg.budget - attempts.used()
        if remaining <= 0 or not _any_left(attempts):
            break
        before = len(attempts.union.groups)
        try:
            outcome = _attempt(leg, folder, seed, screen, remaining, attempts, first, ran or {}, database)
        except UsageError as error:  # the other legs of the night can run
            problems.append(str(error))
            break
        attempts = attempts_of(folder)
        if outcome is not None and outcome.stopped is not None:
            raise Stopped(outcome.stopped)
        if outcome is None:
            problems.append(f"a group did not end within {GRACE:g} s after the budget")
            break
        if not attempts.ended:
            ending = outcome.ending or f"ended with exit status {outcome.status}"
            screen.print(
                plain(f"{leg.name}: the suite {ending}; it continues with the groups that are left"), markup=False
            )
        idle = 0 if len(attempts.union.groups) > before or attempts.ended else idle + 1
    return result_of(leg, attempts, problems)


def result_of(leg: Leg, attempts: Attempts, problems: Sequence[str] = ()) -> LegResult:
    """Return the result of the attempts so far."""
    union = attempts.union
    troubles = [*problems, *union.problems]
    troubles += [f"the run died twice in {group}, which has no verdict" for group in attempts.deadly()]
    if not attempts.each and not problems:
        troubles.append("no group was planned: pytest.log of its last attempt has the reason")
    elif attempts.each and not (attempts.ended or attempts.complete or attempts.deadly()) and not problems:
        troubles += [] if attempts.used() >= leg.budget else ["the run died, and did so again when it was continued"]
    if attempts.each:  # an attempt that died has no end, which is judged above
        troubles += [*union.declaration, *union.waiver_problems()]
        troubles += [gap for gap in union.gaps() if not gap.startswith("the run did not end")]
    planned = {group.requirement for group in union.plan.values()}
    named = {name: reason for name, reason in union.left_out.items() if name in leg.requirements}
    verdicts = dict.fromkeys((name for name in named if name not in planned), Verdict.NOT_RUN)
    for requirement in union.requirements().values():
        verdicts |= requirement.groups
        idle = tuple(f"{group}: " for group, verdict in requirement.groups.items() if verdict is Verdict.NOT_RUN)
        gaps = [gap for gap in requirement.gaps if "did not run" not in gap and "did not end" not in gap]
        troubles += [gap for gap in gaps if not (idle and gap.startswith(idle))]
    return LegResult(leg.name, attempts, verdicts, tuple(dict.fromkeys(troubles)), leg.budget)


def _any_left(attempts: Attempts) -> bool:
    return not attempts.each or bool(set(attempts.left) - set(attempts.deadly()))


def _attempt(
    leg: Leg,
    folder: Path,
    seed: int,
    screen: Console,
    remaining: float,
    attempts: Attempts,
    first: Sequence[str],
    ran: Mapping[str, float],
    database: Path | None,
) -> Outcome | None:
    """Run what is left in a new folder; None if it was ended because a group outlived the grace."""
    request = leg.request
    check_software(request.device, request.arch, request.ranks, request.ranks_per_gpu)
    number = max((int(path.name) for path in numbered(folder)), default=0) + 1
    place = folder / str(number)
    place.mkdir(parents=True)
    done = set(attempts.union.plan) - set(attempts.left)
    order = Order(seed, tuple(first), dict(ran), (*sorted(done), *attempts.deadly()))
    write_whole(place / ORDER, order.to_text())
    limit = time.monotonic() + remaining + GRACE

    def look() -> None:
        if time.monotonic() > limit:
            raise _Overrun

    request = replace(request, seed=seed, budget=max(_LEAST, remaining))
    try:
        options = ["-p", fixtures.SELECTION, "--order", str(place / ORDER)]
        options += [] if database is None else ["--database", str(database)]
        options += [word for name in leg.requirements for word in ("--requirement", name)]
        targets = files_of(leg.requirements) if leg.requirements else ("",)
        outcome = run_suite(request, place, screen, *options, targets=targets, look=look)
    except _Overrun:
        return None
    if outcome.status == 4 and not (outcome.evidence.exists() and outcome.evidence.stat().st_size):
        raise UsageError(refusal(outcome.tail))
    return outcome
