"""``iris-harness check``: a few requirements, quickly, with each verdict as it comes."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from harness.commands.output import printable
from harness.commands.progress import Growing
from harness.commands.suite import conformance_folder
from harness.errors import UsageError
from harness.evidence import Evidence, Verdict
from harness.evidence.schema import problem_with

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TEST = re.compile(r"^def (test_\w+)", re.MULTILINE)
_NEAR = 5
_NAMED = 4


@dataclass(frozen=True)
class Selection:
    """What is run: ``targets`` are files and tests below the suite's parent, ``requirements`` the ids chosen by name;
    empty where tests were named."""

    targets: tuple[str, ...]
    requirements: tuple[str, ...] = ()

    def summary(self) -> str:
        """What is going to run, in one line."""
        if not self.requirements:
            return f"Checking {', '.join(self.targets)}"
        more = f" and {len(self.requirements) - _NAMED} more" if len(self.requirements) > _NAMED else ""
        return f"Checking {', '.join(self.requirements[:_NAMED])}{more}"

    def options(self) -> list[str]:
        """For pytest: the first failure ends the run."""
        chosen = [option for name in self.requirements for option in ("--requirement", name)]
        return ["-p", "fixtures.selection", "-x", *chosen]


def select(name: str) -> Selection:
    """What ``name`` means, the first of: a requirement's id, the beginning of some (RMA, RMA-PUT), a public name
    (IrisDeviceCtx.put, or put for all of that name), a test or a file of tests (test_put).

    Requirements about few names come first, since they are about this one. UsageError names what is near.
    """
    folder = conformance_folder()
    covers = _table(folder / "requirements.toml")
    files = {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("test_*.py"))}
    wanted = name.lower()
    found = [each for each in covers if each.lower() == wanted]
    found = found or [each for each in covers if each.lower().startswith(f"{wanted.rstrip('-')}-")]
    found = found or [each for each, names in covers.items() if any(_means(wanted, public) for public in names)]
    if found:
        found.sort(key=lambda each: len(covers[each]))
        return Selection(_files_of(found, files, folder), tuple(found))
    tests = _tests(name, files, folder)
    if tests:
        return Selection(tests)
    raise UsageError(_unknown(name, covers, files))


class Verdicts:
    """Prints the verdict of each group when its record has been written to ``evidence``.

    A record that does not fit the schema is passed over: reading the evidence at the end reports it.
    """

    def __init__(self, evidence: Path, console: Console) -> None:
        self._growing = Growing(evidence)
        self._console = console

    def look(self) -> None:
        """Print what is new."""
        for record in self._growing.new():
            if record.get("record") == "group" and problem_with(record) is None:
                seconds = f"{record['seconds']:.1f} s" if "seconds" in record else ""
                text = f"{record['verdict']:<7}  {record['group']}  {record['cases']} cases  {seconds}".rstrip()
                self._console.print(printable(text), markup=False, soft_wrap=True)


def conclude(evidence: Evidence, selection: Selection, console: Console) -> int:
    """Say what failed or did not run, and how it is repeated; 0 only if all passed that this device can run.

    Raises UsageError where the request leaves nothing to run.
    """
    results = evidence.requirements()
    reasons = {**evidence.left_out, **evidence.not_applicable}
    if evidence.plan == {} and (needs := [name for name in selection.requirements if name in reasons]):
        more = f", and {len(needs) - 1} more alike" if len(needs) > 1 else ""
        raise UsageError(f"{needs[0]} cannot run: {reasons[needs[0]]}{more}; choose other --ranks, or another --device")
    for result in results.values():
        for case in result.failing:
            console.print()
            for line in (f"{case.group}: {case.verdict}", f"  {case.message}", f"  repeat  {case.repeat}"):
                console.print(printable(line), markup=False, highlight=False, soft_wrap=True)
        for gap in result.gaps:
            console.print(printable(gap), markup=False, soft_wrap=True)
    idle = [name for name in selection.requirements if name not in results and name in evidence.not_applicable]
    left = [name for name in selection.requirements if name not in results and name not in idle]
    for name in idle:
        console.print(printable(f"{name} is not applicable here: {reasons[name]}"), markup=False, soft_wrap=True)
    for name in left:
        reason = reasons.get(name, "nothing of it was planned")
        console.print(printable(f"{name} did not run: {reason}"), markup=False, soft_wrap=True)
    for gap in evidence.gaps():
        console.print(printable(gap), markup=False, soft_wrap=True)
    passed = sum(result.verdict is Verdict.PASS for result in results.values())
    console.print(
        f"\n{passed} of {len(results) + len(left)} selected requirements passed."
        f" The rest of the suite was not run, so nothing is certified.",
        soft_wrap=True,
    )
    return 0 if evidence.verdict() is Verdict.PASS and not left else 1


def _table(path: Path) -> dict[str, tuple[str, ...]]:
    """Requirement -> the public names that it covers."""
    try:
        plain = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    return {entry["id"]: tuple(entry.get("covers", ())) for entry in plain.get("requirement", ())}


def _files_of(identities: Iterable[str], files: Mapping[Path, str], folder: Path) -> tuple[str, ...]:
    """The files that name them, so that pytest does not read the others; all where one is not named literally."""
    chosen: dict[Path, None] = {}
    for identity in identities:
        naming = [path for path, text in files.items() if f'"{identity}"' in text]
        if not naming:
            return ("",)
        chosen.update(dict.fromkeys(naming))
    return tuple(str(path.relative_to(folder.parent)) for path in chosen)


def _tests(name: str, files: Mapping[Path, str], folder: Path) -> tuple[str, ...]:
    wanted = name.removesuffix(".py").removeprefix(f"{folder.name}/")
    found = []
    for path, text in files.items():
        place = str(path.relative_to(folder.parent))
        if wanted in (path.stem, str(path.relative_to(folder).with_suffix(""))):
            found.append(place)
        else:
            found += [f"{place}::{test}" for test in _TEST.findall(text) if test == wanted]
    return tuple(found)


def _means(wanted: str, public: str) -> bool:
    """Whether a name is the public one: all of it, or its last part where only that is given."""
    return wanted in (public.lower(), public.lower().rpartition(".")[2])


def _unknown(name: str, covers: Mapping[str, tuple[str, ...]], files: Mapping[Path, str]) -> str:
    names = {public for each in covers.values() for public in each}
    areas = {each.rpartition("-")[0] for each in covers} | {each.partition("-")[0] for each in covers}
    tests = {path.stem for path in files} | {test for text in files.values() for test in _TEST.findall(text)}
    known: dict[str, str] = {}
    for each in (*tests, *names, *(public.rpartition(".")[2] for public in names), *areas, *covers):
        known[each.lower()] = each
    near = [known[each] for each in difflib.get_close_matches(name.lower(), known, n=_NEAR)]
    hint = f"near are {', '.join(near)}" if near else "give an id such as RMA-PUT-001, an area such as RMA, or an op"
    return f"no requirement, public name or test is called {name!r}: {hint}"
