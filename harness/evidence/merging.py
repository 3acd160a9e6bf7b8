"""One evidence file of the shards of a run: ``merge_shards``. Memory does not grow with the number of cases.

Every shard is read twice: once to check that it is whole and belongs to the others, before anything is written, and
once to copy its records into a new hash chain. A shard that is missing has a plan without records, so that its groups
are *not run*.

The mandatory groups ran in every shard. The merged file has one run of each, the worst; the others are counted in
``Merged.disagreements`` if they had another verdict.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from harness.errors import UsageError
from harness.evidence.chain import Chain
from harness.evidence.records import SCHEMA
from harness.evidence.shard_file import ShardFile, difference, frame_digest, objects, scan
from harness.evidence.shards import DivisionFile
from harness.evidence.verdict import Verdict, merge

_ENVELOPE = ("schema", "record", "run", "sequence", "chain", "writer")
_HEAD = re.compile(rb'\{"schema":\d+,"record":"([a-z]+)","run":"[^"\\]*","sequence":\d+,')
_TAIL = len(b',"chain":"') + 64 + len(b'"}')


@dataclass
class Merged:
    """Result of a merge: the number of shards ``of`` the run, those that are ``missing``, the number of groups by
    verdict, a sentence for each mandatory group whose runs disagree, and the shards that were ``stopped``."""

    of: int
    missing: tuple[int, ...]
    counts: Counter[str] = field(default_factory=Counter)
    disagreements: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def green(self) -> bool:
        """True if no shard is missing, the run of each shard ended by itself, and every planned group has a record and
        passed, is quarantined or unsupported."""
        red = any(count and Verdict(name).red for name, count in self.counts.items())
        return not (self.missing or self.stopped or red)


def merge_shards(output: Path, files: Sequence[Path], division: Path, arguments: Sequence[str] = ()) -> Merged:
    """Write the evidence of ``files``, shards of one run, to ``output``, which must not exist.

    ``division`` is the file of the run's division into shards. UsageError if a shard is damaged or unfinished, or two
    do not belong together; nothing is written then.
    """
    if os.path.lexists(output):
        raise UsageError(f"{output} exists already, and a merge overwrites nothing: name another folder")
    plan = DivisionFile(division)
    shards = _scanned(files, plan)
    first = shards[min(shards)]
    merged = Merged(plan.division.of, tuple(i for i in range(1, plan.division.of + 1) if i not in shards))
    owners = _owners(shards, plan, merged)
    merged.remarks += _remarks(shards)
    with _replacing(output) as file:
        writer = _Writer(file, _run_id(shards))
        writer.record("run", _run_of(shards, first, arguments))
        kernels: dict[str, str] = {}
        shared = first.frame
        for index in range(1, merged.of + 1):
            if (shard := shards.get(index)) is None:
                writer.record("plan", {**shared, **_missing_plan(index, plan, first, owners)})
            else:
                _copy(writer, shard, shared, owners, kernels, merged)
            shared = _without_shared(first.frame)
        writer.record("end", _end_of(shards, merged.counts))
    return merged


def _scanned(files: Sequence[Path], plan: DivisionFile) -> dict[int, ShardFile]:
    """Return the shards by index, after comparing each with the division and with the first."""
    shards: dict[int, ShardFile] = {}
    for path in files:
        shard, groups = scan(path, frozenset(plan.division.mandatory))
        if shard.shard["plan"] != plan.division.digest:
            raise UsageError(
                f"{shard.name} is of another plan than {plan.path}: plan digest {shard.shard['plan'][:16]}, expected"
                f" {plan.division.digest[:16]}; run all shards with the same version, options and --weights"
            )
        if shard.index in shards:
            raise UsageError(f"{shard.name} is the same shard as {shards[shard.index].path}: name one of both")
        _check_groups(shard, groups, plan)
        first = next(iter(shards.values()), shard)
        _compare(first, shard)
        shard.shared, shard.frame = first.shared, first.frame  # equal, and kept once
        shards[shard.index] = shard
    return shards


def _compare(first: ShardFile, shard: ShardFile) -> None:
    differs = difference(first.shared, shard.shared)
    if differs is None and first.drivers and shard.drivers:
        differs = difference(first.drivers, shard.drivers)
    if differs is not None:
        place, one, other = differs
        raise UsageError(
            f"{shard.name} has {place} {_short(other)}, and {first.name} has {_short(one)}: all shards of a run need"
            " the same"
        )
    if frame_digest(first.frame) != frame_digest(shard.frame):
        place, one, other = difference(first.frame, shard.frame) or ("order", "", "")
        raise UsageError(
            f"{shard.name} has another plan than {first.name}: {place} is {_short(other)} instead of {_short(one)}"
        )


def _check_groups(shard: ShardFile, groups: Sequence[Mapping[str, Any]], plan: DivisionFile) -> None:
    """Compare the planned groups of a shard with those that the division has for it."""
    planned, own = {group["group"] for group in groups}, set(plan.groups(shard.index))
    if foreign := sorted(planned - own - set(plan.division.mandatory)):
        raise UsageError(f"{shard.name} plans {foreign[0]}, which the division has in another shard")
    if lacking := sorted(name for name in own - planned if not _excused(name, shard.frame)):
        raise UsageError(f"{shard.name} does not plan {lacking[0]}, which the division has in it")


def _excused(name: str, frame: Mapping[str, Any]) -> bool:
    """Return whether the plan has a reason why a group does not run in any shard."""
    reasons = (*(frame.get(kind, {}) for kind in ("unsupported", "left_out", "not_applicable")),)
    return any(name in given or name.partition("[")[0] in given for given in reasons)


def _owners(shards: Mapping[int, ShardFile], plan: DivisionFile, merged: Merged) -> dict[str, int]:
    """Return the shard whose run of each mandatory group is kept: the worst, of equal ones the first."""
    owners = {}
    for name in plan.division.mandatory:
        verdicts = {index: Verdict(shard.mandatory.get(name, "not_run")) for index, shard in sorted(shards.items())}
        if all(_excused(name, shard.frame) for shard in list(shards.values())[:1]):
            continue
        worst = merge(verdicts.values())
        owners[name] = next(index for index, verdict in verdicts.items() if verdict is worst)
        for verdict in sorted(set(verdicts.values()) - {Verdict.PASS} if len(set(verdicts.values())) > 1 else ()):
            where = [shards[index].name for index, each in verdicts.items() if each is verdict]
            merged.disagreements.append(
                f"{name}, which every shard runs: {verdict} in {', '.join(where[:3])}"
                f"{f' and {len(where) - 3} more' if len(where) > 3 else ''}, and not in the other"
                f" {len(verdicts) - len(where)}"
            )
    return owners


def _remarks(shards: Mapping[int, ShardFile]) -> Iterator[str]:
    """Yield a sentence for what may differ between machines: the system and the number of processors."""
    for name in ("os", "cpus"):
        values = sorted({str(shard.run["environment"].get(name)) for shard in shards.values()})
        if len(values) > 1:
            yield f"the shards ran with different {name}: {', '.join(values[:4])}"


def _run_id(shards: Mapping[int, ShardFile]) -> str:
    """Return an id that follows from the shards, so that the same merge gives the same file."""
    return hashlib.sha256("".join(shards[index].chain for index in sorted(shards)).encode()).hexdigest()[:12]


def _run_of(shards: Mapping[int, ShardFile], first: ShardFile, arguments: Sequence[str]) -> dict[str, Any]:
    run = {name: value for name, value in first.run.items() if name not in _ENVELOPE}
    started = min(str(shard.run["started"]) for shard in shards.values())
    return {**run, "id": _run_id(shards), "started": started, "argv": list(arguments)}


def _end_of(shards: Mapping[int, ShardFile], counts: Mapping[str, int]) -> dict[str, Any]:
    skipped = max(int(shard.end.get("counts", {}).get("skipped", 0)) for shard in shards.values())
    return {
        "exit_status": max(int(shard.end["exit_status"]) for shard in shards.values()),
        "finished": max(str(shard.end["finished"]) for shard in shards.values()),
        "counts": {**{verdict.value: counts.get(verdict.value, 0) for verdict in Verdict}, "skipped": skipped},
    }


def _without_shared(frame: Mapping[str, Any]) -> dict[str, Any]:
    """Return what each further plan repeats of the first one."""
    return {name: frame[name] for name in ("api", "declaration") if name in frame}


def _missing_plan(index: int, plan: DivisionFile, first: ShardFile, owners: Mapping[str, int]) -> dict[str, Any]:
    """Return the plan of a shard that is missing: its groups, under their own names in place of their node ids."""
    names = [name for name in plan.groups(index) if name not in owners and not _excused(name, first.frame)]
    groups = [{"group": name, "requirement": name.partition("[")[0], "nodeid": name} for name in names]
    return {"groups": groups, "shard": {"index": index, "of": plan.division.of, "plan": plan.division.digest}}


def _copy(
    writer: _Writer,
    shard: ShardFile,
    shared: Mapping[str, Any],
    owners: Mapping[str, int],
    kernels: dict[str, str],
    merged: Merged,
) -> None:
    """Copy the records of a shard, without those that another one has already, and without other runs of mandatory
    groups."""
    elsewhere = {name for name, owner in owners.items() if owner != shard.index}
    dropped: set[str] = set()
    planned, chain = False, ""
    open_groups: set[str] = set()
    failed = False
    for _, line, plain in objects(shard.path):
        kind, chain = plain.get("record"), str(plain.get("chain"))
        if kind == "end":
            status = plain.get("exit_status")
            failed = failed or bool(open_groups or plain.get("declaration"))
            if status not in (0, 1) or (status == 1 and not failed):
                merged.stopped.append(f"{shard.name} ended with pytest's status {status}")
        if kind in ("run", "end"):
            continue
        if kind == "plan":
            if not planned:
                groups = [group for group in plain["groups"] if group["group"] not in elsewhere]
                open_groups = {str(group["group"]) for group in groups}
                record = {**shard.shard, "run": shard.run["id"]}
                writer.record("plan", {**shared, "groups": groups, "shard": record})
            planned = True
        elif kind == "kernel" and (known := kernels.get(str(plain.get("hash")))) is not None:
            if known != plain.get("listing_sha256"):
                name = str(plain.get("name"))
                merged.remarks.append(f"{shard.name} compiled {name:.60} to other code than an earlier shard")
        elif kind in ("case", "group") and plain.get("group") in elsewhere:
            dropped.add(str(plain.get("id")))
            if kind == "group":
                open_groups.discard(str(plain.get("group")))
                failed = failed or plain["verdict"] != Verdict.PASS.value
        elif kind == "telemetry" and dropped.intersection(plain.get("cases", ())):
            plain["cases"] = {name: span for name, span in plain["cases"].items() if name not in dropped}
            writer.record("telemetry", {name: value for name, value in plain.items() if name not in _ENVELOPE})
        else:
            if kind == "kernel":
                kernels[str(plain.get("hash"))] = str(plain.get("listing_sha256"))
            elif kind == "group":
                merged.counts[plain["verdict"]] += 1
                open_groups.discard(str(plain.get("group")))
                failed = failed or plain["verdict"] != Verdict.PASS.value
            writer.line(line, plain)
    if open_groups:
        merged.counts[Verdict.NOT_RUN.value] += len(open_groups)
    if chain != shard.chain:
        raise UsageError(f"{shard.path} changed while it was merged: wait until its run has ended")


class _Writer:
    """Writes records with the chain of the merged file."""

    def __init__(self, file: BinaryIO, run: str) -> None:
        self._file = file
        self._chain = Chain(run)

    def record(self, kind: str, content: Mapping[str, Any]) -> None:
        """Write a record with this content."""
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        self._seal(self._head(kind)[:-1] + b"," + text.encode("utf-8", "backslashreplace")[1:])

    def line(self, line: bytes, plain: Mapping[str, Any]) -> None:
        """Write the record in a line of another chain, without serializing it again if it has the form of ``Store``."""
        match = _HEAD.match(line)
        if match is None or plain.get("writer"):
            kind = str(plain.get("record"))
            self.record(kind, {name: value for name, value in plain.items() if name not in _ENVELOPE})
            return
        self._seal(self._head(match[1].decode())[:-1] + b"," + line[match.end() : -_TAIL - 1] + b"}")

    def _head(self, kind: str) -> bytes:
        head = {"schema": SCHEMA, "record": kind, "run": self._chain.run, "sequence": self._chain.sequence}
        return json.dumps(head, separators=(",", ":")).encode()

    def _seal(self, body: bytes) -> None:
        data, value = self._chain.sealed(body)
        self._file.write(data)
        self._chain.advance(value)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that becomes ``path`` when the body ends, and is removed if it fails."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "wb", buffering=1 << 20) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.link(temporary, path)  # fails if path exists, unlike a rename
    except FileExistsError:
        raise UsageError(f"{path} exists already, and a merge overwrites nothing: name another folder") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _short(value: Any) -> str:
    text = json.dumps(value, sort_keys=True) if isinstance(value, (dict, list)) else repr(value)
    return text if len(text) <= 80 else text[:80] + "..."
