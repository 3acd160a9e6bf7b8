"""Which requirements a change can affect, and why.

A requirement is chosen unless it is known to be unaffected: its entry in the map of what requirements reach is
complete, no unit in it differs from the map, the files of the suite that its tests import are the same, and the change
touches nothing that every requirement depends on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from command_line.gate.reach import DATA, Map, Reached
from command_line.gate.units import REST, changed

#: Folders and files of this repository that no run of the suite depends on.
_NO_PART = (
    "docs", "tests", "examples", "benchmarks", "reports", "certificates", "mutants", "ci", ".ci", ".github",
    "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "LICENSE", "Makefile", "noxfile.py", ".gitignore",
    ".pre-commit-config.yaml",
)  # fmt: skip
_OWN_COMMANDS = ("command_line/gate", "command_line/bench", "command_line/mutants", "command_line/isa")
"""Folders of commands that run no case of a gate."""


@dataclass(frozen=True)
class Choice:
    """The requirements that a change can affect: ``reasons`` by requirement, the first being the strongest.

    ``everything``: reasons that hold for all. ``changed`` are the units that differ from the map; ``rest`` are the
    requirements that were not chosen, in order.
    """

    reasons: Mapping[str, tuple[str, ...]]
    rest: tuple[str, ...]
    everything: tuple[str, ...] = ()
    changed: Mapping[str, str] = field(default_factory=dict)

    @property
    def order(self) -> tuple[str, ...]:
        """All requirements: the chosen ones first."""
        return (*self.reasons, *self.rest)


def choose(
    requirements: Collection[str],
    reach: Map | None,
    units: Mapping[str, str],
    suite: Mapping[str, str],
    files: Collection[str] = (),
    library: str = "",
    suite_folder: str | None = "conformance",
    environment: Mapping[str, str] | None = None,
    elsewhere: str = "",
    since_base: Mapping[str, str] | None = None,
) -> Choice:
    """Return the choice among ``requirements``.

    ``units`` and ``suite``: digests of the head's library and suite. ``files``: paths that differ from the base, in the
    repository that has the library in its folder ``library``, and the suite in ``suite_folder``, None if that is
    elsewhere. ``environment``: facts that must be those of the recording, such as the release of Triton.
    ``elsewhere``: how the run differs from the recording, such as its device, "" if it does not. Then a unit that no
    requirement is known to reach may be reached by all. ``since_base``: the units of the library that differ from the
    base, each with "changed", "removed" or "new"; a map that was recorded with the change does not show them.
    """
    if reach is None:
        reason = "there is no map of what requirements reach: iris-harness reach records one"
        return Choice(dict.fromkeys(requirements, (reason,)), (), (reason,))
    differing = {**(since_base or {}), **changed(reach.units, units)}
    everything = [*_environment(reach, environment or {}), *_everywhere(files, library, suite_folder)]
    if suite.get(DATA) != reach.suite.get(DATA):
        everything.append("data of the suite, such as its requirements, differ from those of the map")
    known = frozenset[str]().union(*(one.units for one in reach.requirements.values()))
    everything += [f"{name} {_word(word)}" for name, word in differing.items() if _is_everyones(name, word, known)]
    if elsewhere:
        unknown = [name for name, word in differing.items() if word != "new" and name not in known]
        everything += [f"{name} {_word(differing[name])}, and {elsewhere}" for name in unknown]
    in_suite = {file: "changed" for file in files if _is_below(file, suite_folder)}
    suite_changes = {**_as_named(in_suite, suite_folder), **changed(reach.suite, suite)}
    reasons: dict[str, tuple[str, ...]] = {}
    strength: dict[str, tuple[int, int]] = {}
    empty = Reached(frozenset(), frozenset())
    of_requirement = {name: _reasons(name, reach, differing, suite_changes) for name in requirements}
    for name, (own, touched) in of_requirement.items():
        if own or everything:
            reasons[name] = (*own, *everything)
            strength[name] = (-touched, len(reach.requirements.get(name, empty).units))
    # What touches more of the change comes first, then what reaches less besides it: it is most likely to fail.
    ordered = sorted(reasons, key=lambda name: (strength[name], name))
    rest = tuple(name for name in requirements if name not in reasons)
    return Choice({name: reasons[name] for name in ordered}, rest, tuple(everything), differing)


def groups_of_reasons(choice: Choice) -> dict[str, tuple[str, ...]]:
    """Return the requirements of each first reason, so that a report states a reason once."""
    table: dict[str, list[str]] = defaultdict(list)
    for name, reasons in choice.reasons.items():
        table[reasons[0]].append(name)
    return {reason: tuple(names) for reason, names in table.items()}


def _reasons(
    name: str, reach: Map, differing: Mapping[str, str], suite_changes: Mapping[str, str]
) -> tuple[list[str], int]:
    """Return why a requirement can be affected by itself, and how many changed units it reaches."""
    reached = reach.requirements.get(name)
    if reached is None:
        return ["what it reaches is unknown: the map does not have it"], 0
    reasons = []
    touched = [unit for unit in differing if unit in reached.units]
    if touched:
        # A function is more particular than the class or the import around it.
        first = min(touched, key=lambda unit: (_is_binding(unit), unit))
        more = f" and {len(touched) - 1} more" if len(touched) > 1 else ""
        reasons.append(f"it reaches {first}, which {_word(differing[first])}{more}")
    if files := [file for file in suite_changes if file in reached.suite]:
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        reasons.append(f"its test imports {files[0]}, which {_word(suite_changes[files[0]])}{more}")
    if reached.problem:
        reasons.append(f"what it reaches is not fully known: {reached.problem}")
    return reasons, len(touched)


def _word(word: str) -> str:
    return {"changed": "changed", "removed": "was removed", "new": "is new"}[word]


def _is_binding(unit: str) -> bool:
    """Return whether a unit looks like a class, a constant or an import: its name has an upper case first letter."""
    last = unit.rpartition(":")[2]
    return "." not in last and not last.islower()


def _is_everyones(unit: str, word: str, known: Collection[str]) -> bool:
    """Return whether any requirement may depend on a unit: code at the top of a module, a file that is not Python, or a
    public name, which tests look up by its text, that no requirement is known to reach."""
    file, _, name = unit.partition(":")
    is_public = file.endswith("/__init__.py") or file.count("/") == 1
    return name == REST or not file.endswith(".py") or (is_public and word != "new" and unit not in known)


def _environment(reach: Map, environment: Mapping[str, str]) -> list[str]:
    return [
        f"{name} is {value}, and the map was recorded with {reach.run.get(name)}"
        for name, value in environment.items()
        if reach.run.get(name) != value
    ]


def _everywhere(files: Collection[str], library: str, suite_folder: str | None) -> list[str]:
    """Return a reason for each changed file that every requirement may depend on."""
    reasons = []
    for file in files:
        if _is_below(file, library) or _is_below(file, suite_folder):
            continue  # judged by units, and by what tests import
        no_part = (*_NO_PART, *_OWN_COMMANDS) if suite_folder is not None else ("README.md", "LICENSE", "CHANGELOG.md")
        if not any(_is_below(file, folder) for folder in no_part):
            reasons.append(f"{file} changed, which every requirement may depend on")
    return reasons


def _as_named(files: Mapping[str, str], suite_folder: str | None) -> dict[str, str]:
    """Return the files of the suite with the names that a map has for them: relative to the suite's parent."""
    parent = PurePosixPath(suite_folder or "").parent
    return {PurePosixPath(file).relative_to(parent).as_posix(): word for file, word in files.items()}


def _is_below(file: str, folder: str | None) -> bool:
    """Return whether a file is the folder, or is in it; none is in a folder that the repository does not have."""
    return folder is not None and folder != "" and PurePosixPath(file).is_relative_to(folder)
