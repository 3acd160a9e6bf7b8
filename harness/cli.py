"""``iris-harness``: the command line.

This is the one place in ``harness`` that knows the reports: it joins what the commands do with how it is shown. Each
command imports what it needs when it runs, so that a missing or broken package is told in one line and ``--help`` is
quick.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from harness.commands.certify import Outcome
    from harness.evidence import Evidence

REPORT, JUNIT = "report.html", "junit.xml"
_PATH = click.Path(path_type=Path)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="iris-harness", message="%(prog)s %(version)s")
def cli() -> None:
    """Certify GPU communication libraries of the Iris kind."""


@cli.command(short_help="Run the suite; write evidence and reports.")
@click.option("--device", default="emulated", show_default=True, help="emulated, rocm or cuda.")
@click.option("--arch", default=None, help="gfx942, gfx950 or sm_90.  [default: the device's first]")
@click.option("--emulator-mode", default="fast", show_default=True, help="fast, check, race, trace or weak[:SEED].")
@click.option("--ranks", default=None, help="Ranks, or several world sizes as in 2,4.  [default: the profile's]")
@click.option("--ranks-per-gpu", type=int, default=1, show_default=True, help="Ranks that share a GPU.")
@click.option("--profile", default="gate", show_default=True, help="gate, ci, dev or nightly.")
@click.option("--output", type=_PATH, default=None, help="Where evidence and reports go.  [default: out/certify]")
@click.option("--implementation", default="iris_under_test", show_default=True, help="The package under test.")
@click.option("--seed", type=int, default=None, help="Seed of what is drawn.  [default: the profile's]")
def certify(
    device: str,
    arch: str | None,
    emulator_mode: str,
    ranks: str | None,
    ranks_per_gpu: int,
    profile: str,
    output: Path | None,
    implementation: str,
    seed: int | None,
) -> int:
    """Run the conformance suite and write evidence.jsonl, report.html and junit.xml.

    Exit status 0 only if every planned requirement ran and passed, 1 if not, 2 if the request was wrong, 130 if
    interrupted.
    """
    from harness.commands import preflight

    request = preflight.check_request(device, arch, ranks, profile, implementation, seed, emulator_mode, ranks_per_gpu)
    preflight.check_software(request.device, request.arch, request.ranks, request.ranks_per_gpu)
    output = output or Path("out", "certify")
    preflight.check_output(output)

    from harness.commands.certify import run_suite

    console = _console()
    outcome = run_suite(request, output, console)
    _point_latest_at(output)
    if outcome.status == 4 and not outcome.evidence.exists():
        raise UsageError(_last_error(outcome.tail))
    return _conclude(outcome, output, console)


@cli.command(short_help="Say what this machine can run.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(as_json: bool) -> int:
    """Say what this machine can run, what is missing, and how to get it.

    Exit status 0 if at least the emulated device can run, otherwise 1.
    """
    from harness import doctor as examination

    findings = examination.examine()
    if as_json:
        click.echo(examination.as_json(findings))
    else:
        examination.show(findings, _console())
    return 0 if findings.can_run("emulated") else 1


@cli.command(short_help="Run one recorded case again.")
@click.argument("case")
@click.option("--evidence", type=_PATH, default=None, help="The run's evidence.  [default: out/latest/evidence.jsonl]")
def replay(case: str, evidence: Path | None) -> int:
    """Run one case again: CASE is its id, a beginning of it, or a file with its record.

    Exit status 0 if it passes now, 1 if not, 2 if there is no such case.
    """
    from harness.commands import preflight
    from harness.commands.replay import find_case, run_again

    found = find_case(case, evidence)
    asked = found.request
    preflight.check_software(asked.device, asked.arch, asked.ranks, asked.ranks_per_gpu)
    return 0 if run_again(found) == 0 else 1


@cli.command(short_help="Write the reports of a run again.")
@click.argument("evidence", type=_PATH)
@click.option("--output", type=_PATH, default=None, help="Where the reports go.  [default: beside the evidence]")
def report(evidence: Path, output: Path | None) -> int:
    """Write report.html and junit.xml again from EVIDENCE, and print the table. Exit status as of certify."""
    from harness.commands import preflight
    from harness.evidence import read

    found = read(evidence)
    output = output or evidence.parent
    preflight.check_output(output)
    return _publish(found, output, _console())


@cli.command(short_help="Public names by device, with their verdicts.")
@click.argument("evidence", type=_PATH, nargs=-1, required=True)
@click.option("--format", "form", type=click.Choice(["table", "markdown"]), default="table", show_default=True)
def names(evidence: tuple[Path, ...], form: str) -> int:
    """Set the public names of the library beside the devices of these runs: EVIDENCE is one evidence.jsonl or more.

    A name has the worst verdict of the requirements that cover it. Exit status 0 only if each name passed on every
    device that had something to run of it, and no file is damaged.
    """
    from harness.evidence import read
    from reports import markdown, names_of, print_names

    runs = {path: read(path) for path in evidence}
    found = names_of(list(runs.values()))
    if form == "markdown":
        click.echo(markdown(found), nl=False)
    else:
        print_names(found, _console())
    problems = [f"{path}: {problem}" for path, run in runs.items() for problem in run.problems]
    for problem in problems:
        click.echo(problem, err=True)
    return 0 if found.good and not problems else 1


@cli.command(short_help="Time ops of the library against torch.distributed, and tune them.")
@click.argument("op")
@click.option("--ranks", type=int, default=None, help="Ranks.  [default: all visible GPUs; 2 emulated ones]")
@click.option("--sizes", default=None, help="A:B doubles, A:B:x4, A,B.  [default: 8KiB:512MiB; 4KiB:16KiB emulated]")
@click.option("--cus", default=None, help="Compute units, likewise; auto: the library's choice.  [default: auto]")
@click.option("--backends", default="nccl,gluon,triton", show_default=True, help="Which to time; also nccl-ctas.")
@click.option("--device", default=None, help="cuda, rocm or emulated.  [default: a GPU if there is one]")
@click.option("--arch", default=None, help="As for certify.  [default: the device's first]")
@click.option("--dtype", default="fp16", show_default=True, help="Element types.")
@click.option("--repeat", type=int, default=None, help="Rounds.  [default: 20; 5 with --tune; 3 emulated]")
@click.option("--eager", is_flag=True, help="Enqueue each call by itself instead of replaying a device graph.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the order within each round.")
@click.option("--tune", type=_PATH, default=None, help="Try configurations, and put the fastest into this table.")
@click.option("--implementation", default="iris_under_test", show_default=True, help="The package under test.")
@click.option("--output", type=_PATH, default=Path("out", "bench"), show_default=True, help="Where results go.")
def bench(op: str, output: Path, tune: Path | None, **options: Any) -> int:
    """Time OP of each backend at each size and CU count; write bench.json, bench.csv and plots.

    OP is all_gather, reduce_scatter, all_to_all, all_reduce or broadcast, several with commas, or all. A size is the
    larger of one rank's input and output in bytes, as in nccl-tests. Algorithm bandwidth is size / time and bus
    bandwidth that times nccl-tests' factor, (ranks - 1) / ranks for all_gather, both in GB/s (1e9 bytes). Every timed
    output is compared bit for bit; a time includes the op's completion, and the slowest rank counts.

    Exit status 0 only if every cell ran and every output was right, 1 if not, 2 if the request was wrong, 130 if
    interrupted.
    """
    from harness.commands import bench as command
    from harness.commands import preflight

    requests = command.check_requests(op, tune=tune, **options)
    preflight.check_output(output)
    console = _console()
    results = command.run(requests, output, console, tune)
    return command.conclude(results, output, console, tune)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its status: usage errors are one line on stderr and status 2."""
    try:
        status: Any = cli.main(arguments, prog_name="iris-harness", standalone_mode=False)
    except UsageError as error:
        _fail(str(error))
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help())
        sys.exit(2)
    except click.ClickException as error:
        _fail(f"{error.format_message()} (iris-harness --help lists what there is)")
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    sys.exit(status if isinstance(status, int) else 0)


def _fail(message: str) -> None:
    click.echo(f"iris-harness: {' '.join(message.split())}", err=True)
    sys.exit(2)


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


def _conclude(outcome: Outcome, output: Path, console: Console) -> int:
    """Publish whatever evidence there is, say how the run ended where it did not end well, and give the exit status."""
    from harness.evidence import read

    status, ending = 1, outcome.ending
    if outcome.evidence.exists():
        evidence = read(outcome.evidence)
        status = _publish(evidence, output, console)
        if not evidence.ends and ending is None:
            ending = f"ended before its evidence was complete (exit status {outcome.status})"
    else:
        console.print("The suite left no evidence, so nothing is certified.", style="bold red")
        ending = ending or f"ended with exit status {outcome.status}"
    if outcome.stopped is not None:
        console.print("Stopped before the end; the evidence so far is kept.", style="yellow")
        return 128 + outcome.stopped
    if ending is not None:
        console.print(f"\nThe suite {ending}. Its last lines, of {output / 'pytest.log'}:", markup=False)
        for line in outcome.tail:
            console.print(f"  {line}", markup=False, style="dim")
        return 1
    return max(status, outcome.status)


def _publish(evidence: Evidence, output: Path, console: Console) -> int:
    """Print the table, write the files, name the report; 0 only for a pass."""
    from harness.evidence import Verdict
    from reports import print_table, view_of, write_html, write_junit

    print_table(view_of(evidence), console)
    write_html(evidence, output / REPORT)
    write_junit(evidence, output / JUNIT)
    console.print(f"\nReport: {(output / REPORT).resolve()}", markup=False, soft_wrap=True)
    return 0 if evidence.verdict() is Verdict.PASS else 1


def _last_error(tail: tuple[str, ...]) -> str:
    errors = [line.removeprefix("ERROR: ") for line in tail if line.startswith("ERROR: ")]
    return errors[-1] if errors else "the suite refused its options: see pytest.log in the output directory"


def _point_latest_at(output: Path) -> None:
    """``out/latest`` leads to the newest run below ``out``, so that ``replay`` finds it without being told."""
    latest = Path("out", "latest")
    target = output.resolve()
    if target.parent == latest.parent.resolve() and target.name != latest.name:
        if latest.is_symlink():
            latest.unlink()
        if not latest.exists():
            latest.symlink_to(target.name, target_is_directory=True)


if __name__ == "__main__":
    main()
