"""Evidence of shards, as certify --shard writes it, without a run."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from harness.evidence import Case, End, Group, Plan, PlannedGroup, Requirement, Store, Verdict, case_id, shards
from tests.evidence import samples

PUT = "RMA-PUT-001"
NAMES = tuple(f"{PUT}[ranks=2,dtype={dtype}]" for dtype in ("bf16", "fp16", "fp32", "fp64", "int16", "int32", "int8"))
MANDATORY = NAMES[0]
OF = 3


def write_all(folder: Path, of: int = OF, **changes: Any) -> list[Path]:
    """Write the shards of one run, all of which passed, into folders below ``folder``; return their files."""
    return [write(folder / f"shard-{index}", index, of, **changes) for index in range(1, of + 1)]


def write(
    folder: Path,
    index: int,
    of: int = OF,
    *,
    verdicts: dict[str, Verdict] | None = None,
    node: str | None = None,
    run: dict[str, Any] | None = None,
    plan: dict[str, Any] | None = None,
    names: tuple[str, ...] = NAMES,
    drop: tuple[str, ...] = (),
    end: bool = True,
    status: int | None = None,
    hardware: dict[str, Any] | None = None,
) -> Path:
    """Write one shard. ``verdicts``: of groups that did not pass; ``drop``: groups that have no record;
    ``status``: pytest's, if it is another one than follows from the verdicts."""
    folder.mkdir(parents=True, exist_ok=True)
    division, text = shards.to_text(names, of, {"level": "gate"})
    (folder / shards.FILE).write_text(text)
    own = sorted({*shards.divided(names, of)[index - 1], *division.mandatory})
    recorded = {"index": index, "of": of, "plan": division.digest, "node": node or f"n{index}"}
    planned = Plan(
        groups=tuple(PlannedGroup(name, PUT, nodeid(name)) for name in own),
        requirements=(Requirement(PUT, "put copies exactly the masked elements", "spec", ("put",)),),
        shard=recorded,
    )
    records: list[Any] = [
        samples.run(id=f"run{index}", level="gate", **(run or {})),
        dataclasses.replace(planned, **(plan or {})),
    ]
    records.append(samples.kernel())
    ended: list[Verdict] = []
    for name in (name for name in own if name not in drop):
        verdict = (verdicts or {}).get(name, Verdict.PASS)
        record = case(name, verdict)
        failing = None if verdict is Verdict.PASS else record.id
        records += [record, Group(name, PUT, verdict, 1, failing_case=failing, seconds=0.5)]
        ended.append(verdict)
    if hardware is not None:
        records.append(dataclasses.replace(samples.hardware(), **hardware))
        records.append(samples.telemetry(*(each for each in records if isinstance(each, Case))))
    if status is not None:
        records.append(End(status, "2026-11-21T02:01:00Z", {"skipped": 4}))
    elif end:
        bad = any(verdict is not Verdict.PASS for verdict in ended)
        records.append(End(int(bad), "2026-11-21T02:01:00Z", {"skipped": 4}))
    path = folder / "evidence.jsonl"
    with Store(path) as store:
        for record in records:
            store.append(record)
    return path


def case(name: str, verdict: Verdict = Verdict.PASS) -> Case:
    """Return a case of the group ``name``."""
    drawn = {"type": "Copy", "fields": {"count": 4, "dtype": name[-5:-1]}}
    changed = samples.case(verdict=verdict)
    return dataclasses.replace(
        changed, id=case_id(PUT, name, drawn), requirement=PUT, group=name, nodeid=nodeid(name), case=drawn
    )


def nodeid(name: str) -> str:
    """Return the node id of a group."""
    return f"conformance/rma/test_put.py::test_put[{name.partition('[')[2][:-1].replace(',', '-')}]"
