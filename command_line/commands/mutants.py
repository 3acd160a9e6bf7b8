"""``iris-harness mutants``: measure how many wrong libraries, and how many wrong harnesses, the tests reject."""

from __future__ import annotations

import contextlib
import platform
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console

from command_line import preflight
from command_line.mutants import pool
from command_line.mutants.machine_code import run_binary
from command_line.mutants.prepared import Prepared
from command_line.mutants.trial import Trial
from command_line.options import PATH
from command_line.output import console, printable
from command_line.suite.groups import measured
from command_line.suite.run import stop_signals
from harness import devices, runs
from harness.errors import UsageError
from harness.files import write_whole
from mutants import listing, matrix, planting
from mutants.killers import Killers, in_turns
from mutants.matrix import Matrix, Result
from mutants.mutant import BINARY, HARNESS, KINDS, REPORTED, Mutant
from mutants.page import page, share
from mutants.selection import FIRST, LEVELS, PLAIN, SECOND, stages_of

EMULATED = "emulated"
FILE, PAGE = "matrix.json", "matrix.md"
BINARY_TESTS = "conformance/rma conformance/atomics conformance/collectives/test_all_reduce.py"
FURTHER_TESTS = (
    "conformance/collectives/test_ragged.py conformance/collectives/test_turns.py conformance/isa/test_contract.py "
    "conformance/isa/test_order.py conformance/isa/test_remote_width.py conformance/negative/test_masked_off_heap.py"
)
DEFAULT_KINDS = tuple(kind for kind in KINDS if kind != HARNESS)


@click.group("mutants", short_help="Measure the suite by the wrong libraries that it rejects.")
def command() -> None:
    """Run the suite on wrong libraries, each with one small change, and publish which it rejects.

    \b
    iris-harness mutants list --kind source                 # every mutant, one a line
    iris-harness mutants run --kind reported --kind binary
    iris-harness mutants run --sample 50 --output out/mutants
    iris-harness mutants report out/mutants/matrix.json
    """


_Function = TypeVar("_Function", bound=Callable[..., Any])


def _kinds(default: Sequence[str]) -> Callable[[_Function], _Function]:
    """Return the decorator that adds ``--kind``."""
    return click.option(
        "--kind", "kinds", multiple=True, type=click.Choice(KINDS), default=default, show_default=True,
        help="May be repeated.",
    )  # fmt: skip


_only = click.option("--only", multiple=True, help="Only mutants whose id contains this text. May be repeated.")


@command.command("list")
@_kinds([kind for kind in KINDS if kind != BINARY])
@_only
def list_(kinds: Sequence[str], only: Sequence[str]) -> int:
    """Print the id and the change of each mutant. Those of machine code exist only once kernels are compiled."""
    for kind in kinds:
        if kind == BINARY:
            raise UsageError("binary mutants are made from the kernels of a run: they are in its matrix")
        for mutant in listing.all_of(kind):
            if listing.is_wanted(mutant.id, only):
                click.echo(printable(f"{mutant.id}  {mutant.change()}"))
    return 0


@command.command("run")
@_kinds(DEFAULT_KINDS)
@click.option("--sample", type=click.IntRange(min=1), help="At most this many mutants of each kind.  [default: all]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the sample.")
@_only
@click.option("--jobs", type=click.IntRange(min=1), help="Mutants at the same time.  [default: the number of cores]")
@click.option(
    "--limit",
    type=click.FloatRange(min=10),
    default=600,
    show_default=True,
    help="Seconds for one mutant at each level.",
)
@click.option("--deadline", type=click.FloatRange(min=1), default=30, show_default=True, help="Seconds for one case.")
@click.option("--thorough", is_flag=True, help="Run the whole suite on a mutant that survives its nearest tests.")
@click.option("--plain/--no-plain", default=True, show_default=True, help="Also run the plain suite.")
@click.option(
    "--tests", default=BINARY_TESTS, show_default=True,
    help="Files and folders of tests, separated by spaces, whose kernels the binary mutants are made of.",
)  # fmt: skip
@click.option(
    "--further-tests", default=FURTHER_TESTS, show_default=True,
    help="Files and folders of tests whose calls judge those kernels too, where they launch them.",
)  # fmt: skip
@click.option(
    "--ranks", type=click.IntRange(min=2), default=2, show_default=True,
    help="Ranks whose calls judge the binary mutants. Two members never compete with a third one for a lock.",
)  # fmt: skip
@click.option("--tests-like", default="", help="Of --tests, only those that pytest's -k selects.")
@click.option(
    "--output", type=PATH, default=Path("out", "mutants"), show_default=True, help="Directory of the results."
)
def run(output: Path, only: Sequence[str], **options: Any) -> int:
    """Run the tests on each mutant until the first failure, and write matrix.json and matrix.md.

    A listed, reported or source mutant is a copy of the bundled library with one change, under the nearest tests of the
    conformance suite on two emulated ranks: first with the few cases of the level ci, then, if it survived, with those
    of the level gate. The matrix states the verdict at each level. A harness mutant is a copy of this checkout, under
    the harness's own tests; a binary mutant changes the machine code of kernels in running ranks, which write no
    evidence. A second run of the same sources and options continues where the first one ended.

    Exit status 0 if every decided mutant was killed, 1 if one survived, was not decided in time, or is an error, 2 if
    the request was wrong, 130 if interrupted (the matrix so far is kept).
    """
    screen = console()
    folder = preflight.output_folder(output)
    with runs.claimed(folder):
        run_ = _Run(folder, screen, only, options)
        with stop_signals() as stop, contextlib.closing(run_):
            run_.everything(stop)
        return 128 + stop.signal if stop.signal is not None else run_.conclude()


@command.command("report")
@click.argument("file", type=PATH)
def report(file: Path) -> int:
    """Print the page of a kill matrix, FILE. Exit status as for ``run``."""
    kills = matrix.read(file)
    click.echo(page(kills), nl=False)
    return _status(kills)


class _Run:
    """One call of ``mutants run``: its options, its matrix, and what is left to do."""

    def __init__(self, folder: Path, screen: Console, only: Sequence[str], options: dict[str, Any]) -> None:
        self._folder = folder
        self._screen = screen
        self._only = only
        self._options = options
        self._argued = matrix.equivalents()
        self._existing: set[str] = set()
        self._processes: dict[bool, Prepared] = {}
        self._killed_before: list[Result] = []
        self.matrix = self._earlier_or_new()
        self._killers = Killers([], {})

    def everything(self, stop: pool.Stop) -> None:
        """Run all kinds, then the control."""
        kinds = self._options["kinds"]
        chosen: list[Mutant] = []
        for kind in kinds:
            if kind == HARNESS and not (planting.ROOT / "tests").is_dir():
                raise UsageError("harness mutants need a checkout: the installed packages have no tests of the harness")
            if kind != BINARY:
                chosen += self._chosen(kind)
        self._run(chosen, stop)
        if BINARY in kinds and stop.signal is None:
            run_binary(
                self._folder,
                targets=self._options["tests"].split(),
                chosen=self._options["tests_like"],
                further=self._options["further_tests"].split(),
                ranks=self._options["ranks"],
                sample=self._options["sample"],
                seed=self._options["seed"],
                only=self._only,
                deadline=self._options["deadline"],
                known={identity for identity, _ in self.matrix.known()},
                take=self._take,
                count=self._count_binary,
                stop=stop,
            )
        if stop.signal is None:
            self._control(stop)

    def close(self) -> None:
        """End the prepared processes."""
        with contextlib.ExitStack() as processes:
            for process in self._processes.values():
                processes.callback(process.close)

    def _prepared(self, *, checkout: bool = False) -> Prepared:
        """Return the prepared process for copies of the library, or of the checkout, which the first mutant that needs
        it starts."""
        if checkout not in self._processes:
            self._processes[checkout] = Prepared(self._folder, checkout=checkout)
        return self._processes[checkout]

    def conclude(self) -> int:
        """Judge equivalents, write matrix and page, print the summary, and return the exit status."""
        argued = [one for one in self._argued if matrix.kind_of(one.id) in self._options["kinds"]]
        self.matrix.results = matrix.judged(self.matrix.results, argued, self._existing)
        self._write()
        for kind in KINDS:
            results = [result for result in self.matrix.results if result.kind == kind]
            killed, decided = share(results)
            if results:
                more = Counter(result.verdict for result in results)
                rest = [f"{count} {verdict}" for verdict, count in more.items() if verdict != matrix.KILLED]
                if any(result.levels for result in results):
                    rest.insert(0, f"{share(results, FIRST)[0]} at {FIRST}, {share(results, SECOND)[0]} at {SECOND}")
                self._screen.print(
                    f"{kind}: {killed} of {decided} killed" + (f" ({', '.join(rest)})" if rest else ""), markup=False
                )
        self._screen.print(f"{self._folder / PAGE}", markup=False)
        return _status(self.matrix)

    def _chosen(self, kind: str) -> list[Mutant]:
        existing = listing.all_of(kind)
        self.matrix.all[kind] = len(existing)
        self._existing |= {mutant.id for mutant in existing}
        wanted = [mutant for mutant in existing if listing.is_wanted(mutant.id, self._only)]
        count = None if kind == REPORTED else self._options["sample"]
        return listing.sample(wanted, count, self._options["seed"])

    def _run(self, mutants: Sequence[Mutant], stop: pool.Stop) -> None:
        """Run what is left of the mutants: each under the suite, then under the plain suite."""
        suites = (False, True) if self._options["plain"] else (False,)
        known = {plain: self.matrix.known(self._options["limit"], plain=plain) for plain in suites}
        by_id = {mutant.id: mutant for mutant in mutants}
        self._killers = Killers([*self._killed_before, *self.matrix.results], by_id)
        left = [
            (mutant, plain)
            for mutant in mutants
            for plain in suites
            if (mutant.id, mutant.change()[: matrix.MESSAGE]) not in known[plain]
            and not (plain and mutant.kind == HARNESS)
        ]
        done = len(mutants) - sum(not plain for _, plain in left)
        if mutants:
            self._screen.print(f"{len(mutants)} mutants, {done} of them known from an earlier run", markup=False)
        thorough, deadline, limit = (self._options[name] for name in ("thorough", "deadline", "limit"))

        argued = {one.id for one in self._argued}

        def trial(mutant: Mutant, plain: bool) -> Trial:
            stages = stages_of(mutant, thorough=thorough, levels=(FIRST,) if mutant.id in argued else LEVELS)
            stages = (PLAIN,) if plain else self._killers.before(mutant, stages)
            prepared = partial(self._prepared, checkout=mutant.kind == HARNESS)
            return Trial(mutant, stages, deadline, limit, prepared, plain=plain)

        # Those whose killer is known take seconds: a run that is ended early has decided most.
        turns = sorted(
            in_turns(left, lambda one: one[0]), key=lambda one: (one[0].id in argued, not self._killers.knows(one[0]))
        )
        makers = [partial(trial, mutant, plain) for mutant, plain in turns]
        jobs = self._options["jobs"] or measured().cores
        pool.run_trials(makers, jobs, lambda trial, result: self._take(result, plain=trial.plain), stop)

    def _control(self, stop: pool.Stop) -> None:
        deadline, limit = self._options["deadline"], self._options["limit"]
        jobs = self._options["jobs"] or measured().cores
        of_suite = [result for result in self.matrix.results if result.kind not in (BINARY, HARNESS)]
        for results, plain in ((of_suite, False), (self.matrix.plain, True)):
            if stop.signal is None and any(result.nodeid for result in results):
                self._screen.print("running the tests that killed on an unchanged copy", markup=False)
                checked = pool.controlled(results, jobs, deadline, limit, self._prepared, stop)
                if stop.signal is None:
                    for result in checked:
                        self.matrix.add(result, plain=plain)
        of_harness = [result for result in self.matrix.results if result.kind == HARNESS]
        prepared = partial(self._prepared, checkout=True)
        for result in pool.harness_controlled(of_harness, jobs, limit, prepared, stop):
            self.matrix.add(result)

    def _take(self, result: Result, *, plain: bool = False) -> None:
        self.matrix.add(result, plain=plain)
        if not plain:
            self._killers.add(result)
        self._write()
        by = f" by {result.group or result.how}" if result.verdict == matrix.KILLED else ""
        by += f" at {result.level}" if result.level else ""
        suite = "plain suite: " if plain else ""
        cpu = f" ({result.cpu_seconds:.1f} s of CPU)" if result.cpu_seconds else ""
        text = f"{suite}{result.verdict}{by}, {result.seconds:.1f} s{cpu}: {result.id}"
        self._screen.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def _count_binary(self, count: int, ids: Sequence[str]) -> None:
        self.matrix.all[BINARY] = count
        self._existing.update(ids)

    def _write(self) -> None:
        self.matrix.write(self._folder / FILE)
        write_whole(self._folder / PAGE, page(self.matrix))

    def _earlier_or_new(self) -> Matrix:
        """Return the matrix in the folder if it is of the same sources and settings, else a new one."""
        names = ("seed", "deadline", "thorough", *(["ranks"] if BINARY in self._options["kinds"] else []))
        settings = {name: self._options[name] for name in names}
        new = Matrix(settings, _environment(), sources=matrix.current_sources())
        path = self._folder / FILE
        if path.is_file():
            earlier = matrix.read(path)
            if matrix.continued(earlier, new):
                return earlier
            self._killed_before = earlier.results
            text = "is of other sources or settings: starting anew, and trying first the tests that killed then"
            self._screen.print(f"{path} {text}", markup=False)
        return new


def _status(kills: Matrix) -> int:
    fine = {matrix.KILLED, matrix.EQUIVALENT}
    return 0 if all(result.verdict in fine for result in kills.results) else 1


def _environment() -> dict[str, str]:
    device = devices.known(EMULATED, None)
    facts = {"python": platform.python_version(), "triton": version("triton"), "device": f"{device.name} {device.arch}"}
    return {**facts, "cores": str(measured().cores)}
