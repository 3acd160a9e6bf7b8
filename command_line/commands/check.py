"""``iris-harness check``: run a few requirements and print each verdict when it is known."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console

import fixtures
from command_line import preflight
from command_line.options import suite_options
from command_line.output import console, printable
from command_line.publishing import UNSUPPORTED
from command_line.suite import run
from command_line.suite.process import conformance_folder
from command_line.suite.progress import Growing
from harness import runs
from harness.errors import UsageError
from harness.evidence import Evidence, Verdict, fence_in_words, read_table
from harness.evidence.schema import problem_with
from reports import fences_of

_TEST = re.compile(r"^def (test_\w+)", re.MULTILINE)
#: The id of a requirement, or its beginning.
_REQUIREMENT = re.compile(r"[A-Z]+(-[A-Z]+)+(-\d{3})?")
_NEAR = 5
_NAMED = 4


@click.command("check", short_help="Run one op or requirement quickly.")
@click.argument("name")
@suite_options(level="ci", output=Path("out", "check"), ranks="2", seed="0")
def command(name: str, output: Path, **options: Any) -> int:
    """Run the requirements or tests that NAME selects, print each verdict, and stop at the first failure.

    NAME is a requirement (RMA-PUT-001), a prefix of several ids (RMA-PUT, RMA), a public name (IrisDeviceCtx.put, or
    put for every public name that ends in put), or a test (test_put). The evidence of an earlier check in the same
    folder is replaced.

    Exit status 0 if everything selected ran and passed, 4 if the rest of it is unsupported by the library, 1 if not, 2
    if the request was wrong, 130 if interrupted. A check certifies nothing: the rest of the suite did not run.
    """
    selection = select(name)
    request = preflight.check_request(**options)
    preflight.check_software(request.device, request.arch, request.ranks, request.ranks_per_gpu)
    folder = preflight.output_folder(output)
    evidence, screen = folder / runs.EVIDENCE, console()
    with runs.claimed(folder):
        earlier = run.set_aside(evidence)
        screen.print(printable(selection.summary()), markup=False, soft_wrap=True)
        look = Verdicts(evidence, screen).look
        outcome = run.run_suite(request, folder, screen, *selection.options(), targets=selection.targets, look=look)
        run.check_started(outcome, earlier)
        if earlier is not None:
            earlier.unlink()
        return run.conclude(outcome, folder, screen, lambda written: conclude(written, selection, screen))


@dataclass(frozen=True)
class Selection:
    """Tests to run: ``targets`` are files and node ids relative to the suite's parent folder; ``requirements`` are the
    selected ids, empty if tests were selected."""

    targets: tuple[str, ...]
    requirements: tuple[str, ...] = ()

    def summary(self) -> str:
        """Return one line that names what will run."""
        if not self.requirements:
            return f"Checking {', '.join(self.targets)}"
        more = f" and {len(self.requirements) - _NAMED} more" if len(self.requirements) > _NAMED else ""
        return f"Checking {', '.join(self.requirements[:_NAMED])}{more}"

    def options(self) -> list[str]:
        """Return the options for pytest that select the requirements and end the run at the first failure."""
        chosen = [option for name in self.requirements for option in ("--requirement", name)]
        return ["-p", fixtures.SELECTION, "-x", *chosen]


def select(name: str) -> Selection:
    """Return what ``name`` selects, the first that matches of: a requirement's id, a prefix of ids (RMA, RMA-PUT), a
    public name (IrisDeviceCtx.put, or put for every name that ends in put), a test or a test file (test_put).

    Requirements that cover few names come first: they are the most specific to ``name``. Raises UsageError with
    similar names if nothing matches.
    """
    folder = conformance_folder()
    covers = {each.id: each.covers for each in read_table(folder / "requirements.toml").values()}
    files = {path: _text_of(path) for path in sorted(folder.rglob("test_*.py"))}
    wanted = name.lower()
    matches = [each for each in covers if each.lower() == wanted]
    matches = matches or [each for each in covers if each.lower().startswith(f"{wanted.rstrip('-')}-")]
    matches = matches or [each for each, names in covers.items() if any(_means(wanted, public) for public in names)]
    if matches:
        matches.sort(key=lambda each: len(covers[each]))
        return Selection(_files_of(matches, files, folder), tuple(matches))
    tests = _tests(name, files, folder)
    if tests:
        return Selection(tests)
    raise UsageError(_unknown(name, covers, files))


class Verdicts:
    """Printer of each group's verdict, as soon as the group's record is in the ``evidence`` file.

    A record that does not match the schema is skipped; reading the evidence at the end reports it.
    """

    def __init__(self, evidence: Path, console: Console) -> None:
        self._growing = Growing(evidence)
        self._console = console

    def look(self) -> None:
        """Print the verdicts recorded since the last call."""
        for record in self._growing.new():
            if record.get("record") == "group" and problem_with(record) is None:
                seconds = f"{record['seconds']:.1f} s" if "seconds" in record else ""
                text = f"{record['verdict']:<7}  {record['group']}  {record['cases']} cases  {seconds}".rstrip()
                self._console.print(printable(text), markup=False, soft_wrap=True)


def conclude(evidence: Evidence, selection: Selection, console: Console) -> int:
    """Print what failed, with the command that repeats it, and what did not run; return the exit status.

    The status is 0 only if every selected requirement that this device can run passed, and ``UNSUPPORTED`` if the
    library does not support the others. Raises UsageError if nothing of the selection can run with these options.
    """
    results = evidence.requirements()
    reasons = {**evidence.left_out, **evidence.not_applicable}
    if (
        evidence.plan == {}
        and not evidence.unsupported
        and (needs := [name for name in selection.requirements if name in reasons])
    ):
        more = f", and {len(needs) - 1} more" if len(needs) > 1 else ""
        raise UsageError(f"{needs[0]} cannot run: {reasons[needs[0]]}{more}; choose other --ranks, or another --device")
    for result in results.values():
        for case in result.failing:
            console.print()
            lacks = [f"  {fence_in_words(lack)}" for lack in fences_of(evidence, case)]
            verdict = result.groups.get(case.group, case.verdict)
            for line in (f"{case.group}: {verdict}", f"  {case.message}", *lacks, f"  repeat  {case.repeat}"):
                console.print(printable(line), markup=False, highlight=False, soft_wrap=True)
        for gap in result.gaps:
            console.print(printable(gap), markup=False, soft_wrap=True)
    idle = [name for name in selection.requirements if name not in results and name in evidence.not_applicable]
    left = [name for name in selection.requirements if name not in results and name not in idle]
    for name in idle:
        console.print(printable(f"{name} is not applicable here: {reasons[name]}"), markup=False, soft_wrap=True)
    for name in left:
        reason = reasons.get(name, "no case group of it was planned")
        console.print(printable(f"{name} did not run: {reason}"), markup=False, soft_wrap=True)
    for name, reason in evidence.unsupported.items():
        console.print(printable(f"{name} is unsupported: {reason}"), markup=False, soft_wrap=True)
    for gap in evidence.gaps():
        console.print(printable(gap), markup=False, soft_wrap=True)
    passed = sum(result.verdict is Verdict.PASS for result in results.values())
    unsupported = sum(result.verdict is Verdict.UNSUPPORTED for result in results.values())
    also = f" {unsupported} {'is' if unsupported == 1 else 'are'} unsupported." if unsupported else ""
    console.print(
        f"\n{passed} of {len(results) + len(left)} selected requirements passed.{also}"
        f" The rest of the suite was not run, so nothing is certified.",
        soft_wrap=True,
    )
    if left:
        return 1
    return {Verdict.PASS: 0, Verdict.UNSUPPORTED: UNSUPPORTED}.get(evidence.verdict(), 1)


def files_of(identities: Iterable[str]) -> tuple[str, ...]:
    """Return the test files of the suite that name these requirements; the whole suite if one is in no file."""
    folder = conformance_folder()
    return _files_of(identities, {path: _text_of(path) for path in sorted(folder.rglob("test_*.py"))}, folder)


def _files_of(identities: Iterable[str], files: Mapping[Path, str], folder: Path) -> tuple[str, ...]:
    """Return the test files that name these requirements, so that pytest collects no others.

    Returns the whole suite if a requirement's id is in no file literally.
    """
    chosen: dict[Path, None] = {}
    for identity in identities:
        naming = [path for path, text in files.items() if f'"{identity}"' in text]
        if not naming:
            return ("",)
        chosen.update(dict.fromkeys(naming))
    return tuple(str(path.relative_to(folder.parent)) for path in chosen)


def _text_of(path: Path) -> str:
    """Return the text of a test file.

    For a file that derives its tests from the op table next to it, the table and a ``def`` line for each derived test
    are appended.
    """
    text, table = path.read_text(encoding="utf-8"), path.with_name("operations.py")
    if "globals().update" not in text or not table.is_file():
        return text
    ops = table.read_text(encoding="utf-8")
    return "\n".join([text, ops, *(f"def test_{name}(" for name in _derived(ops))])


def _derived(table: str) -> list[str]:
    """Return the ops for which tests are derived: those of ``table`` (Python source) that name a requirement."""
    ops = []
    for node in ast.walk(ast.parse(table)):
        if isinstance(node, ast.Call):
            arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
            texts = [each.value for each in arguments if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            if len(texts) > 1 and any(_REQUIREMENT.fullmatch(each) for each in texts):
                ops.append(texts[0])
    return ops


def _tests(name: str, files: Mapping[Path, str], folder: Path) -> tuple[str, ...]:
    wanted = name.removesuffix(".py").removeprefix(f"{folder.name}/")
    targets = []
    for path, text in files.items():
        place = str(path.relative_to(folder.parent))
        if wanted in (path.stem, str(path.relative_to(folder).with_suffix(""))):
            targets.append(place)
        else:
            targets += [f"{place}::{test}" for test in _TEST.findall(text) if test == wanted]
    return tuple(targets)


def _means(wanted: str, public: str) -> bool:
    """Return True if ``wanted`` is the public name or its last part."""
    return wanted in (public.lower(), public.lower().rpartition(".")[2])


def _unknown(name: str, covers: Mapping[str, tuple[str, ...]], files: Mapping[Path, str]) -> str:
    names = {public for each in covers.values() for public in each}
    areas = {each.rpartition("-")[0] for each in covers} | {each.partition("-")[0] for each in covers}
    tests = {path.stem for path in files} | {test for text in files.values() for test in _TEST.findall(text)}
    known: dict[str, str] = {}
    for each in (*tests, *names, *(public.rpartition(".")[2] for public in names), *areas, *covers):
        known[each.lower()] = each
    near = [known[each] for each in difflib.get_close_matches(name.lower(), known, n=_NEAR)]
    hint = (
        f"similar names are {', '.join(near)}"
        if near
        else "give an id such as RMA-PUT-001, an area such as RMA, or an op"
    )
    return f"no requirement, public name or test is called {name!r}: {hint}"
