"""``iris-harness quarantine verify``: run quarantined groups many times, and compare how often they fail."""

from __future__ import annotations

from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import click

import fixtures
from command_line import mustpass, preflight
from command_line.commands.check import files_of
from command_line.options import PATH, suite_options
from command_line.output import console, printable
from command_line.suite import run
from fixtures.coverage import possible_groups
from fixtures.options import Options
from harness import runs
from harness.errors import UsageError
from harness.evidence import Verdict, read
from harness.evidence.quarantine import Quarantined, read_quarantine

RUNS = 20


@click.group("quarantine", short_help="Groups that are known to be flaky.")
def command() -> None:
    """Verify a file of groups that are known to be flaky.

    Runs with --quarantine FILE are not red for failures of these groups.
    """


@command.command("verify", short_help="Run quarantined groups many times, and compare how often they fail.")
@click.argument("file", type=PATH)
@click.option(
    "--runs", "count", type=click.IntRange(min=1), default=RUNS, show_default=True, help="Runs of each group."
)
@suite_options(level="ci", output=Path("out", "quarantine"))
def verify(file: Path, count: int, output: Path, **options: Any) -> int:
    """Run the groups in FILE many times, and print how often they failed next to the recorded rate.

    Exit status 0 if all are still flaky. It is 1 if a group never failed or failed each time, which is not flaky; if it
    is not a group of the level any more; if its entry expired; or if a run gave it no verdict.
    """
    entries = _entries(file)
    request = preflight.check_request(**options)
    preflight.check_software(request.device, request.arch, request.ranks, request.ranks_per_gpu)
    known = _known(request)
    chosen = [entry for entry in entries if entry.group in known]
    folder, screen = preflight.output_folder(output), console()
    failed: Counter[str] = Counter()
    judged: Counter[str] = Counter()
    with runs.claimed(folder):
        for number in range(1, count + 1) if chosen else ():
            screen.print(f"run {number} of {count}", markup=False)
            verdicts = _verdicts(request, chosen, folder / f"run-{number}", screen)
            for entry in chosen:
                verdict = verdicts.get(entry.group, Verdict.NOT_RUN)
                judged[entry.group] += verdict in (Verdict.PASS, Verdict.FAIL, Verdict.FLAKY)
                failed[entry.group] += verdict in (Verdict.FAIL, Verdict.FLAKY)
    status = 0
    for entry in entries:
        problem = _problem(entry, failed[entry.group], judged[entry.group], count, entry.group in known)
        measured = f"failed {failed[entry.group]} of {judged[entry.group]}, recorded {entry.failed} of {entry.runs}"
        screen.print(printable(f"{entry.group}: {measured}{problem and f'; {problem}'}"), markup=False, soft_wrap=True)
        status = 1 if problem else status
    return status


def _entries(file: Path) -> tuple[Quarantined, ...]:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    if entries := read_quarantine(content, file.name):
        return entries
    raise UsageError(f"{file.name} has no entry [[group]]: there is nothing to verify")


def _known(request: preflight.Request) -> set[str]:
    """Return the groups that a run with this request has."""
    options = Options.checked(
        device=request.device, arch=request.arch, mode=request.mode, ranks=",".join(map(str, request.ranks)) or None,
        level=request.level, implementation_name=request.implementation, seed=None, evidence=None, replay=None,
        deadline=None, ranks_per_gpu=str(request.ranks_per_gpu), api=request.api,
    )  # fmt: skip
    return {
        group
        for held in mustpass.properties()
        for group, _, obstacle in possible_groups(held, options)
        if obstacle is None
    }


def _verdicts(request: preflight.Request, chosen: list[Quarantined], folder: Path, screen: Any) -> dict[str, Verdict]:
    """Run the groups once, and return the recorded verdict of each that ended."""
    folder.mkdir(exist_ok=True)
    evidence = folder / runs.EVIDENCE
    run.set_aside(evidence)
    targets = files_of(sorted({entry.group.partition("[")[0] for entry in chosen}))
    names = [word for entry in chosen for word in ("--group", entry.group)]
    outcome = run.run_suite(request, folder, screen, "-p", fixtures.SELECTION, *names, targets=targets)
    run.check_started(outcome, None)
    if outcome.stopped is not None:
        raise KeyboardInterrupt
    groups = read(evidence).groups if evidence.exists() else {}
    return {name: records[-1].verdict for name, records in groups.items()}


def _problem(entry: Quarantined, failed: int, judged: int, count: int, exists: bool) -> str:
    """Return why an entry is wrong; "" if the group is still flaky."""
    if not exists:
        return "it is not a group of this level any more: remove the entry"
    if entry.expired(date.today().isoformat()):
        return f"the entry expired on {entry.expires}"
    if judged < count:
        return f"{count - judged} of {count} runs gave it no verdict"
    if not failed:
        return "it does not fail any more: remove the entry, or use more --runs"
    return "it fails each time, which is not flaky: mend it, or waive its requirement" if failed == judged else ""
