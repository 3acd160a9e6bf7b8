"""``iris-harness nightly``: a night of runs by a plan, and what changed since the nights before."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from pathlib import Path

import click
from rich.console import Console

import history
import reports
from command_line.kernel_listings import listings_of
from command_line.nightly import corpus
from command_line.nightly.leg import LegResult, Stopped, run_leg
from command_line.nightly.night import Night, open_night
from command_line.nightly.plan import Plan, read_plan
from command_line.nightly.soak import SoakResult, run_soak
from command_line.nightly.summary import Summary
from command_line.options import PATH
from command_line.output import console, say
from command_line.publishing import JUNIT, REPORT
from fixtures import options
from harness import runs
from harness.errors import UsageError
from harness.printable import plain


@click.command("nightly", short_help="Run the legs of a plan; report what changed.")
@click.argument("plan", type=PATH)
@click.option("--output", type=PATH, help="Folder of the night.  [default: out/nightly/DATE, or an unfinished night]")
@click.option("--new", "fresh", is_flag=True, help="Begin a new night, also if one of the plan is unfinished.")
@click.option("--seed", help="Seed of the night.  [default: a new one, which is printed]")
@click.option("--node", help="Name of this machine in the history.  [default: its host name]")
def command(plan: Path, output: Path | None, fresh: bool, seed: str | None, node: str | None) -> int:
    """Run a night by PLAN, a TOML file with legs, a corpus, a soak and a history.

    First the reduced failures of earlier nights run, then each leg for the time of its budget, with new seeds. What ran
    is added to the history. A night that was interrupted is continued by the same command: no group is lost, and none
    counts twice.

    \b
    Exit status: 0  everything that the plan names ran and passed
                 1  something failed or could not be checked
                 2  the request, the plan or the history was wrong; nothing was changed
                 3  everything that ran passed, but a budget ended before the last group
                 130, 143  stopped; the same command continues the night
    """
    checked = read_plan(plan)
    chosen = options.parse_seed(seed) if seed is not None else None
    origin = history.Origin(node or platform.node() or "-")
    taken: list[str] = []
    if checked.history.exists():
        with history.History(checked.history) as opened:  # a history of a later version is refused before anything runs
            taken = history.names(opened)
    index, screen = corpus.Index(checked.corpus), console()
    night = open_night(checked, output, chosen, fresh=fresh, taken=taken)
    with runs.claimed(night.folder):
        with history.History(checked.history, create=True):
            pass  # one that cannot be written is refused before anything runs
        state = "continues" if night.resumed else "begins"
        screen.print(
            plain(f"Night {night.name} of {checked.name} {state}, seed {night.seed}: {night.folder}"),
            markup=False,
            soft_wrap=True,
        )
        try:
            summary = _run(checked, night, index, origin, screen)
        except Stopped as stop:
            say(f"stopped by signal {stop.number}; to continue: iris-harness nightly {plan} --output {night.folder}")
            return 128 + stop.number
        summary.write()
        night.finish()
        screen.print("\n".join(summary.lines()), markup=False, soft_wrap=True)
    return summary.status


def _run(plan: Plan, night: Night, index: corpus.Index, origin: history.Origin, screen: Console) -> Summary:
    legs: list[LegResult] = []
    problems: list[str] = []
    replayed = corpus.replay(plan, index, night.folder / "corpus", night.name, screen)
    for case in replayed:
        problems += _add(plan, case.attempts, history.Origin(origin.node, "corpus", night.name), case=case.id)
    for leg in plan.legs:
        place = night.folder / "legs" / leg.name
        screen.print(
            f"\n{leg.name}: {' '.join(leg.request.options())}, {leg.budget:.0f} s", markup=False, soft_wrap=True
        )
        ran = _last_ran(plan, leg.name)
        result = run_leg(
            leg, place, night.seed_of(leg.name), screen, first=index.groups(), ran=ran,
            database=(plan.corpus.folder / corpus.DATABASE).absolute(),
        )  # fmt: skip
        problems += _reports(result, place)
        legs.append(result)
        problems += _add(plan, result.attempts.files, history.Origin(origin.node, leg.name, night.name))
        corpus.collect(index, [result], plan.corpus, night.name)
    soak: SoakResult | None = None
    if plan.soak is not None:
        soak = run_soak(plan.soak, night.folder / "soak", night.seed_of("soak"), screen)
        problems += _add_soak(plan, soak, history.Origin(origin.node, "soak", night.name))
    changes = None
    if plan.history.exists():
        with history.History(plan.history) as opened:
            if night.name in history.names(opened):
                changes = history.changes(opened, night.name)
    added = [path.stem for path in index.files() if index.added(path.stem) == night.name]
    return Summary(night, legs, replayed, soak, added, changes, problems)


def _reports(result: LegResult, place: Path) -> list[str]:
    """Write report.html and junit.xml of all attempts of a leg; return what could not be written, and why."""
    union = result.attempts.union
    try:
        if result.attempts.each:
            reports.write_html(union, place / REPORT, listings_of(union))
            reports.write_junit(union, place / JUNIT)
    except (OSError, UsageError) as error:
        return [f"{result.name}: no report: {error}"]
    return []


def _last_ran(plan: Plan, leg: str) -> dict[str, float]:
    if not plan.history.exists():
        return {}
    with history.History(plan.history) as opened:
        return history.last_ran(opened, leg)


def _add(plan: Plan, files: Iterable[Path], origin: history.Origin, *, case: str = "") -> list[str]:
    """Add the attempts of a leg or a case to the history; return what could not be added, and why."""
    problems = []
    with history.History(plan.history, create=True) as opened:
        for file in files:
            try:
                history.add(opened, file, origin, case=case)
            except UsageError as error:
                problems.append(str(error))
    return problems


def _add_soak(plan: Plan, result: SoakResult, origin: history.Origin) -> list[str]:
    """Add a soak to the history; return what could not be added, and why."""
    if result.evidence is None:
        return []
    soak = history.Soak(
        result.verdict, result.rounds, result.cases, result.seconds, result.growth, result.areas,
        "; ".join(result.problems),
    )  # fmt: skip
    try:
        with history.History(plan.history, create=True) as opened:
            history.add_soak(opened, result.evidence, soak, origin)
    except UsageError as error:
        return [str(error)]
    return []
