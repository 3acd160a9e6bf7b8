"""The kill matrix: one result per mutant, as a JSON file with a schema.

``sources`` and ``settings`` identify a matrix: a run continues an earlier matrix only if both are the same.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import jsonschema

from harness.errors import UsageError
from harness.evidence.environment import sources_of
from harness.files import write_whole
from mutants.generated.harness import FOLDERS
from mutants.mutant import BINARY, HARNESS, LISTED, REPORTED, SOURCE, Mutant

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

VERSION = 1
KILLED, SURVIVED, TIMEOUT, EQUIVALENT, ERROR = "killed", "survived", "timeout", "equivalent", "error"
"""Verdicts. ``timeout``: the time limit of one mutant passed, which kills nothing; a hang that the suite itself reports
is ``killed``. ``error``: nothing is known about the mutant."""
PACKAGES = ("iris_under_test", "conformance", "fixtures", "harness")
PLAIN = "mutants.plain"
OF_HARNESS = ("command_line", "tests")
"""Packages whose change makes only the results of harness mutants useless."""
MESSAGE = 300
"""Most characters of a message."""


@dataclass(frozen=True)
class Result:
    """Verdict on one mutant, and for a killed one the first failing case. ``seconds``: from start to verdict.
    ``cpu_seconds``: of all processes; 0 if they were not counted.

    ``levels``: level of the tests -> verdict there, in order, of a mutant of the library: ``killed``, ``survived`` or
    ``timeout``. Empty in results of versions that ran one level, and where the tests have none.
    ``limit``: the seconds that the mutant had at each level; 0 if that was not recorded.
    ``how``: a wrong ``result`` (or an exception), a ``hang``, a ``fault`` of the device, an error of ``compilation``,
    an error at ``collection``, a failing ``test`` of the harness.
    """

    id: str
    kind: str
    operator: str
    file: str
    line: int
    change: str
    verdict: str
    seconds: float
    report: str = ""
    how: str = ""
    requirement: str = ""
    group: str = ""
    case: str = ""
    nodeid: str = ""
    message: str = ""
    cpu_seconds: float = 0.0
    levels: Mapping[str, str] = field(default_factory=dict)
    limit: float = 0.0

    @property
    def level(self) -> str:
        """The last level at which the tests ran, "" if it is not known."""
        return next(reversed(list(self.levels)), "")


def result_of(
    mutant: Mutant,
    verdict: str,
    seconds: float,
    message: str = "",
    cpu_seconds: float = 0.0,
    levels: Mapping[str, str] | None = None,
    limit: float = 0.0,
    **killer: str,
) -> Result:
    """Return the result of a mutant. ``killer``: the fields of the failing case."""
    return Result(
        mutant.id,
        mutant.kind,
        mutant.operator,
        mutant.file,
        mutant.line,
        mutant.change()[:MESSAGE],
        verdict,
        round(seconds, 1),
        mutant.report,
        message=" ".join(message.split())[:MESSAGE],
        cpu_seconds=round(cpu_seconds, 1),
        levels=dict(levels or {}),
        limit=limit,
        **killer,
    )


@dataclass
class Matrix:
    """All results so far. ``all``: number of existing mutants by kind, of which ``results`` may be a sample."""

    settings: Mapping[str, Any]
    environment: Mapping[str, Any] = field(default_factory=dict)
    all: dict[str, int] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    plain: list[Result] = field(default_factory=list)
    sources: Mapping[str, str] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Replace the file ``path`` by this matrix."""
        content = {"schema": VERSION, **{name: getattr(self, name) for name in _PLAIN}}
        content["results"] = [asdict(result) for result in self.results]
        content["plain"] = [asdict(result) for result in self.plain]
        write_whole(path, json.dumps(content, indent=1) + "\n")

    def known(self, limit: float = 0.0, *, plain: bool = False) -> set[tuple[str, str]]:
        """Return id and change of the mutants whose verdict stays: all but errors, and but those that had less than
        ``limit`` seconds and were not decided in them."""
        results = self.plain if plain else self.results
        return {
            (result.id, result.change)
            for result in results
            if result.verdict != ERROR and not (result.verdict == TIMEOUT and result.limit < limit)
        }

    def add(self, result: Result, *, plain: bool = False) -> None:
        """Add a result; it replaces an earlier one of the same mutant."""
        results = self.plain if plain else self.results
        results[:] = [*(one for one in results if one.id != result.id), result]


_PLAIN = ("sources", "settings", "environment", "all")


def current_sources() -> dict[str, str]:
    """Return the hash of each package whose change makes earlier results useless."""
    return {name: sources_of(name) or "" for name in (*PACKAGES, PLAIN, *OF_HARNESS)}


def continued(earlier: Matrix, new: Matrix) -> bool:
    """Return whether ``earlier`` may be continued as ``new``; its plain results are dropped if that suite changed, and
    those of harness mutants if the harness's tests did."""
    same = [matrix.sources.get(name) for name in PACKAGES for matrix in (earlier, new)]
    if earlier.settings != new.settings or same[::2] != same[1::2]:
        return False
    if earlier.sources.get(PLAIN) != new.sources[PLAIN]:
        earlier.plain.clear()
    if any(earlier.sources.get(name) != new.sources[name] for name in OF_HARNESS):
        earlier.results[:] = [result for result in earlier.results if result.kind != HARNESS]
    earlier.sources = new.sources
    return True


def read(path: Path) -> Matrix:
    """Return the matrix in a file. UsageError if the file cannot be read or is not a matrix of this version."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"{path} is not a kill matrix: {error}") from error
    if (problem := jsonschema.exceptions.best_match(_validator().iter_errors(content))) is not None:
        place = ".".join(map(str, problem.absolute_path)) or "the file"
        raise UsageError(f"{path} is not a kill matrix of version {VERSION}: {place}: {problem.message:.200}")
    plain, results = ([Result(**one) for one in content[name]] for name in ("plain", "results"))
    return Matrix(results=results, plain=plain, **{name: content[name] for name in _PLAIN})


@dataclass(frozen=True)
class Equivalent:
    """A mutant that no test can kill, and the argument for it."""

    id: str
    reason: str


def equivalents(path: Path | None = None) -> tuple[Equivalent, ...]:
    """Return the argued equivalents of ``equivalent.toml``, or of another file.

    UsageError for an entry without id or reason.
    """
    path = path or Path(__file__).with_name("equivalent.toml")
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("equivalent", [])
    for entry in entries:
        if set(entry) != {"id", "reason"} or not all(str(text).strip() for text in entry.values()):
            raise UsageError(f"{path}: each entry needs the texts id and reason, got {entry!r:.200}")
    return tuple(Equivalent(entry["id"], entry["reason"]) for entry in entries)


def judged(results: Sequence[Result], argued: Sequence[Equivalent], existing: Iterable[str]) -> list[Result]:
    """Return the results with argued equivalents as verdicts.

    What is argued to be equivalent, and was not killed before its tests or its time ended, is ``equivalent``. An argued
    equivalent that was killed is an error, and so is one that is not among the ids of ``existing`` mutants; but one of
    machine code only if its kernel is there, since a run has the kernels of the tests that were chosen, and the code
    depends on the compiler.
    """
    reasons = {one.id: one.reason for one in argued}
    decided = []
    for result in results:
        if result.id in reasons and result.verdict in (SURVIVED, TIMEOUT):
            result = replace(result, verdict=EQUIVALENT, message=reasons[result.id][:MESSAGE])
        elif result.id in reasons and result.verdict == KILLED:
            result = replace(
                result, verdict=ERROR, message=f"argued to be equivalent, and killed: {result.message}"[:MESSAGE]
            )
        decided.append(result)
    ids = set(existing)
    kernels = {_kernel_of(identity) for identity in ids}
    gone = [one for one in argued if one.id not in ids and (kind_of(one.id) != BINARY or _kernel_of(one.id) in kernels)]
    return [*decided, *(_gone(one) for one in gone)]


def _kernel_of(identity: str) -> str:
    """Return the kernel of a binary mutant's id, as in NAME@KEY."""
    return identity.partition(":")[2].partition(":")[0]


def kind_of(identity: str) -> str:
    """Return the kind of the mutant with this id."""
    first, _, rest = identity.partition(":")
    if first in (LISTED, REPORTED):
        return first
    if first.startswith(f"{BINARY} "):
        return BINARY
    return HARNESS if rest.partition("/")[0] in FOLDERS else SOURCE


def _gone(one: Equivalent) -> Result:
    return Result(
        one.id, kind_of(one.id), one.id.partition(":")[0] or "?", "", 0, "", ERROR, 0.0,
        message="argued to be equivalent, and no such mutant exists",
    )  # fmt: skip


@functools.cache
def _validator() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(Path(__file__).with_name("schema.json").read_text("utf-8")))
