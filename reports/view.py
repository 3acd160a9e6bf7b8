"""What every report shows, taken from the evidence once: plain values, ready to print."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.evidence import Case, Evidence, Kernel, RequirementResult, Run, Verdict
from reports.absent import Completeness, completeness_of
from reports.gpus import Measured, marks_of, measured_of
from reports.text import plural

KINDS = ("load", "store", "atomic")
LABELS = {Verdict.PASS: "pass", Verdict.FAIL: "fail", Verdict.UNKNOWN: "unknown", Verdict.NOT_RUN: "not run"}
STYLES = {Verdict.PASS: "green", Verdict.FAIL: "bold red", Verdict.UNKNOWN: "yellow", Verdict.NOT_RUN: "magenta"}
"""In the terminal."""
PARTIAL_STYLE = "bold yellow"

_IDS_SHOWN = 20


@dataclass(frozen=True)
class GroupRow:
    """One case group: ``ids`` are those of its first cases, the failing one in front; ``more`` counts the rest."""

    name: str
    verdict: Verdict
    cases: int
    seconds: float
    ids: tuple[str, ...]
    more: int


@dataclass(frozen=True)
class Row:
    """One requirement. ``isa`` is its kernels' remote accesses, as ``store 16 B``; ``area`` is the id's first part."""

    result: RequirementResult
    area: str
    isa: str
    groups: tuple[GroupRow, ...] = ()


@dataclass(frozen=True)
class Failure:
    """The reduced case of one failed group, with its requirement's statement; ``marks``: what telemetry says."""

    case: Case
    statement: str
    source: str
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelRow:
    """One compiled kernel. Width tables map a kind to ``width -> count``; ``launches`` is over all cases and ranks."""

    kernel: Kernel
    launches: int
    local: Mapping[str, Mapping[str, int]]
    remote: Mapping[str, Mapping[str, int]]
    executed_local: Mapping[str, Mapping[str, int]]
    executed_remote: Mapping[str, Mapping[str, int]]
    unattributed: int


@dataclass(frozen=True)
class KernelGroup:
    """All variants of one kernel name: ``registers`` of a lane (VGPRs on AMD GPUs; None where the code does not tell)
    and ``spills`` are their worst, ``remote`` the widths that occur."""

    name: str
    rows: tuple[KernelRow, ...]
    launches: int
    remote: str
    registers: int | None
    spills: int


@dataclass(frozen=True)
class Report:
    """The whole of a report. ``seconds`` is the sum over cases; ``run`` is None when its record was lost, ``measured``
    where no GPU was watched. ``headline`` says first whether the run is partial."""

    verdict: Verdict
    headline: str
    completeness: Completeness
    run: Run | None
    finished: str
    counts: dict[str, int]
    cases: int
    seconds: float
    groups: int
    rows: tuple[Row, ...]
    failures: tuple[Failure, ...]
    gaps: tuple[str, ...]
    kernels: tuple[KernelGroup, ...]
    measured: Measured | None = None


def view_of(evidence: Evidence) -> Report:
    """Read ``evidence`` into a Report; failures keep the order of requirements."""
    results = evidence.requirements()
    verdict = evidence.verdict()
    counts = evidence.counts()
    completeness = completeness_of(evidence)
    cases: dict[str, list[Case]] = defaultdict(list)
    for case in evidence.cases:
        cases[case.group].append(case)
    marks = marks_of(evidence)
    by_requirement = (gap if gap.startswith(r.id) else f"{r.id}: {gap}" for r in results.values() for gap in r.gaps)
    gaps = (*evidence.gaps(), *by_requirement)
    return Report(
        verdict=verdict,
        headline=f"{completeness.sentence} {_headline(verdict, counts, len(gaps), completeness)}".strip(),
        completeness=completeness,
        run=evidence.runs[0] if evidence.runs else None,
        finished=evidence.ends[-1].finished if evidence.ends else "",
        counts=counts,
        cases=len(evidence.cases),
        seconds=sum(result.seconds for result in results.values()),
        groups=sum(len(result.groups) for result in results.values()),
        rows=tuple(
            Row(r, r.id.partition("-")[0], _remote(r.kernels, evidence.kernels), _group_rows(r, cases))
            for r in results.values()
        ),
        failures=tuple(
            Failure(case, r.statement, r.source, tuple(marks.get(case.id, ())))
            for r in results.values()
            for case in r.failing
        ),
        gaps=gaps,
        kernels=_kernels(evidence),
        measured=measured_of(evidence),
    )


def _headline(verdict: Verdict, counts: Mapping[str, int], gaps: int, completeness: Completeness) -> str:
    total = sum(counts.values())
    if not total:
        return "Nothing was planned, so nothing is certified."
    if verdict is Verdict.PASS:
        what = "The requirement" if total == 1 else f"All {total} requirements"
        if completeness.missing:
            return f"{what} of this run passed."
        here = len(completeness.not_applicable)
        also = f" {here} {'is' if here == 1 else 'are'} not applicable here." if here else ""
        return f"{what} passed, and everything that was planned ran.{also}"
    parts = [f"{counts['pass']} of {plural(total, 'requirement')} passed"]
    parts += [f"{counts['fail']} failed"] if counts["fail"] else []
    parts += [f"{counts['unknown']} could not be checked"] if counts["unknown"] else []
    parts += [f"{counts['not_run']} did not run"] if counts["not_run"] else []
    if len(parts) == 1:
        parts.append(f"{plural(gaps, 'gap')} in the evidence")
    return ", ".join(parts) + "."


def _group_rows(result: RequirementResult, cases: Mapping[str, list[Case]]) -> tuple[GroupRow, ...]:
    failing = {case.group: case.id for case in result.failing}
    rows = []
    for name, verdict in result.groups.items():
        own = cases.get(name, [])
        first = [failing[name]] if name in failing else []
        ids = tuple(dict.fromkeys([*first, *(case.id for case in own)]))
        seconds = sum(case.timing.get("seconds", 0.0) for case in own)
        rows.append(GroupRow(name, verdict, len(own), seconds, ids[:_IDS_SHOWN], len(ids[_IDS_SHOWN:])))
    return tuple(rows)


def _remote(hashes: Iterable[str], kernels: Mapping[str, Kernel]) -> str:
    widths: dict[str, set[int]] = defaultdict(set)
    for hash_ in hashes:
        if hash_ in kernels:
            for kind, table in kernels[hash_].fingerprint["widths"].get("remote", {}).items():
                widths[kind].update(int(width) for width in table)
    return ", ".join(
        f"{kind}\N{NO-BREAK SPACE}{'/'.join(map(str, sorted(widths[kind])))}\N{NO-BREAK SPACE}B"
        for kind in KINDS
        if widths[kind]
    )


def _kernels(evidence: Evidence) -> tuple[KernelGroup, ...]:
    executed: dict[str, dict[str, Any]] = {}
    launches: dict[str, int] = defaultdict(int)
    for case in evidence.cases:
        for hash_, entry in case.launches.items():
            launches[hash_] += entry["launches"]
            _count(executed.setdefault(hash_, {}), entry["accesses"])
    by_name: dict[str, list[KernelRow]] = defaultdict(list)
    for kernel in evidence.kernels.values():
        widths = kernel.fingerprint["widths"]
        ran = executed.get(kernel.hash, {})
        by_name[kernel.name].append(
            KernelRow(
                kernel=kernel,
                launches=launches[kernel.hash],
                local=widths.get("local", {}),
                remote=widths.get("remote", {}),
                executed_local=ran.get("local", {}),
                executed_remote=ran.get("remote", {}),
                unattributed=sum(sum(table.values()) for table in widths.get("unattributed", {}).values()),
            )
        )
    return tuple(_group(name, rows, evidence.kernels) for name, rows in sorted(by_name.items()))


def _count(table: dict[str, Any], accesses: Iterable[Mapping[str, Any]]) -> None:
    for access in accesses:
        widths = table.setdefault(access["where"], {}).setdefault(access["kind"], {})
        width = str(int(access["width"]))  # JSON has 16.0 for a whole number, too
        widths[width] = widths.get(width, 0) + access["executions"]


def _group(name: str, rows: list[KernelRow], kernels: Mapping[str, Kernel]) -> KernelGroup:
    prints = [row.kernel.fingerprint for row in rows]
    return KernelGroup(
        name=name,
        rows=tuple(sorted(rows, key=lambda row: (-row.launches, row.kernel.hash))),
        launches=sum(row.launches for row in rows),
        remote=_remote((row.kernel.hash for row in rows), kernels),
        registers=max((told for print_ in prints if (told := registers_of(print_)) is not None), default=None),
        spills=max(spills_of(print_) or 0 for print_ in prints),
    )


def registers_of(fingerprint: Mapping[str, Any]) -> int | None:
    """Registers per lane: VGPRs on AMD GPUs, what ptxas used on NVIDIA's; None where the code does not tell."""
    told: int | None = fingerprint["vgprs"] if fingerprint["vgprs"] is not None else fingerprint.get("registers")
    return told


def spills_of(fingerprint: Mapping[str, Any]) -> int | None:
    """Registers that were spilled; on NVIDIA GPUs the 4-byte words of a lane's own memory. None: not told."""
    spilled: int | None = fingerprint["vgpr_spills"]
    if spilled is not None:
        return spilled + int(fingerprint.get("sgpr_spills") or 0)
    scratch: int | None = fingerprint.get("scratch")
    return None if scratch is None else scratch // 4
