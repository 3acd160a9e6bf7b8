"""One shard's evidence file, read line by line: its head, its end, and whether its lines are whole and in order."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.evidence.chain import Chain
from harness.evidence.lines import lines, parse
from harness.evidence.records import SCHEMA
from harness.evidence.schema import problem_with
from harness.evidence.store import worker_path
from harness.evidence.verdict import Verdict

_CHECKED = ("run", "plan", "hardware", "end")
"""Kinds of records that a merge compares with the schema, since it reads their fields. A reader of the merged file
checks the others, of which there may be a million."""

_VERDICTS = frozenset(verdict.value for verdict in Verdict)

_SAME = (
    "seed", "level", "profile", "device", "arch", "mode", "ranks", "ranks_per_gpu", "implementation", "harness",
    "waivers", "quarantine",
)  # fmt: skip
"""Fields of the run record that all shards share."""


@dataclass
class ShardFile:
    """A shard's file, as far as a merge needs it. ``shared`` is what the runs of all shards have in common, ``frame``
    what their plans have; ``mandatory`` are the verdicts of the groups that all shards run."""

    path: Path
    run: Mapping[str, Any]
    shard: Mapping[str, Any]
    shared: Mapping[str, Any]
    frame: Mapping[str, Any]
    end: Mapping[str, Any] = field(default_factory=dict)
    mandatory: dict[str, str] = field(default_factory=dict)
    drivers: dict[str, Any] = field(default_factory=dict)
    chain: str = ""

    @property
    def index(self) -> int:
        """Number of the shard, from 1."""
        return int(self.shard["index"])

    @property
    def name(self) -> str:
        """The shard, its machine and its file, for messages."""
        node = self.shard.get("node")
        return f"shard {self.index}{f' on {node}' if node else ''} ({self.path})"


def scan(path: Path, mandatory: Set[str]) -> tuple[ShardFile, tuple[Mapping[str, Any], ...]]:
    """Read a shard's file once. Return what a merge keeps of it, and its planned groups.

    UsageError if it is not the whole evidence of one shard: no regular file, damaged, unfinished, or no shard.
    """
    shard: ShardFile | None = None
    groups: tuple[Mapping[str, Any], ...] = ()
    run: Mapping[str, Any] | None = None
    chain: Chain | None = None
    ended: set[str] = set()
    for number, line, plain in objects(path):
        chain = chain or Chain(str(plain.get("run")))
        if broken := chain.problem_with(line.removesuffix(b"\n"), plain):
            raise UsageError(f"{path} line {number} {broken}: it is not the whole evidence of a shard")
        kind = plain.get("record")
        if plain.get("schema") != SCHEMA or (kind in _CHECKED and (problem := problem_with(plain))):
            raise UsageError(f"{path} line {number} does not fit the schema of evidence: {problem!s:.200}")
        if shard is not None and shard.end:
            raise UsageError(f"{path} line {number} comes after the end of the run")
        if kind == "run":
            run = plain
        elif kind == "plan" and shard is None:
            shard, groups = _begun(path, run, plain), tuple(plain["groups"])
        elif shard is not None and kind == "group":
            if not isinstance(plain.get("group"), str) or plain.get("verdict") not in _VERDICTS:
                raise UsageError(f"{path} line {number} does not fit the schema of evidence: no group with a verdict")
            if plain["group"] in ended:
                raise UsageError(f"{path} line {number} ends {plain['group']}, which ended twice")
            ended.add(plain["group"])
            if plain["group"] in mandatory:
                shard.mandatory[plain["group"]] = plain["verdict"]
        elif shard is not None and kind == "hardware":
            for name in ("library", "driver"):
                shard.drivers.setdefault(f"hardware.{name}", plain.get(name, {}))
        elif shard is not None and kind == "end":
            shard.end = plain
    if chain is None or shard is None:
        raise UsageError(f"{path} has no plan of a shard: it is not evidence that certify --shard wrote")
    if not shard.end:
        raise UsageError(
            f"{path} has no end: the shard was stopped or crashed; leave it out, and its groups are not run"
        )
    if left := sorted(path.parent.glob(worker_path(path, "gw*").name)):
        raise UsageError(f"{left[0]} is a worker's file, which the shard did not absorb before its end")
    shard.chain = chain.value
    return shard, groups


def objects(path: Path) -> Iterator[tuple[int, bytes, dict[str, Any]]]:
    """Yield number, bytes and content of each line. UsageError if one is not a JSON object."""
    try:
        for number, line in enumerate(lines(path, follow=True), 1):
            if line is None or not line.endswith(b"\n"):
                raise UsageError(
                    f"{path} line {number} is too long or cut off: it is not the whole evidence of a shard"
                )
            try:
                yield number, line, parse(line)
            except ValueError as error:
                raise UsageError(f"{path} line {number} {error}: it is not the whole evidence of a shard") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def difference(one: Any, other: Any, place: str = "") -> tuple[str, Any, Any] | None:
    """Return the first difference of two JSON values: where it is, and both values."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in sorted({*one, *other}):
            inner = f"{place}.{name}" if place else str(name)
            if (first := difference(one.get(name), other.get(name), inner)) is not None:
                return first
        return None
    return None if one == other else (place, one, other)


def _begun(path: Path, run: Mapping[str, Any] | None, plan: Mapping[str, Any]) -> ShardFile:
    if run is None:
        raise UsageError(f"{path} does not begin with the record of a run")
    shard = plan.get("shard")
    if shard is None or shard["index"] > shard["of"] or "run" in shard:
        raise UsageError(f"{path} is not the evidence of one shard: run certify with --shard I/N")
    environment = run["environment"]
    shared = {name: run.get(name) for name in _SAME}
    shared["environment"] = {name: environment.get(name) for name in ("python", "packages")}
    shared["circumstances"] = {"variables": run.get("circumstances", {}).get("variables", {})}
    frame = {name: value for name, value in plan.items() if name not in _OF_THE_SHARD}
    return ShardFile(path, run, shard, shared, frame)


_OF_THE_SHARD = ("schema", "record", "run", "sequence", "chain", "writer", "groups", "shard")


def frame_digest(frame: Mapping[str, Any]) -> str:
    """Return a digest of what the plans of all shards share."""
    return hashlib.sha256(json.dumps(frame, sort_keys=True).encode()).hexdigest()
