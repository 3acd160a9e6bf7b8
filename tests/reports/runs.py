"""Sample runs for tests of the views: complete and partial ones, and one in which every text is hostile."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from harness.evidence import Case, Difference, Group, Plan, PlannedGroup, Record, Requirement, Verdict
from tests.evidence import samples

POISON = "\x1b]0;owned\x07\x1b[31m\x9b2J\x7f\x00\r\n\u202egnp\u2066\u200b\ufeff\u2028\ufffe\U000e0041</x><script>[red]"
"""Hostile text: terminal title and colour sequences, C1, delete, null, line ends, bidirectional overrides, invisible
characters, and markup of HTML, JavaScript and Rich."""

_STRUCTURE = {
    "id", "verdict", "device", "source", "hash", "phase", "listing_sha256", "fingerprint", "launches", "kernels",
    "failing_case", "judge",
}  # fmt: skip


GET, FUSED, FREE = "RMA-GET-001", "FUSED-CAPTURE-001", "MEMORY-FREE-001"


def partial(records: list[Record] | None = None) -> list[Record]:
    """Return a partial run: ``records`` (green ones by default) of a suite in which one requirement is not applicable,
    and another requirement and a group were left out."""
    first, planned, *rest = records or samples.green()
    assert isinstance(planned, Plan)
    further = (
        Requirement(GET, "get copies exactly the masked elements from the peer", "iris_api.md, get", ("get",)),
        Requirement(FUSED, "a fused op can be captured into a graph", "iris_api.md, fused", ("fused",)),
    )
    left_out = {GET: "deselected by -k put", f"{samples.PUT}[ranks=2,dtype=fp16]": "this machine has 1 GPU"}
    return [first, Plan(planned.groups, planned.requirements + further, {FUSED: "needs a GPU"}, left_out), *rest]


def complete() -> list[Record]:
    """Return a complete run: green records of a suite with one more requirement, which is not applicable."""
    first, planned, *rest = partial()
    assert isinstance(planned, Plan)
    known = tuple(requirement for requirement in planned.requirements if requirement.id != GET)
    return [first, Plan(planned.groups, known, planned.not_applicable), *rest]


def unsupported(records: list[Record] | None = None, **changes: Any) -> list[Record]:
    """Return a complete run, ``records`` or green ones, of a library without ``Iris.free``, which one requirement
    needs."""
    first, planned, *rest = records or samples.green()
    assert isinstance(planned, Plan)
    free = Requirement(FREE, "free releases memory", "iris_api.md, free", ("Iris.free",), needs=("Iris.free",))
    values: dict[str, Any] = {
        "requirements": (*planned.requirements, dataclasses.replace(free, api="extended")),
        "unsupported": {FREE: "needs Iris.free: planned for release 2"},
        "capabilities": {"Iris.free": "missing: planned for release 2", "put": "present: (a, b)", "x": "unknown"},
    }
    return [first, dataclasses.replace(planned, **{**values, **changes}), *rest]


def poisoned() -> list[Record]:
    """Return a failing, partial run on GPUs with ``POISON`` in every text, key and name that the schema allows."""
    bad = dataclasses.replace(
        samples.failing_case(),
        differs=Difference("what", 3, 17, "got", "wanted"),
        stacks={"0": "in spin"},
        fault="fault",
        fault_source="device.py:1",
    )
    before = partial([*samples.green()[:6], bad])
    marked = samples.telemetry(bad, marks=("too hot",), unavailable={"power": "why"})
    ended = Group(samples.ADD_GROUP, samples.ADD, Verdict.FAIL, 2, failing_case=bad.id, message="heap differs")
    records = [*before, ended, samples.hardware(), marked, samples.telemetry(marks=("outside",)), samples.end(1)]
    return [_poison_record(record) for record in records]


def _poison_record(record: Record) -> Record:
    if isinstance(record, Plan):
        groups = tuple(PlannedGroup(*map(_poison, dataclasses.astuple(group))) for group in record.groups)
        known = tuple(
            Requirement(
                _poison(r.id), _poison(r.statement), _poison(r.source), _poison(r.covers), needs=("x" + POISON,)
            )
            for r in record.requirements
        )
        states = {_poison("y"): _poison("missing: it is"), _poison("z"): _poison("strange")}
        declared = (_poison("declares y"),)
        reasons = _poison(record.not_applicable), _poison(record.left_out)
        return Plan(groups, known, *reasons, capabilities=states, declaration=declared)
    changes = {
        field.name: _poison(getattr(record, field.name))
        for field in dataclasses.fields(record)
        if field.name not in _STRUCTURE and not (isinstance(record, Case) and field.name in ("case", "differs"))
    }
    if isinstance(record, Case):
        fields = record.case["fields"]
        changes["case"] = {"type": _poison(record.case["type"]), "fields": _poison(fields)}
        if record.differs:
            differs = dataclasses.asdict(record.differs)
            changes["differs"] = Difference(**{key: _poison(value) for key, value in differs.items()})
    return dataclasses.replace(record, **changes)


def _poison(value: Any) -> Any:
    """Return ``value`` with ``POISON`` added to every text in it, and to keys that are not part of the format."""
    if isinstance(value, str):
        return value + POISON
    if isinstance(value, Mapping):
        return {_poison_key(key): _poison(entry) for key, entry in value.items()}
    if isinstance(value, tuple):
        return tuple(_poison(entry) for entry in value)
    if isinstance(value, list):
        return [_poison(entry) for entry in value]
    return value


_FORMAT_KEYS = {
    "name", "version", "commit", "python", "os", "cpus", "packages", "rank", "gpu", "bracket", "samples", "gauges",
    "deltas", "active", "unavailable", "reason", "seconds", "vbios", "asic",
}  # fmt: skip


def _poison_key(key: str) -> str:
    is_id = len(key) == 16 and not set(key) - set("0123456789abcdef")
    return key if key in _FORMAT_KEYS or is_id else key + POISON
