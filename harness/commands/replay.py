"""Run one recorded case again."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.commands.preflight import Request, check_request
from harness.commands.suite import child_environment, pytest_command
from harness.errors import UsageError
from harness.evidence import Case, Evidence, read
from harness.evidence.records import from_json, to_json
from harness.evidence.schema import problem_with

LATEST = Path("out", "latest", "evidence.jsonl")


def find_case(name: str, evidence: Path | None) -> tuple[Case, Request]:
    """The case that ``name`` means (a file with its record, or an id in the evidence), and how its run was asked for.

    Raises UsageError when there is none, or when a beginning of an id fits several.
    """
    path = Path(name)
    if path.is_file():
        return _case_in_file(path), _request(read(evidence) if evidence else Evidence())
    source = evidence or LATEST
    if not source.is_file():
        raise UsageError(f"no evidence at {source}: name it with --evidence, or give a file that holds the case")
    found = read(source)
    case = found.case(name)
    if case is None:
        several = len({entry.id for entry in found.cases if entry.id.startswith(name)})
        what = f"{several} cases begin with {name!r}" if several else f"there is no case {name!r}"
        raise UsageError(f"{what} in {source}: the ids stand in report.html and in evidence.jsonl")
    return case, _request(found)


def replay(case: Case, request: Request) -> int:
    """Run just ``case``; pytest's output goes to this process's own. The result is pytest's exit status."""
    with tempfile.TemporaryDirectory(prefix="iris-replay-") as folder:
        record = Path(folder, "case.json")
        record.write_text(json.dumps(to_json(case)), encoding="utf-8")
        options = [*request.options(), "--replay", str(record), "--evidence", str(Path(folder, "evidence.jsonl"))]
        return subprocess.run(pytest_command(case.nodeid, *options), env=child_environment(), check=False).returncode


def _case_in_file(path: Path) -> Case:
    try:
        plain: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{path} is not one JSON object: it must hold the record of one case") from error
    problem = problem_with(plain)
    record = None if problem else from_json(plain)
    if not isinstance(record, Case):
        raise UsageError(f"{path} holds no case record ({problem or 'another kind of record'})")
    return record


def _request(evidence: Evidence) -> Request:
    """As the recorded run asked; the defaults when there is no run record."""
    if not evidence.runs:
        return check_request("emulated", None, "4", "gate", "iris_under_test")
    run = evidence.runs[-1]
    ranks = ",".join(map(str, run.ranks))
    return check_request(run.device, run.arch, ranks, run.profile, run.implementation["name"], run.seed)
