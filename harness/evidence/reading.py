"""Reading evidence back: what is damaged is reported, never skipped without a trace and never fatal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from harness.errors import UsageError
from harness.evidence.evidence import Evidence
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
from harness.evidence.store import worker_path


def read(path: Path | str) -> Evidence:
    """The evidence in ``path``, and in the files of workers that were killed before their controller took them over.

    A torn, malformed or doubled line becomes an entry of ``Evidence.problems``, which makes the result red. Raises
    UsageError when there is no such file, or when it was written in another schema version.
    """
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"no evidence at {path}: name an evidence.jsonl that a run wrote")
    evidence = Evidence()
    for source in (path, *sorted(path.parent.glob(worker_path(path, "gw*").name))):
        for record in _records(source, evidence.problems):
            _take(record, evidence)
    return evidence


def _records(path: Path, problems: list[str]) -> Iterator[Record]:
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        place = f"{path.name} line {number}"
        try:
            plain = json.loads(line)
        except ValueError:
            torn = "was cut off: its writer was killed" if number == len(lines) else "is not JSON"
            problems.append(f"{place} {torn}")
            continue
        if isinstance(plain, dict) and plain.get("schema") not in (None, SCHEMA):
            raise UsageError(f"{place} has schema {plain['schema']!r}; this version reads {SCHEMA}")
        if problem := problem_with(plain):
            problems.append(f"{place} does not fit the schema: {problem}")
            continue
        yield from_json(plain)


def _take(record: Record, evidence: Evidence) -> None:
    if isinstance(record, Case):
        evidence.cases.append(record)
    elif isinstance(record, Kernel):
        evidence.kernels.setdefault(record.hash, record)
    elif isinstance(record, Group):
        if record.group in evidence.groups:
            evidence.problems.append(f"group {record.group} ended twice")
        evidence.groups.setdefault(record.group, []).append(record)
    elif isinstance(record, Plan):
        for planned in record.groups:
            evidence.plan.setdefault(planned.group, planned)
        for requirement in record.requirements:
            evidence.statements.setdefault(requirement.id, requirement)
        evidence.not_applicable.update(record.not_applicable)
        evidence.left_out.update(record.left_out)
    elif isinstance(record, Hardware):
        evidence.hardware.append(record)
    elif isinstance(record, Telemetry):
        evidence.telemetry.append(record)
    elif isinstance(record, Run):
        evidence.runs.append(record)
    elif isinstance(record, End):
        evidence.ends.append(record)
