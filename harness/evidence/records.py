"""The record types of an evidence file. ``Record.to_json`` gives the object that one line holds."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, ClassVar, TypeAlias

from harness.evidence.verdict import Verdict

SCHEMA = 2
"""Version of the record format; a reader refuses every other one."""

Scalar: TypeAlias = "str | int | float | bool | None"


def case_id(requirement: str, group: str, case: Mapping[str, Any]) -> str:
    """Sixteen hex digits that are the same for the same case of the same group, on every machine and in every run."""
    text = json.dumps([requirement, group, case], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Requirement:
    """What is demanded (``statement``), where it is written (``source``) and which public names it covers."""

    id: str
    statement: str
    source: str = ""
    covers: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlannedGroup:
    """One pytest test instance that must run: a requirement at fixed parameters."""

    group: str
    requirement: str
    nodeid: str


@dataclass(frozen=True)
class Difference:
    """The first wrong element: what was compared, on which rank, at which index, what was there and what should be.

    ``index`` counts elements from the start of what was compared. NaN and the infinities are stored as text, since
    JSON has no form for them.
    """

    what: str
    rank: int | None = None
    index: int | None = None
    got: Scalar = None
    wanted: Scalar = None


@dataclass(frozen=True)
class Run:
    """First line: who ran what, where. ``started`` is ISO 8601 in UTC; ``implementation`` has name, version, commit and
    the hash of its sources; ``harness`` has its version and the same of its own packages; ``mode`` is the emulated
    device's; ``ranks_per_gpu``: at most so many ranks shared a GPU. ``circumstances`` is what else could change the
    run: environment variables, pytest plugins, and options that are not the harness's own."""

    record: ClassVar[str] = "run"
    id: str
    seed: int
    profile: str
    device: str
    arch: str
    ranks: tuple[int, ...]
    implementation: Mapping[str, Any]
    environment: Mapping[str, Any]
    started: str
    argv: tuple[str, ...] = ()
    mode: str = "fast"
    ranks_per_gpu: int = 1
    harness: Mapping[str, Any] = field(default_factory=dict)
    circumstances: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """What has to run, written at collection, before anything runs.

    ``requirements`` is the suite's whole table. ``not_applicable`` maps a requirement that this device cannot run to
    the reason; ``left_out`` maps a requirement, or a group, that this run could have run and does not to the reason: a
    run that leaves anything out is partial.
    """

    record: ClassVar[str] = "plan"
    groups: tuple[PlannedGroup, ...]
    requirements: tuple[Requirement, ...] = ()
    not_applicable: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Kernel:
    """A kernel, when its ``hash`` (Triton's) is first met. ``fingerprint`` is ``isa.Fingerprint.to_json()``."""

    record: ClassVar[str] = "kernel"
    hash: str
    name: str
    arch: str
    fingerprint: Mapping[str, Any]
    listing_sha256: str


@dataclass(frozen=True)
class Case:
    """One executed case.

    ``case`` is ``{"type": ..., "fields": {...}}``; ``stacks`` maps a rank to its stack text; ``fault`` is the text of
    a kernel fault and ``fault_source`` its Gluon source line; ``launches`` maps a kernel hash to ``{"launches": n,
    "accesses": Executed.to_json()}``; ``telemetry`` is a recorder's window; ``timing`` has the ``seconds`` of the case
    and its ``compile_seconds``, those in which a rank compiled; ``repeat`` is the one command that runs the case
    again.
    """

    record: ClassVar[str] = "case"
    id: str
    requirement: str
    group: str
    nodeid: str
    case: Mapping[str, Any]
    seed: int
    phase: str
    verdict: Verdict
    repeat: str
    message: str = ""
    differs: Difference | None = None
    stacks: Mapping[str, str] | None = None
    fault: str | None = None
    fault_source: str | None = None
    kernels: tuple[str, ...] = ()
    launches: Mapping[str, Any] = field(default_factory=dict)
    telemetry: Mapping[str, Any] = field(default_factory=dict)
    timing: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Hardware:
    """The GPUs that were watched, once per set of them: ``source`` is ``amdsmi`` or ``nvml``, ``period`` in seconds.

    ``fields`` are those that the source knows; ``gpus`` maps a uuid to name, firmware, partitions and topology. What
    could not be had stands under ``unavailable`` with its reason, at each level.
    """

    record: ClassVar[str] = "hardware"
    source: str
    period: float
    fields: tuple[str, ...] = ()
    library: Mapping[str, Any] = field(default_factory=dict)
    driver: Mapping[str, Any] = field(default_factory=dict)
    gpus: Mapping[str, Any] = field(default_factory=dict)
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Telemetry:
    """What samples around some cases say: all cases that ran between the same samples share one record.

    ``cases`` maps a case's id to its start and end, seconds since the epoch; none: the whole time that the GPUs were
    watched. ``gpus`` has an entry per rank: ``rank``, ``gpu`` (uuid), and either ``reason`` (why there is nothing) or
    ``bracket`` (from when to when the samples were measured), ``samples`` (how many), ``gauges`` (least and greatest),
    ``deltas`` of counters, ``active`` states (in how many samples) and ``unavailable`` (field to reason). ``marks`` are
    what stands beside the verdicts: memory errors, link errors, thermal violations.
    """

    record: ClassVar[str] = "telemetry"
    source: str
    cases: Mapping[str, tuple[float, float]]
    gpus: tuple[Mapping[str, Any], ...]
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Group:
    """The end of one planned group: its verdict, the number of its case records, the reduced failing case if any."""

    record: ClassVar[str] = "group"
    group: str
    requirement: str
    verdict: Verdict
    cases: int
    failing_case: str | None = None
    message: str = ""
    seconds: float | None = None


@dataclass(frozen=True)
class End:
    """Last line: pytest's exit status. ``finished`` is ISO 8601 in UTC; ``counts`` maps a verdict to groups, and
    "skipped" to tests."""

    record: ClassVar[str] = "end"
    exit_status: int
    finished: str
    counts: Mapping[str, int] = field(default_factory=dict)


Record: TypeAlias = "Run | Plan | Kernel | Case | Hardware | Telemetry | Group | End"
TYPES: dict[str, type[Record]] = {cls.record: cls for cls in (Run, Plan, Kernel, Case, Hardware, Telemetry, Group, End)}


def to_json(record: Record) -> dict[str, Any]:
    """The record as an object; fields that are None are left out. ``Store`` adds run, position and hash to its line."""
    return {"schema": SCHEMA, "record": record.record, **_plain(record)}


def from_json(line: Mapping[str, Any]) -> Record:
    """The record of a line that was checked against the schema. Keys that this version does not know are ignored."""
    cls = TYPES[line["record"]]
    values = {f.name: line[f.name] for f in fields(cls) if f.name in line}
    if cls is Plan:
        values["groups"] = tuple(_known(PlannedGroup, group) for group in values["groups"])
        values["requirements"] = tuple(
            _known(Requirement, {**r, "covers": tuple(r.get("covers", ()))}) for r in values.get("requirements", ())
        )
    if values.get("differs"):
        values["differs"] = _known(Difference, values["differs"])
    if "verdict" in values:
        values["verdict"] = Verdict(values["verdict"])
    for name in ("ranks", "argv", "kernels", "fields", "marks"):
        if name in values:
            values[name] = tuple(values[name])
    if cls is Telemetry:
        values["gpus"] = tuple(values["gpus"])
    return cls(**values)


def _known(cls: type, values: Mapping[str, Any]) -> Any:
    return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})


def _plain(value: Any) -> Any:
    """Plain JSON data of dataclasses, enums and tuples; a Difference's non-finite numbers become text."""
    if isinstance(value, Verdict):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        plain = {f.name: _plain(getattr(value, f.name)) for f in fields(value) if getattr(value, f.name) is not None}
        if isinstance(value, Difference):
            plain = {k: str(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in plain.items()}
        return plain
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value
