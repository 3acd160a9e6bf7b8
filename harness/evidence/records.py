"""Record types of an evidence file. ``to_json`` returns the object that one line holds."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime, timezone
from typing import Any, ClassVar, TypeAlias

from harness.evidence.verdict import Verdict

SCHEMA = 2
"""Version of the record format; a reader refuses every other one."""

PUBLISHED, EXTENDED = APIS = ("published", "extended")
"""The APIs that requirements are about: what upstream Iris exposes, and what libraries have beyond it. A run for
``extended`` includes ``published``."""

NO_PROFILE = "none"
"""Profile of a run that is for no hardware profile, so that no list states which groups it must have."""

ONE_PROCESS, APART = JUDGES = ("together", "apart")
"""Where a case was compared: in the process that runs the library, or in a process that the library never enters."""

MISSING = "missing"
"""The first word of the sentence about a capability that the library lacks."""

Scalar: TypeAlias = "str | int | float | bool | None"


def case_id(requirement: str, group: str, case: Mapping[str, Any]) -> str:
    """Return sixteen hex digits that identify a case of a group, the same on every machine and in every run."""
    text = json.dumps([requirement, group, case], sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Requirement:
    """A requirement: its ``statement``, the document that it comes from (``source``), and the public names it covers.

    A further form of a requirement has the id of that requirement in ``form_of``, and ``form`` names the form ("a
    method of DeviceContext"); its statement is also a whole sentence. ``table`` is None for the suite's own
    requirements, else the ``requirements.toml`` that it comes from.

    ``needs`` are the capabilities without which it is unsupported: public names, ``NAME(PARAMETER)`` for a parameter of
    a function, and capabilities of adapters; ``{...}`` stands for a parameter of the test, as in ``ccl.{op}``.
    ``api`` is ``published`` or ``extended``.
    """

    id: str
    statement: str
    source: str = ""
    covers: tuple[str, ...] = ()
    form_of: str | None = None
    form: str | None = None
    table: str | None = None
    needs: tuple[str, ...] = ()
    api: str = PUBLISHED

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The capabilities that its groups need; where a need has a parameter, those of the names that it covers."""
        plain = [need for need in self.needs if "{" not in need]
        patterns = [re.escape(need) for need in self.needs if "{" in need]
        fitting = re.compile("|".join(re.sub(r"\\{\w+\\}", r"[a-z]\\w*", pattern) for pattern in patterns))
        return tuple(dict.fromkeys((*plain, *(name for name in self.covers if fitting.fullmatch(name)))))


@dataclass(frozen=True)
class PlannedGroup:
    """One pytest test instance that must run: a requirement at fixed parameters."""

    group: str
    requirement: str
    nodeid: str


@dataclass(frozen=True)
class Difference:
    """The first wrong element.

    ``what``: the compared tensor or value; ``rank``: its rank; ``index``: the element's index in it; ``got`` and
    ``wanted``: the actual and the expected value. NaN and the infinities are stored as text, since JSON cannot
    represent them.

    ``detail`` has more about an element of a tensor or of the heap. ``place`` is ``inside`` its ``region``, ``masked``
    (switched off by the mask of the call), ``before`` or ``after`` the region, or ``outside`` of every region, which is
    then "". ``element`` is the index in the region, and ``runs`` are the first runs of wrong elements as [first, end]
    (bytes of the arena without a region). ``wrong`` and ``of`` count wrong and all elements, or with ``bytes`` bytes
    outside of regions. ``got`` and ``wanted`` are the *origins* of the values: ``kind`` is ``payload`` (with ``rank``,
    ``element``, and where they are not 0 ``round`` and ``call``; ``candidates`` if several places fit), ``unwritten``
    (``byte`` of the arena of ``rank``), ``reduction`` (the result; ``without`` or ``twice`` a member's part),
    ``zero``, ``ambiguous`` or ``unknown``. ``byte`` is the first wrong byte in the arena.
    """

    what: str
    rank: int | None = None
    index: int | None = None
    got: Scalar = None
    wanted: Scalar = None
    detail: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Run:
    """First line of a run: its options, implementation and environment.

    ``level`` is the amount of testing and ``profile`` the hardware profile: a run with both is compared with the list
    of groups that the suite has for them. ``started`` is ISO 8601 in UTC; ``implementation`` has name, version, commit
    and the hash of its sources; ``harness`` has its version and the same of its own packages; ``mode`` is the mode of
    the emulated device; ``ranks_per_gpu`` is the greatest number of ranks that shared a GPU; ``nodes`` is the number of
    machines that the ranks of each world size were on. ``circumstances`` holds what else could change the run:
    environment variables, pytest plugins, and options that are not the harness's own.
    ``waivers`` is the content of a file of waivers, with its ``sha256``, see ``harness.evidence.waivers``,
    and ``quarantine`` the same of a quarantine.
    """

    record: ClassVar[str] = "run"
    id: str
    seed: int
    level: str
    device: str
    arch: str
    ranks: tuple[int, ...]
    implementation: Mapping[str, Any]
    environment: Mapping[str, Any]
    started: str
    argv: tuple[str, ...] = ()
    mode: str = "fast"
    ranks_per_gpu: int = 1
    nodes: int = 1
    profile: str = NO_PROFILE
    harness: Mapping[str, Any] = field(default_factory=dict)
    circumstances: Mapping[str, Any] = field(default_factory=dict)
    waivers: Mapping[str, Any] | None = None
    quarantine: Mapping[str, Any] | None = None

    @property
    def day(self) -> str:
        """The day in UTC on which the run started, such as 2026-11-24; that of the text if it is not a time."""
        try:
            started = datetime.fromisoformat(self.started.replace("Z", "+00:00"))  # Python 3.10 does not read the Z
        except ValueError:
            return self.started[:10]
        return (started if started.tzinfo is None else started.astimezone(timezone.utc)).date().isoformat()


@dataclass(frozen=True)
class Plan:
    """The groups that have to run, written at collection, before any of them runs.

    ``requirements`` is the suite's whole table. ``not_applicable`` maps each requirement that this device cannot run to
    the reason. ``left_out`` maps each requirement or group that this run could run and does not to the reason: a run
    that leaves anything out is partial. ``unsupported`` maps each requirement or group that needs a capability that the
    library lacks to the reason. ``api``: the run's API; ``requirements`` has those of this API only.
    ``capabilities`` maps each capability that a requirement needs to a sentence about it; ``declaration`` lists what is
    wrong with the library's declaration of them.

    ``shard`` is None unless the groups are those of one shard of a run. It has ``index`` (from 1), ``of`` (the number
    of shards), ``plan`` (the digest of the division, see ``harness.evidence.shards``), ``node`` (the name that the
    caller gave the machine), and in merged evidence ``run``, the id of the shard's own run, without which the shard is
    missing. Merged evidence has one plan for each shard, of which the first has what all of them share.
    """

    record: ClassVar[str] = "plan"
    groups: tuple[PlannedGroup, ...]
    requirements: tuple[Requirement, ...] = ()
    not_applicable: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    unsupported: Mapping[str, str] = field(default_factory=dict)
    api: str = EXTENDED
    capabilities: Mapping[str, str] = field(default_factory=dict)
    declaration: tuple[str, ...] = ()
    shard: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Kernel:
    """A kernel, recorded when its ``hash`` (Triton's) first occurs. ``fingerprint`` is ``isa.Fingerprint.to_json()``,
    which follows from the listing and ``roots``, the ``isa.Roots.to_json()`` of its first launch."""

    record: ClassVar[str] = "kernel"
    hash: str
    name: str
    arch: str
    fingerprint: Mapping[str, Any]
    listing_sha256: str
    roots: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One executed case.

    ``case`` is ``{"type": ..., "fields": {...}}``, with ``"data": {...}`` if the test passed further values to the rank
    function, and with the ``"memory"`` of ``harness.adversary`` if it has a schedule; ``stacks`` maps a rank to its
    stack text; ``fault`` is the text of a kernel fault and ``fault_source`` its Gluon source line;
    ``traceback`` is that of a Python error, or a rank's output before it crashed; ``launches`` maps a
    kernel hash to ``{"launches": n, "accesses": Executed.to_json(), "inexact": [...]}``, the last as
    ``telemetry.launches_by_kernel`` has it; ``telemetry`` is a recorder's window;
    ``outcomes`` maps each outcome of a case with several allowed ones to how often it occurred; ``timing`` has the
    ``seconds`` of the case and its ``compile_seconds``, those in which a rank compiled; ``repeat`` is the command that
    runs the case again. ``remarks`` are not about failures: where the case relies on unspecified behaviour, and what
    could not be checked. ``defaults`` are the fields of a case that did not pass which have their default value.
    ``judge`` is one of ``JUDGES``.
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
    traceback: str | None = None
    kernels: tuple[str, ...] = ()
    launches: Mapping[str, Any] = field(default_factory=dict)
    telemetry: Mapping[str, Any] = field(default_factory=dict)
    outcomes: Mapping[str, int] = field(default_factory=dict)
    timing: Mapping[str, float] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()
    judge: str = ONE_PROCESS


@dataclass(frozen=True)
class Hardware:
    """The sampled GPUs, once per set of GPUs: ``source`` is ``amdsmi`` or ``nvml``, ``period`` in seconds.

    ``fields``: the fields that exist for the source; ``gpus`` maps a uuid to name, firmware, partitions and topology.
    ``unavailable``, at each level, maps a value that could not be read to the reason.
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
    """Telemetry around some cases: all cases that ran between the same samples share one record.

    ``cases`` maps a case's id to its start and end, in seconds since the epoch; if it is empty, the record covers the
    whole time of sampling. ``gpus`` has an entry per rank: ``rank``, ``gpu`` (uuid), and either ``reason`` (for
    missing telemetry) or ``bracket`` (start and end of the measurements), ``samples`` (their number), ``gauges`` (least
    and greatest value), ``deltas`` of counters, ``active`` states (number of samples) and ``unavailable`` (field to
    reason). ``marks`` are reported with the verdicts: memory errors, link errors, thermal violations.
    """

    record: ClassVar[str] = "telemetry"
    source: str
    cases: Mapping[str, tuple[float, float]]
    gpus: tuple[Mapping[str, Any], ...]
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Group:
    """End of one planned group: its verdict, the number of its case records, the reduced failing case if any.

    ``stores`` are the instructions that wrote the case's first wrong element, in another execution of it: ``rank``,
    ``kernel``, ``wavefront`` and ``lane`` of the first such store, ``instruction``, and its ``source`` line with the
    lines that called it. ``fences``: of a case that failed in weak memory, what its kernels lack: ``kernel``, the
    ``missing`` instruction, the ``instruction`` that writes or polls a flag and its ``source``, and the ``other``
    access, from which the missing one would separate it. ``waits``: of a hang, the words that its ranks poll: the
    polling ``rank``, the ``memory``, its ``owner``, ``offset`` and ``size``, the value ``held`` and the one ``wanted``
    (None if unknown), the polling ``instruction`` and its ``source``; and who wrote last, each with ``rank``,
    ``owner``, ``offset``, ``value``, ``kernel``, ``instruction`` and ``source``: ``writers`` this word, ``elsewhere``
    the same word of another rank, ``near`` words at most 64 bytes away, ``before`` this word in the last case that
    passed; ``silent``: the ranks that wrote no word near that place of any rank's memory; ``unknown``: the number of
    words whose writers were not kept. ``repeats``: how often the failing case ran, and how often it failed.
    """

    record: ClassVar[str] = "group"
    group: str
    requirement: str
    verdict: Verdict
    cases: int
    failing_case: str | None = None
    message: str = ""
    seconds: float | None = None
    stores: tuple[Mapping[str, Any], ...] = ()
    repeats: Mapping[str, int] | None = None
    fences: tuple[Mapping[str, Any], ...] = ()
    waits: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class End:
    """Last line of a run: pytest's exit status. ``finished`` is ISO 8601 in UTC; ``counts`` maps a verdict to a number
    of groups, and "skipped" to a number of tests."""

    record: ClassVar[str] = "end"
    exit_status: int
    finished: str
    counts: Mapping[str, int] = field(default_factory=dict)


Record: TypeAlias = "Run | Plan | Kernel | Case | Hardware | Telemetry | Group | End"
TYPES: dict[str, type[Record]] = {cls.record: cls for cls in (Run, Plan, Kernel, Case, Hardware, Telemetry, Group, End)}


def to_json(record: Record) -> dict[str, Any]:
    """Return the record as a JSON object without the fields that are None. ``Store`` adds run, position and hash."""
    return {"schema": SCHEMA, "record": record.record, **_plain(record)}


def from_json(line: Mapping[str, Any]) -> Record:
    """Return the record of a line that was checked against the schema. Keys unknown to this version are ignored."""
    cls = TYPES[line["record"]]
    values = {f.name: line[f.name] for f in fields(cls) if f.name in line}
    if cls is Run and "level" not in values:  # version 0.2.0 called the level profile
        values["level"] = values.pop("profile")
    if cls is Plan:
        values["groups"] = tuple(_known(PlannedGroup, group) for group in values["groups"])
        values["requirements"] = tuple(
            _known(Requirement, {**r, **{name: tuple(r.get(name, ())) for name in ("covers", "needs")}})
            for r in values.get("requirements", ())
        )
    if values.get("differs"):
        values["differs"] = _known(Difference, values["differs"])
    if "verdict" in values:
        values["verdict"] = Verdict(values["verdict"])
    for name in (
        "ranks",
        "argv",
        "kernels",
        "fields",
        "marks",
        "declaration",
        "remarks",
        "defaults",
        "stores",
        "fences",
        "waits",
    ):
        if name in values:
            values[name] = tuple(values[name])
    if cls is Telemetry:
        values["gpus"] = tuple(values["gpus"])
    return cls(**values)


def _known(cls: type, values: Mapping[str, Any]) -> Any:
    return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})


def _plain(value: Any) -> Any:
    """Return dataclasses, enums and tuples as plain JSON data; a Difference's non-finite numbers become text."""
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
