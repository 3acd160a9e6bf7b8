"""``iris-harness``: the command line.

This is the one place in ``harness`` that knows the reports: it joins what the commands do with how it is shown. Each
command imports what it needs when it runs, so that a missing or broken package is told in one line and ``--help`` is
quick.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.commands.output import lenient, printable
from harness.errors import UsageError
from harness.printable import plain

if TYPE_CHECKING:
    from rich.console import Console

    from harness.commands.certify import Outcome
    from harness.evidence import Evidence

REPORT, JUNIT = "report.html", "junit.xml"
PARTIAL = 3
"""Exit status of a run in which everything passed, but which left requirements out."""

_NAMED = 3
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
@click.option("--fail-fast", is_flag=True, help="Stop at the first failure; the rest is reported as not run.")
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
    fail_fast: bool,
) -> int:
    """Run the conformance suite and write evidence.jsonl, report.html and junit.xml.

    Always the whole suite: neither PYTEST_ADDOPTS nor other settings of pytest change it.

    \b
    Exit status: 0  every requirement that this device can run ran and passed
                 1  one failed, could not be checked or did not run, or a report could not be written
                 2  the request was wrong
                 3  all that ran passed, but the run is partial: it left out requirements, which are named
                 130, 143  stopped by Ctrl-C or SIGTERM
    """
    from harness.commands import preflight

    request = preflight.check_request(device, arch, ranks, profile, implementation, seed, emulator_mode, ranks_per_gpu)
    preflight.check_software(request.device, request.arch, request.ranks, request.ranks_per_gpu)
    output = _output(output or Path("out", "certify"), REPORT, JUNIT)

    from harness import runs
    from harness.commands.certify import run_suite, set_aside

    console = _console()
    with runs.claimed(output):
        earlier = set_aside(output / runs.EVIDENCE)
        runs.note(output / runs.EVIDENCE)
        outcome = run_suite(request, output, console, *(["-x"] if fail_fast else []))
        _refused(outcome, earlier)
        return _conclude(outcome, output, console, _publish)


@cli.command(short_help="Run one op or requirement quickly.")
@click.argument("name")
@click.option("--device", default="emulated", show_default=True, help="emulated, rocm or cuda.")
@click.option("--arch", default=None, help="gfx942, gfx950 or sm_90.  [default: the device's first]")
@click.option("--emulator-mode", default="fast", show_default=True, help="fast, check, race, trace or weak[:SEED].")
@click.option("--ranks", default="2", show_default=True, help="Ranks, or several world sizes as in 2,4.")
@click.option("--ranks-per-gpu", type=int, default=1, show_default=True, help="Ranks that share a GPU.")
@click.option("--profile", default="ci", show_default=True, help="As for certify.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of what is drawn.")
@click.option("--output", type=_PATH, default=Path("out", "check"), show_default=True, help="Where evidence goes.")
@click.option("--implementation", default="iris_under_test", show_default=True, help="The package under test.")
def check(
    name: str,
    device: str,
    arch: str | None,
    emulator_mode: str,
    ranks: str,
    ranks_per_gpu: int,
    profile: str,
    seed: int,
    output: Path,
    implementation: str,
) -> int:
    """Run what NAME means, print each verdict as it comes, and stop at the first failure.

    NAME is a requirement (RMA-PUT-001), the beginning of several (RMA-PUT, RMA), a public name (IrisDeviceCtx.put, or
    put for all of that name), or a test (test_put). Evidence of an earlier check in the same folder is replaced.

    Exit status 0 if everything selected ran and passed, 1 if not, 2 if the request was wrong, 130 if interrupted. It
    certifies nothing: the rest of the suite did not run.
    """
    from harness.commands import check as command
    from harness.commands import preflight

    selection = command.select(name)
    request = preflight.check_request(device, arch, ranks, profile, implementation, seed, emulator_mode, ranks_per_gpu)
    preflight.check_software(request.device, request.arch, request.ranks, request.ranks_per_gpu)
    output = _output(output)

    from harness import runs
    from harness.commands.certify import run_suite, set_aside

    console = _console()
    evidence = output / runs.EVIDENCE
    with runs.claimed(output):
        earlier = set_aside(evidence)
        runs.note(evidence)
        console.print(printable(selection.summary()), markup=False, soft_wrap=True)
        verdicts = command.Verdicts(evidence, console)
        options = selection.options()
        outcome = run_suite(request, output, console, *options, targets=selection.targets, look=verdicts.look)
        _refused(outcome, earlier)
        if earlier is not None:
            earlier.unlink()

        def conclude(found: Evidence, folder: Path, console: Console) -> int:
            return command.conclude(found, selection, console)

        return _conclude(outcome, output, console, conclude)


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
@click.option("--evidence", type=_PATH, default=None, help="The run's evidence.  [default: the newest run that has it]")
@click.option("--output", type=_PATH, default=None, help="Where its record goes.  [default: out/replay/ID]")
@click.option("--implementation", default=None, help="The package under test, where a file names another than usual.")
def replay(case: str, evidence: Path | None, output: Path | None, implementation: str | None) -> int:
    """Run one case again: CASE is its id, a beginning of it, or a file with its record.

    An id is looked for in the newest runs of certify, check and pytest, wherever their output went. Only tests of the
    suite are run, whatever a file names, and on no other package than iris_under_test unless --implementation names the
    one that the file does, or the run is one of your own.

    Exit status 0 if it passes now, 1 if not, 2 if there is no such case, 130 if interrupted.
    """
    from harness.commands import preflight
    from harness.commands.replay import find_case, run_again

    found = find_case(case, evidence, implementation)
    request = found.request
    preflight.check_software(request.device, request.arch, request.ranks, request.ranks_per_gpu)
    return run_again(found, output)


@cli.command(short_help="Write the reports of a run again.")
@click.argument("evidence", type=_PATH)
@click.option("--output", type=_PATH, default=None, help="Where the reports go.  [default: beside the evidence]")
def report(evidence: Path, output: Path | None) -> int:
    """Write report.html and junit.xml again from EVIDENCE, and print the table. Exit status as of certify."""
    from harness.evidence import read

    found = read(evidence)
    return _publish(found, _output(output or evidence.parent, REPORT, JUNIT), _console())


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
        click.echo(plain(problem), err=True)
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
    from harness import runs
    from harness.commands import bench as command

    requests = command.check_requests(op, tune=tune, **options)
    output = _output(output)
    console = _console()
    with runs.claimed(output):
        results = command.run(requests, output, console, tune)
        return command.conclude(results, output, console, tune)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its status. Usage errors are one line on stderr and status 2; what the system
    refused is one line and status 1."""
    with lenient() as streams:
        status = _status(arguments)
        if (reason := streams.lost()) is not None:
            _say(f"stdout could not be written: {reason}")
            status = status or 1
    sys.exit(status)


def _status(arguments: list[str] | None) -> int:
    try:
        status: Any = cli.main(arguments, prog_name="iris-harness", standalone_mode=False)
    except UsageError as error:
        return _say(str(error))
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help())
        return 2
    except click.ClickException as error:
        return _say(f"{error.format_message()} (iris-harness --help lists what there is)")
    except (click.Abort, KeyboardInterrupt):
        return 130
    except OSError as error:
        _say(f"the run could not go on: {_reason(error)}")
        return 1
    return status if isinstance(status, int) else 0


def _say(message: str) -> int:
    """One line on stderr; gives the exit status of a wrong request."""
    click.echo(f"iris-harness: {printable(' '.join(message.split()))}", err=True)
    return 2


def _reason(error: OSError) -> str:
    names = " to ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
    return f"{names}: {error.strerror}" if names else str(error.strerror or error)


def _output(folder: Path, *files: str) -> Path:
    """The folder, created, as an absolute path: the current folder may be removed while a run goes on."""
    from harness.commands import preflight

    preflight.check_output(folder, files)
    return folder.absolute()


def _refused(outcome: Outcome, earlier: Path | None) -> None:
    """UsageError where the suite refused its options before it began; ``earlier`` evidence gets its name back."""
    if outcome.status == 4 and not (outcome.evidence.exists() and outcome.evidence.stat().st_size):
        from harness.commands.suite import refusal

        if earlier is not None:
            earlier.replace(outcome.evidence)
        raise UsageError(refusal(outcome.tail))


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


def _conclude(
    outcome: Outcome, output: Path, console: Console, publish: Callable[[Evidence, Path, Console], int]
) -> int:
    """Publish whatever evidence there is, say how the run ended where it did not end well, and give the exit status."""
    from harness.evidence import read

    status, ending = 1, outcome.ending
    if outcome.evidence.exists():
        evidence = read(outcome.evidence)
        status = publish(evidence, output, console)
        if not evidence.ends and ending is None:
            ending = f"ended before its evidence was complete (exit status {outcome.status})"
    else:
        console.print("The suite left no evidence, so nothing is certified.", style="bold red")
        ending = ending or f"ended with exit status {outcome.status}"
    if outcome.log_problem is not None:
        _say(f"{output / 'pytest.log'} is not whole: {outcome.log_problem}")
    if outcome.stopped is not None:
        console.print("Stopped before the end; the evidence so far is kept.", style="yellow")
        return 128 + outcome.stopped
    if ending is not None:
        console.print(f"\nThe suite {ending}. Its last lines, of {plain(str(output / 'pytest.log'))}:", markup=False)
        for line in outcome.tail:
            console.print(f"  {printable(line)}", markup=False, style="dim")
        return 1
    return 1 if outcome.status else status


def _publish(evidence: Evidence, output: Path, console: Console) -> int:
    """Write the files, print the table, name the report. 0 only for a pass of everything, 3 for one of a part."""
    from harness.evidence import Verdict
    from reports import print_table, view_of, write_html, write_junit

    # Files first: printing may fail, or be stopped by whoever reads.
    written = _written(write_html, evidence, output / REPORT)
    written = _written(write_junit, evidence, output / JUNIT) and written
    print_table(view_of(evidence), console)
    if written:
        console.print(f"\nReport: {plain(str((output / REPORT).absolute()))}", markup=False, soft_wrap=True)
    missing = evidence.missing()
    if missing:
        more = f"; and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        _say(f"partial: left out are {'; '.join(missing[:_NAMED])}{more}")
    if evidence.verdict() is not Verdict.PASS or not written:
        return 1
    return PARTIAL if missing else 0


def _written(write: Callable[[Evidence, Path], None], evidence: Evidence, path: Path) -> bool:
    """Whether the report was written; where not, one line says why. The one that lay there then stays."""
    try:
        write(evidence, path)
    except UsageError as error:
        _say(str(error))
    except OSError as error:
        _say(f"{path} could not be written: {error.strerror or error}")
    else:
        return True
    return False


if __name__ == "__main__":
    main()
