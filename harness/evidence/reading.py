"""Reader of evidence files: damage is reported as a problem, never ignored and never fatal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.evidence.chain import Chain
from harness.evidence.checks import Checks
from harness.evidence.evidence import Evidence
from harness.evidence.lines import MAX_LINE, NotRegularError, lines, parse
from harness.evidence.records import (
    SCHEMA,
    Case,
    End,
    Group,
    Hardware,
    Kernel,
    Plan,
    Record,
    Run,
    Telemetry,
    from_json,
)
from harness.evidence.schema import problem_with
from harness.evidence.store import worker_of, worker_path
from harness.evidence.suite import differences

MAX_PROBLEMS = 20
"""Problems that are listed one by one; more are counted."""

_MAX_TEXT = 300
_READ_BY = {1: "iris-harness 0.1"}
"""Earlier schemas, and the version that reads them."""


def read(path: Path | str) -> Evidence:
    """Return the evidence in ``path``, and in the files of workers whose controller was killed before it absorbed them.

    A line that is cut off, malformed, changed, moved, repeated, missing, or in contradiction to those before it becomes
    an entry of ``Evidence.problems``, which makes the result red. Raises UsageError if the file does not exist, holds
    no record at all, or has another schema version.
    """
    path = Path(path)
    if not path.is_file():
        kind = "a folder" if path.is_dir() else "not a file" if path.exists() else "missing"
        raise UsageError(f"no evidence at {path}, which is {kind}: name an evidence.jsonl that a run wrote")
    reader = _Reader()
    try:
        reader.take(path, "")
        for source in sorted(path.parent.glob(worker_path(path, "gw*").name)):
            reader.take_worker(source, worker_of(path, source))
    except OSError as error:
        raise UsageError(f"{error.filename or path} cannot be read: {error.strerror}") from error
    if reader.problems and not reader.records:
        raise UsageError(f"{path} holds no record of evidence: {reader.problems[0]}")
    return reader.finished()


class _Reader:
    def __init__(self) -> None:
        self.evidence = Evidence()
        self.problems = self.evidence.problems
        self.records = 0
        self._more = 0
        self._checks = Checks(self.evidence)
        self._run: str | None = None

    def take_worker(self, path: Path, worker: str) -> None:
        """Read all records of a worker's file, which must be a regular file."""
        if self.evidence.ends:
            self._problem(path.name, "is a worker's file, which the run did not absorb before its end")
        try:
            self.take(path, worker)
        except NotRegularError:
            self._problem(path.name, "has the name of a worker's file, but is not a regular file")

    def take(self, path: Path, writer: str) -> None:
        """Read all records of one file."""
        chain: Chain | None = None
        for place, line, plain in self._objects(path, writer):
            if chain is None:
                self._run = self._run or str(plain.get("run"))
                chain = Chain(self._run, writer)
            if broken := chain.problem_with(line, plain):
                self._problem(place, broken)
            if problem := problem_with(plain):
                if not broken:
                    self._problem(place, f"does not fit the schema: {problem}")
                continue
            self.records += 1
            record = from_json(plain)
            if isinstance(record, Run) and record.id != self._run:
                self._problem(place, f"is the record of run {record.id!r} in a file of {self._run!r}")
            for problem in self._checks.problems(record):
                self._problem(place, problem)
            _take(record, self.evidence)

    def finished(self) -> Evidence:
        """Return the evidence, with contradictions to the installed suite and the number of problems not listed."""
        self.problems.extend(differences(self.evidence))
        if self._more:
            self.problems.append(f"{self._more:,} more lines or contradictions like these")
        return self.evidence

    def _objects(self, path: Path, writer: str) -> Iterator[tuple[str, bytes, dict[str, Any]]]:
        """Yield place, bytes and content of every line that holds a JSON object."""
        for number, line in enumerate(lines(path, follow=not writer), 1):
            place = f"{path.name} line {number}"
            if line is None:
                self._problem(place, f"has more than {MAX_LINE:,} bytes")
                continue
            try:
                plain = parse(line)
            except ValueError as error:
                self._problem(place, str(error) if line.endswith(b"\n") else "was cut off: its writer was killed")
                continue
            schema = plain.get("schema")
            if not self.records and isinstance(schema, int) and schema != SCHEMA:
                other = _READ_BY.get(schema, "another version of iris-harness")
                raise UsageError(f"{place} has schema {schema}, and this version reads {SCHEMA}: read it with {other}")
            if not line.endswith(b"\n"):
                self._problem(place, "has no line end: it was cut off")
            yield place, line.removesuffix(b"\n"), plain

    def _problem(self, place: str, text: str) -> None:
        """Add a problem as one printable line."""
        if len(self.problems) >= MAX_PROBLEMS:
            self._more += 1
            return
        whole = f"{place} {text}"
        cut = whole if len(whole) <= _MAX_TEXT else whole[:_MAX_TEXT] + "..."
        self.problems.append("".join(letter if letter.isprintable() else "?" for letter in cut))


def _take(record: Record, evidence: Evidence) -> None:
    if isinstance(record, Case):
        evidence.cases.append(record)
    elif isinstance(record, Kernel):
        evidence.kernels.setdefault(record.hash, record)
    elif isinstance(record, Group):
        evidence.groups.setdefault(record.group, []).append(record)
    elif isinstance(record, Plan):
        for planned in record.groups:
            evidence.plan.setdefault(planned.group, planned)
        for requirement in record.requirements:
            evidence.statements.setdefault(requirement.id, requirement)
        evidence.not_applicable.update(record.not_applicable)
        evidence.left_out.update(record.left_out)
        evidence.unsupported.update(record.unsupported)
        if record.shard is not None:
            evidence.shards.setdefault(record.shard["index"], record.shard)
            if node := record.shard.get("node"):
                evidence.nodes.update((planned.group, node) for planned in record.groups)
        evidence.api, evidence.declaration = record.api, record.declaration or evidence.declaration
        evidence.capabilities.update(record.capabilities)
    elif isinstance(record, Hardware):
        evidence.hardware.append(record)
    elif isinstance(record, Telemetry):
        evidence.telemetry.append(record)
    elif isinstance(record, Run):
        evidence.runs.append(record)
    elif isinstance(record, End):
        evidence.ends.append(record)
