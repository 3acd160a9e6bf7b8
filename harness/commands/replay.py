"""Run one recorded case again."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.commands.preflight import Request, check_request
from harness.commands.suite import child_environment, pytest_command
from harness.errors import UsageError
from harness.evidence import Evidence, read
from harness.evidence.records import to_json

LATEST = Path("out", "latest", "evidence.jsonl")
REPLAYS = Path("out", "replay")


@dataclass(frozen=True)
class Replay:
    """A case to run again: its pytest node, its record as plain data, and how its run was asked for."""

    nodeid: str
    record: Mapping[str, Any]
    request: Request


def find_case(name: str, evidence: Path | None) -> Replay:
    """The case that ``name`` means: a file with its record (or just its ``nodeid`` and ``case``), or an id in the
    evidence.

    Options are those of the recorded run; for a file, of the evidence that it lies beside. Raises UsageError when
    there is no such case, or when a beginning of an id fits several.
    """
    path = Path(name)
    if path.is_file():
        beside = evidence or path.resolve().parent.parent / LATEST.name
        record = _in_file(path)
        nodeid = record["nodeid"]
        return Replay(nodeid, record, _request(nodeid, read(beside) if beside.is_file() else Evidence()))
    source = evidence or LATEST
    if not source.is_file():
        raise UsageError(f"no evidence at {source}: name it with --evidence, or give a file that holds the case")
    found = read(source)
    case = found.case(name)
    if case is None:
        several = len({entry.id for entry in found.cases if entry.id.startswith(name)})
        what = f"{several} cases begin with {name!r}" if several else f"there is no case {name!r}"
        raise UsageError(f"{what} in {source}: the ids stand in report.html and in evidence.jsonl")
    return Replay(case.nodeid, to_json(case), _request(case.nodeid, found))


def run_again(replay: Replay) -> int:
    """Run just that case; pytest's output goes to this process's own. The result is pytest's exit status.

    Record and evidence stay in ``out/replay/ID``, since the command that pytest prints for repeating the case names
    them. Raises UsageError when they cannot be written.
    """
    folder = REPLAYS / (str(replay.record.get("id") or "case"))
    record, evidence = folder / "case.json", folder / "evidence.jsonl"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        evidence.unlink(missing_ok=True)
        record.write_text(json.dumps(replay.record), encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot write into {folder} ({error.strerror}): start from a directory that is yours"
        ) from error
    options = [*replay.request.options(), "--replay", str(record), "--evidence", str(evidence)]
    return subprocess.run(pytest_command(replay.nodeid, *options), env=child_environment(), check=False).returncode


def _in_file(path: Path) -> Mapping[str, Any]:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{path} is not one JSON object: it must hold the record of one case") from error
    if (
        not isinstance(plain, dict)
        or not isinstance(plain.get("nodeid"), str)
        or not isinstance(plain.get("case"), dict)
    ):
        raise UsageError(
            f"{path} holds no case record: it needs 'nodeid' and 'case', as a line of evidence.jsonl has them"
        )
    return plain


def _request(nodeid: str, evidence: Evidence) -> Request:
    """As the recorded run asked, with the world size of the test alone; the defaults when there is no run record."""
    own = re.search(r"\branks=(\d+)", nodeid)
    if not evidence.runs:
        return check_request("emulated", None, own[1] if own else None, "gate", "iris_under_test")
    run = evidence.runs[-1]
    ranks = own[1] if own else ",".join(map(str, run.ranks))
    name = run.implementation["name"]
    return check_request(run.device, run.arch, ranks, run.profile, name, run.seed, run.mode, run.ranks_per_gpu)
