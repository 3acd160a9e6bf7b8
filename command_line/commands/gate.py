"""``iris-harness gate``: the judgement before a merge, first on what the change can affect."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from command_line import preflight
from command_line.gate import changes, figures, publish, reach, timing
from command_line.gate.changes import Base, units_since
from command_line.gate.choose import Choice, choose, groups_of_reasons
from command_line.gate.course import AUTO, GITHUB, NONE, Clock, Course, Wishes
from command_line.gate.times import compared as compare_times
from command_line.gate.units import Sources
from command_line.options import PATH, suite_options
from command_line.output import console, printable
from command_line.publishing import JUNIT, REPORT
from command_line.suite import groups as suite_groups
from command_line.suite.process import conformance_folder
from fixtures.implementation import BUNDLED
from harness import runs
from harness.errors import UsageError
from harness.evidence import EXTENDED, read, read_table

_DURATION = re.compile(r"(?=[\d.])(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")
_SHOWN = 12


@click.command("gate", short_help="Judge a change before a merge: first what it can affect.")
@suite_options(level="gate", output=Path("out", "gate"))
@click.option("--base", "revision", required=True, metavar="REV", help="Revision to compare with, as origin/main.")
@click.option(
    "--base-evidence",
    type=PATH,
    default=None,
    metavar="FILE",
    help="Evidence of the base: compare what cases executed.",
)
@click.option(
    "--run-base", is_flag=True,
    help="Run what the change can affect with the base's library too: compare what cases executed, and name the "
    "failures that the base has too.",
)  # fmt: skip
@click.option(
    "--budget", metavar="TIME", default=None, help="As 5m, 90s or 1h30m: nothing starts after it.  [default: no limit]"
)
@click.option(
    "--reach", "map_file", type=PATH, default=None, metavar="FILE",
    help="What each requirement reaches, from iris-harness reach.  [default: the bundled library's]",
)  # fmt: skip
@click.option(
    "--thresholds", type=PATH, default=None, metavar="FILE", help="Which changes of figures are red; see the docs."
)
@click.option(
    "--times", type=(PATH, PATH), multiple=True, metavar="BASE HEAD",
    help="Two bench.json of a GPU, of base and head, to compare; may be repeated.",
)  # fmt: skip
@click.option(
    "--bench", "ops", default=None, metavar="OPS",
    help="Time ops of base and head in turn on a GPU, as all_reduce,all_gather or all; the budget does not count it.",
)  # fmt: skip
@click.option("--figures/--no-figures", "wanted", default=True, show_default=True, help="Compile and compare kernels.")
@click.option(
    "--groups", metavar="N", help="Rank groups that work at the same time.  [default: what the machine holds]"
)
@click.option(
    "--annotations", type=click.Choice([AUTO, GITHUB, NONE]), default=AUTO, show_default=True,
    help="Print GitHub's annotations; auto: in GitHub Actions. Their files are written in any case.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only print what would run first, and why.")
def command(
    output: Path,
    revision: str,
    base_evidence: Path | None,
    run_base: bool,
    budget: str | None,
    map_file: Path | None,
    thresholds: Path | None,
    times: tuple[tuple[Path, Path], ...],
    ops: str | None,
    wanted: bool,
    groups: str | None,
    annotations: str,
    dry_run: bool,
    **options: Any,
) -> int:
    """Run what the change since --base can affect, then the rest of the level as --budget allows; write summary.md,
    comment.md, annotations.txt, code-quality.json, junit.xml, report.html and gate.json.

    The base is a revision of the git repository that has the library under test. A requirement runs first unless it is
    known that no code that it reaches changed.

    \b
    Exit status: 0  the whole level ran and passed
                 1  a group failed, or a figure or a contract is red
                 2  the request was wrong, or the base does not build
                 3  undecided: a group could not be checked, or the change can affect one that did not run
                 4  everything passed, but the library does not support every requirement of the API
                 5  what failed is waived or quarantined
                 6  everything that the change can affect passed, and the rest of the level did not all run
                 130, 143  stopped by Ctrl-C or SIGTERM
    """
    clock = Clock(None if budget is None else seconds_of(budget))
    limits = figures.thresholds_in(thresholds or figures.DEFAULT)
    request = preflight.check_request(**options)
    before = read(base_evidence) if base_evidence is not None else None
    if before is not None and (before.problems or not before.runs):
        raise UsageError(f"--base-evidence {base_evidence}: {(before.problems or ['it has no run'])[0]}")
    if before is not None and run_base:
        raise UsageError("--run-base makes the evidence of the base: leave out --base-evidence")
    timed = list(compare_times(times))
    if ops is not None:
        timing.check(request)
    library = changes.folder_of(request.implementation)
    base = changes.base_of(revision, library)
    known = _map(map_file, request.implementation)
    sources = Sources(library)
    choice = _choice(request, base, known, sources, library)
    screen = console()
    _print_choice(choice, base, screen)
    if dry_run:
        return 0
    preflight.check_software(request.device, request.arch, request.ranks, request.ranks_per_gpu)
    side_by_side = suite_groups.options(suite_groups.number(request, groups))
    wishes = Wishes(wanted, ops, timed, before, run_base, limits, annotations)
    with changes.checked_out(base) as copy:
        folder = preflight.output_folder(output, REPORT, JUNIT, *publish.FILES)
        with runs.claimed(folder):
            course = Course(request, base, library, copy, known, sources, choice, wishes, clock, folder, screen)
            return course.run(side_by_side)


def seconds_of(text: str) -> float:
    """Return the seconds of a duration such as 300, 5m or 1h30m. UsageError for anything else."""
    match = _DURATION.fullmatch(text.strip().lower())
    hours, minutes, seconds = (float(part or 0) for part in match.groups()) if match else (0.0, 0.0, 0.0)
    if not 1 <= (total := 3600 * hours + 60 * minutes + seconds) <= 7 * 86400:
        raise UsageError(f"--budget: expected a time from 1s to 168h, such as 5m, 90s or 1h30m, got {text!r:.60}")
    return total


def _map(path: Path | None, implementation: str) -> reach.Map | None:
    """Return the map for the library; None if there is none."""
    if path is None and (implementation != BUNDLED or not reach.BUNDLED.is_file()):
        return None
    known = reach.read(path or reach.BUNDLED)
    if known.implementation != implementation:
        raise UsageError(
            f"--reach {path}: it is of {known.implementation}, and the library under test is {implementation}"
        )
    return known


def _choice(request: preflight.Request, base: Base, known: reach.Map | None, sources: Sources, library: Path) -> Choice:
    suite = conformance_folder()
    table = read_table(suite / "requirements.toml")
    names = [name for name, one in table.items() if request.api in (EXTENDED, one.api)]
    inside = suite.relative_to(base.root).as_posix() if base.root in suite.parents else None
    elsewhere = "" if known is None else _elsewhere(request, known)
    return choose(
        names, known, sources.digests(), reach.suite_digests(suite), base.files, base.library.as_posix(), inside,
        {"triton": version("triton")}, elsewhere, units_since(base, sources.digests()),
    )  # fmt: skip


def _elsewhere(request: preflight.Request, known: reach.Map) -> str:
    """Return how a run differs from the recording of the map in what it can reach, "" if it does not."""
    wanted = {"device": request.device, "arch": request.arch, "level": request.level}
    recorded = {"device": "emulated", "arch": known.run["arch"], "level": known.run["level"]}
    words = [f"{name} {recorded[name]}" for name in wanted if wanted[name] != recorded[name]]
    return f"the map is of {', '.join(words)}" if words else ""


def _print_choice(choice: Choice, base: Base, screen: Console) -> None:
    total = len(choice.order)
    screen.print(
        f"The change since {base.revision} ({base.short}) can affect {len(choice.reasons)} of {total} requirements.",
        markup=False, soft_wrap=True,
    )  # fmt: skip
    reasons = groups_of_reasons(choice)
    for reason, names in list(reasons.items())[:_SHOWN]:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        screen.print(printable(f"  {', '.join(names[:3])}{more}: {reason}"), markup=False, soft_wrap=True)
    if len(reasons) > _SHOWN:
        screen.print(f"  and {len(reasons) - _SHOWN} further reasons", markup=False)
