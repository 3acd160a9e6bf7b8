"""The map of what each requirement reaches in a library, and of what the map itself depends on.

``iris-harness reach`` records it; ``iris-harness gate`` compares it with the sources at hand. It is one JSON file;
``reach.schema.json`` next to this module states its form.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema

from command_line.gate.references import References
from command_line.gate.units import Sources, parsed
from harness.errors import HarnessError, UsageError
from harness.files import write_whole

VERSION = 2
BUNDLED = Path(__file__).with_name("reach.json")
"""The map of the bundled library."""

DATA = ".data"
"""Key of the digest of the suite's files that are not Python source and that a run reads."""

_NOT_READ = ("baselines", "mustpass")
"""Folders of the suite that no run of it reads."""


@dataclass(frozen=True)
class Reached:
    """The reach of a requirement: ``units`` of the library, and the files of the ``suite`` that its tests import,
    relative to the suite's parent. ``problem``: why that may be incomplete, or ""."""

    units: frozenset[str]
    suite: frozenset[str]
    problem: str = ""


@dataclass(frozen=True)
class Map:
    """``units`` and ``suite`` have the digests of all units of the library and of all files of the suite when the map
    was recorded; ``run`` describes the recording. ``calls`` are those of ``conformance.isa.catalogue``."""

    implementation: str
    run: Mapping[str, Any]
    units: Mapping[str, str]
    suite: Mapping[str, str]
    requirements: Mapping[str, Reached] = field(default_factory=dict)
    calls: Mapping[str, Reached] = field(default_factory=dict)


def made(
    records: Iterable[Mapping[str, Any]],
    calls: Mapping[str, tuple[Iterable[str], str]],
    implementation: str,
    library: Path,
    suite: Path,
    run: Mapping[str, Any],
) -> Map:
    """Return the map of the recorded lines of ``fixtures.reach``. ``library`` and ``suite`` are folders of packages.
    ``calls``: the places and the problem of each call of the catalogue.

    HarnessError if the last line is missing: the recording did not end.
    """
    sources = Sources(library, suite)
    references = References(sources)
    places: dict[str, set[str]] = defaultdict(set)
    tests: dict[str, set[str]] = defaultdict(set)
    problems: dict[str, str] = {}
    ended = False
    for line in records:
        if line.get("end"):
            ended = True
            continue
        name = line["requirement"]
        places[name].update(line["places"])
        tests[name].add(line["test"])
        problems[name] = problems.get(name) or line["problem"]
    if not ended:
        raise HarnessError("the recording of what requirements reach did not come to its end")
    files = suite_digests(suite)
    own = f"{library.name}/"

    def reached(recorded: Iterable[str]) -> frozenset[str]:
        closure = references.closure(_units_at(recorded, sources, (library, suite)))
        return frozenset(unit for unit in closure if unit.startswith(own))

    requirements = {}
    for name, recorded in sorted(places.items()):
        imported = {file for test in tests[name] for file in imports_of(Path(test), suite)}
        requirements[name] = Reached(reached(recorded), frozenset(imported), problems[name])
    made_calls = {name: Reached(reached(recorded), frozenset(), problem) for name, (recorded, problem) in calls.items()}
    digests = {name: digest for name, digest in sources.digests().items() if name.startswith(own)}
    return Map(implementation, run, digests, files, requirements, made_calls)


def write(reach: Map, path: Path) -> None:
    """Write the map to a file; a requirement is one line."""
    names = sorted(reach.units)
    numbers = {name: number for number, name in enumerate(names)}
    files = sorted(reach.suite)
    places = {name: number for number, name in enumerate(files)}
    head = {"schema": VERSION, "implementation": reach.implementation, "run": dict(reach.run)}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    lines += ['"units": {', *_lines({name: reach.units[name] for name in names}), "},"]
    lines += ['"suite": {', *_lines({name: reach.suite[name] for name in files}), "},"]
    for key, entries in (("calls", reach.calls), ("requirements", reach.requirements)):
        rows = {
            name: {
                "units": _ranges(numbers[unit] for unit in one.units),
                "suite": _ranges(places[file] for file in one.suite),
                **({"problem": one.problem} if one.problem else {}),
            }
            for name, one in sorted(entries.items())
        }
        lines += [f'"{key}": {{', *_lines(rows), "}" if key == "requirements" else "},"]
    write_whole(path, "{\n" + "\n".join(lines) + "\n}\n")


def read(path: Path) -> Map:
    """Return the map in a file. UsageError if it cannot be read, or is not a map of this version."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; iris-harness reach writes such a file") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not a map of what requirements reach: {error}") from None
    if (problem := jsonschema.exceptions.best_match(_validator().iter_errors(plain))) is not None:
        place = ".".join(map(str, problem.absolute_path)) or "the file"
        raise UsageError(
            f"{path} is not a map of version {VERSION}: {place}: {problem.message:.200}; iris-harness reach writes such"
            " a file"
        )
    names, files = list(plain["units"]), list(plain["suite"])
    try:
        calls, requirements = (
            {
                name: Reached(
                    frozenset(names[number] for number in _numbers(one["units"])),
                    frozenset(files[number] for number in _numbers(one["suite"])),
                    one.get("problem", ""),
                )
                for name, one in plain[key].items()
            }
            for key in ("calls", "requirements")
        )
    except IndexError:
        raise UsageError(f"{path}: a requirement names a unit or a file that the map does not have") from None
    except ValueError as error:
        raise UsageError(f"{path} is not a map of version {VERSION}: {error}") from None
    return Map(plain["implementation"], plain["run"], plain["units"], plain["suite"], requirements, calls)


def suite_digests(suite: Path) -> dict[str, str]:
    """Return the digest of each Python file of the suite, and under ``DATA`` that of all its other files."""
    digests, data = {}, hashlib.sha256()
    for path in sorted(suite.rglob("*")):
        inside = path.relative_to(suite)
        if not path.is_file() or "__pycache__" in inside.parts or inside.parts[0] in _NOT_READ:
            continue
        if "baselines" in inside.parts or path.suffix == ".md":
            continue
        content = path.read_bytes()
        if path.suffix == ".py":
            digests[f"{suite.name}/{inside.as_posix()}"] = hashlib.sha256(content).hexdigest()[:16]
        else:
            data.update(f"{inside.as_posix()} {len(content)} ".encode() + content)
    return {**digests, DATA: data.hexdigest()[:16]}


def imports_of(test: Path, suite: Path) -> set[str]:
    """Return the files of the suite that a test imports, itself included; a module that a text names counts."""
    known = _graph(suite)
    waiting, reached = [f"{suite.name}/{test.resolve().relative_to(suite.resolve()).as_posix()}"], set[str]()
    while waiting:
        if (file := waiting.pop()) not in reached:
            reached.add(file)
            waiting += known.get(file, ())
    return reached


@functools.cache
def _graph(suite: Path) -> dict[str, frozenset[str]]:
    """Return the files of the suite that each of its files imports; a module's packages count as imported by it."""
    modules = {}
    for path in sorted(suite.rglob("*.py")):
        parts = path.relative_to(suite.parent).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    files = {name: path.relative_to(suite.parent).as_posix() for name, path in modules.items()}
    graph: dict[str, frozenset[str]] = {}
    for name, path in modules.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        named = {name, *_named(parsed(path), package)}
        inner = {".".join(word.split(".")[:length]) for word in named for length in range(1, word.count(".") + 2)}
        graph[files[name]] = frozenset(files[word] for word in inner if word in files)
    return graph


def _named(tree: ast.AST, package: str) -> set[str]:
    """Return the dotted names of modules, and of what is in them, that a file imports or has as a text."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = parts[: len(parts) - node.level + 1] if node.level else []
            origin = ".".join([*base, *filter(None, [node.module])])
            names |= {origin, *(f"{origin}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200:
            names.add(node.value.partition(":")[0])
    return names


def _units_at(places: Iterable[str], sources: Sources, folders: tuple[Path, ...]) -> set[str]:
    """Return the units at recorded places; places outside of the packages are left out."""
    roots = {folder.resolve() for folder in folders}
    units = set()
    for place in places:
        file, _, rest = place.rpartition(":")
        path = Path(file)
        root = next((root for root in roots if root in path.parents), None)
        if root is None:
            continue
        inside = path.relative_to(root.parent).as_posix()
        if rest.isdigit():
            unit = sources.at(inside, int(rest))
            name = unit.name if unit is not None else ""
        else:
            name = f"{inside}:{rest.partition('.')[0]}"
        if name in sources.units:
            units.add(name)
    return units


def _lines(table: Mapping[str, Any]) -> list[str]:
    rows = [f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in table.items()]
    return [*(f"{row}," for row in rows[:-1]), *rows[-1:]]


def _ranges(numbers: Iterable[int]) -> str:
    """Return numbers in order, a run of them as first-last: "0-2 5". A list takes a hundred times as long to check."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _numbers(ranges: str) -> Iterable[int]:
    for one in ranges.split():
        first, _, last = one.partition("-")
        numbers = range(int(first), int(last or first) + 1)
        if not numbers:
            raise ValueError(f"the range {one} is empty")
        yield from numbers


@functools.cache
def _validator() -> jsonschema.Draft202012Validator:
    schema = json.loads(Path(__file__).with_name("reach.schema.json").read_text(encoding="utf-8"))
    return jsonschema.Draft202012Validator(schema)
