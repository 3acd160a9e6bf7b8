"""Evidence of a large run, made in memory, for tests of what a browser can handle."""

from __future__ import annotations

import dataclasses

from harness.evidence import Case, Difference, Evidence, Group, PlannedGroup, Requirement, Verdict, case_id
from tests.evidence import samples

AREAS = ("RMA", "ATOMIC", "CCL", "ORDER", "FUSED", "HOST", "ISA", "TILE", "TRACE", "NEGATIVE")
OPS = ("put", "get", "load", "store", "copy", "add", "xchg", "cas", "gather", "reduce")
DTYPES = ("int8", "int32", "int64", "fp16", "fp32")


def evidence(numbers: int = 10, cases: int = 20, failing: int = 97) -> Evidence:
    """Return a run of 100 x ``numbers`` requirements with five groups each, and ``cases`` cases per group.

    Every requirement whose position is a multiple of ``failing`` fails with fp16.
    """
    made = Evidence(runs=[samples.run(ranks=(2, 4))], ends=[samples.end(1)], kernels={samples.KERNEL: samples.kernel()})
    for area in AREAS:
        for op in OPS:
            for number in range(1, numbers + 1):
                _add(made, area, op, number, cases, bad=len(made.statements) % failing == failing - 1)
    return made


def _add(made: Evidence, area: str, op: str, number: int, cases: int, *, bad: bool) -> None:
    name = f"{area}-{op.upper()}-{number:03}"
    statement = f"{op} of {area} number {number} gives each rank exactly the elements that the mask selects."
    covers = (f"{'IrisDeviceCtx' if number % 2 else 'DeviceContext'}.{op}",)
    made.statements[name] = Requirement(name, statement, "docs/spec/rma.md#put", covers)
    for place, dtype in enumerate(DTYPES):
        group = f"{name}[ranks={2 + 2 * (place % 2)},dtype={dtype}]"
        verdict = Verdict.FAIL if bad and dtype == "fp16" else Verdict.PASS
        made.plan[group] = PlannedGroup(group, name, f"conformance/test_{op}.py::test_{op}[{dtype}]")
        ran = [_case(name, group, count, verdict if count == 0 else Verdict.PASS) for count in range(cases)]
        made.cases += ran
        named = ran[0].id if verdict is Verdict.FAIL else None
        made.groups[group] = [Group(group, name, verdict, cases, failing_case=named)]


def _case(requirement: str, group: str, count: int, verdict: Verdict) -> Case:
    drawn = {"type": "Copy", "fields": {"count": count, "dtype": "fp16", "mask": "range"}}
    return dataclasses.replace(
        samples.case(count, verdict=verdict),
        id=case_id(requirement, group, drawn),
        requirement=requirement,
        group=group,
        case=drawn,
        differs=Difference("heap", 1, count, 5, 4) if verdict is Verdict.FAIL else None,
        timing={"seconds": 0.01 + count / 1000},
    )
