"""The data of a report, extracted from the evidence once for all views: plain values, ready to print."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.evidence import EXTENDED, Case, Evidence, Requirement, RequirementResult, Run, Verdict
from reports.absent import Completeness, completeness_of
from reports.capabilities import Offered, offered
from reports.causes import Cause, causes_of
from reports.facets import NONE, Facets, Matrix, anchor_of, facets_of, matrices_of, options_of
from reports.gpus import Measured, marks_of, measured_of
from reports.kernels import KernelGroup, kernels_of, remote_of
from reports.text import plural, replay_of
from reports.timeline import Area, Timeline, areas_of, timeline_of
from reports.topology import Topology, topology_of

LABELS = {verdict: verdict.value.replace("_", " ") for verdict in Verdict}
STYLES = {
    Verdict.PASS: "green",
    Verdict.FAIL: "bold red",
    Verdict.FLAKY: "red",
    Verdict.UNKNOWN: "yellow",
    Verdict.NOT_RUN: "magenta",
    Verdict.QUARANTINED: "bold yellow",
    Verdict.WAIVED: "bold yellow",
    Verdict.UNSUPPORTED: "cyan",
}
"""Styles for the terminal."""
PARTIAL_STYLE = "bold yellow"

_IDS_SHOWN, _IDS_LEAST, _IDS_PAGE = 20, 3, 20_000
"""Case ids of a group: at most, at least if the page would have more than the third number."""


@dataclass(frozen=True)
class GroupRow:
    """One case group. ``ids`` are those of its first cases, starting with the failing one; ``more`` counts the rest.
    ``anchor`` is the id of its element."""

    name: str
    anchor: str
    facets: Facets
    verdict: Verdict
    cases: int
    seconds: float
    ids: tuple[str, ...]
    more: int


@dataclass(frozen=True)
class Row:
    """One requirement, or a further form of the requirement in the row above, which has the statement.

    ``form`` names the form, as ``As a function``. ``isa`` lists its kernels' remote accesses, as ``store 16 B``.
    ``area`` is the first part of the id, ``facets`` are those of a group without parameters, and ``covers`` and
    ``api`` those of the requirement.
    """

    result: RequirementResult
    area: str
    facets: Facets
    isa: str
    groups: tuple[GroupRow, ...] = ()
    form: str = ""
    api: str = ""
    covers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failure:
    """The reduced case of one failed group, with its requirement's statement and the command that runs it again.

    ``marks`` are the case's telemetry marks.
    """

    case: Case
    statement: str
    source: str
    replay: str
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """All data of a report.

    ``glance`` is the result in a few words. ``headline`` starts with a sentence about a partial run, if it is one.
    ``options`` are the values of each filter. ``seconds`` is the sum over cases. ``run`` is None if its record was
    lost, ``measured`` if no GPU was watched. ``waivers``: a line for each waiver, and each group of a quarantine that
    failed.
    """

    verdict: Verdict
    glance: str
    headline: str
    completeness: Completeness
    capabilities: Offered
    api: str
    run: Run | None
    finished: str
    counts: dict[str, int]
    cases: int
    seconds: float
    groups: int
    rows: tuple[Row, ...]
    causes: tuple[Cause, ...]
    failures: tuple[Failure, ...]
    gaps: tuple[str, ...]
    kernels: tuple[KernelGroup, ...]
    options: Mapping[str, Sequence[str]]
    matrices: tuple[Matrix, ...]
    areas: tuple[Area, ...]
    measured: Measured | None = None
    waivers: tuple[str, ...] = ()
    timeline: Timeline | None = None
    topology: Topology | None = None


def view_of(evidence: Evidence) -> Report:
    """Return the report of ``evidence``. Failures are in the order of the requirements."""
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
    result = _headline(verdict, counts, len(gaps), completeness, evidence)
    sentences = (completeness.sentence, result, _of_forms(results), _of_tables(evidence))
    causes = causes_of(evidence)
    rows = _rows(results, evidence, cases)
    groups = [(group.facets, group.verdict, group.anchor) for row in rows for group in row.groups]
    return Report(
        verdict=verdict,
        glance=_glance(verdict, groups, len(causes), completeness),
        headline=" ".join(filter(None, sentences)),
        completeness=completeness,
        capabilities=offered(evidence.capabilities, evidence.statements.values(), evidence.declaration),
        api=evidence.api,
        run=evidence.runs[0] if evidence.runs else None,
        finished=evidence.ends[-1].finished if evidence.ends else "",
        counts=counts,
        cases=len(evidence.cases),
        seconds=sum(result.seconds for result in results.values()),
        groups=sum(len(result.groups) for result in results.values()),
        rows=rows,
        causes=causes,
        failures=tuple(
            Failure(case, r.statement, r.source, replay_of(case, evidence), tuple(marks.get(case.id, ())))
            for r in results.values()
            for case in r.failing
        ),
        gaps=gaps,
        kernels=kernels_of(evidence),
        options=options_of([*(group.facets for row in rows for group in row.groups), *(row.facets for row in rows)]),
        matrices=matrices_of(groups),
        areas=areas_of(evidence),
        measured=measured_of(evidence),
        waivers=_waivers(evidence),
        timeline=timeline_of(evidence),
        topology=topology_of(evidence),
    )


def _glance(
    verdict: Verdict, groups: Sequence[tuple[Facets, Verdict, str]], causes: int, completeness: Completeness
) -> str:
    """Return the result in a few words: ``2 causes in 5 of 190 groups; 3 requirements not applicable``."""
    verdicts = Counter(each for _, each, _ in groups)
    others = sum(count for each, count in verdicts.items() if each.red)
    total = f"{plural(len(groups), 'case group')}"
    if causes:
        first = f"{plural(causes, 'cause')} in {others:,} of {total}"
    elif others:
        first = f"{others:,} of {total} without a pass"
    else:
        first = f"{verdicts[Verdict.PASS]:,} of {total} passed"
    parts = [first, *(f"{verdicts[each]:,} {each}" for each in (Verdict.WAIVED, Verdict.QUARANTINED) if verdicts[each])]
    if count := len(completeness.not_applicable):
        parts.append(f"{plural(count, 'requirement')} not applicable")
    return "; ".join(parts)


def _rows(
    results: Mapping[str, RequirementResult], evidence: Evidence, cases: Mapping[str, list[Case]]
) -> tuple[Row, ...]:
    device = f"{evidence.runs[0].device} {evidence.runs[0].arch}" if evidence.runs else NONE
    count = sum(len(result.groups) for result in results.values())
    shown = max(_IDS_LEAST, min(_IDS_SHOWN, _IDS_PAGE // max(1, count)))
    rows = []
    for result, form in _with_forms(results):
        known = evidence.statements.get(result.id)
        rows.append(
            Row(
                result=result,
                area=result.id.partition("-")[0],
                facets=facets_of(result.id, "", known, device),
                isa=remote_of(result.kernels, evidence.kernels),
                groups=_group_rows(result, cases, known, device, shown),
                form=form,
                api=known.api if known else "",
                covers=known.covers if known else (),
            )
        )
    return tuple(rows)


def _headline(
    verdict: Verdict, counts: Mapping[str, int], gaps: int, completeness: Completeness, evidence: Evidence
) -> str:
    total, unsupported = sum(counts.values()), counts["unsupported"]
    api = "" if evidence.api == EXTENDED else f" of the API {evidence.api}"
    lacking = f"{unsupported} {'is' if unsupported == 1 else 'are'} unsupported"
    if not total:
        return "Nothing was planned, so nothing is certified."
    if verdict is Verdict.UNSUPPORTED:
        run = " of this run" if completeness.missing else ""
        if total == unsupported:
            return f"The library supports none of the {plural(total, 'requirement')}{api}{run}."
        one = total - unsupported == 1
        subject = "The one requirement" if one else f"All {total - unsupported} requirements"
        return f"{subject}{api}{run} that the library supports passed; {lacking}."
    if verdict is Verdict.PASS:
        subject = ("The requirement" if total == 1 else f"All {total} requirements") + api
        if completeness.missing:
            return f"{subject} of this run passed."
        here = len(completeness.not_applicable)
        also = f" {here} {'is' if here == 1 else 'are'} not applicable here." if here else ""
        return f"{subject} passed, and everything that was planned ran.{also}"
    if verdict is Verdict.WAIVED:
        others = f"; {lacking}" if unsupported else ""
        run = " of this run" if completeness.missing else ""
        return f"{plural(total, 'requirement')}{api}{run} passed with {plural(counts['waived'], 'waiver')}{others}."
    parts = [f"{counts['pass']} of {plural(total, 'requirement')}{api} passed"]
    parts += [f"{counts['fail']} failed"] if counts["fail"] else []
    parts += [f"{counts['flaky']} {'is' if counts['flaky'] == 1 else 'are'} flaky"] if counts["flaky"] else []
    parts += [f"{counts['unknown']} could not be checked"] if counts["unknown"] else []
    parts += [f"{counts['not_run']} did not run"] if counts["not_run"] else []
    if held := counts["quarantined"]:
        parts.append(f"{held} {'is' if held == 1 else 'are'} quarantined")
    parts += [f"{counts['waived']} {'is' if counts['waived'] == 1 else 'are'} waived"] if counts["waived"] else []
    parts += [lacking] if unsupported else []
    if wrong := len(evidence.waiver_problems()):
        parts.append(f"{plural(wrong, 'waiver')} {'is' if wrong == 1 else 'are'} wrong")
    if declared := len(evidence.declaration):
        parts.append(f"{declared} declared {'capability is' if declared == 1 else 'capabilities are'} missing")
    if len(parts) == 1:
        parts.append(f"{plural(gaps, 'gap')} in the evidence")
    return ", ".join(parts) + "."


def _waivers(evidence: Evidence) -> tuple[str, ...]:
    """Return a line for each quarantined group that failed, each waived requirement and each wrong waiver."""
    groups = {name: verdict for result in evidence.requirements().values() for name, verdict in result.groups.items()}
    held = (
        f"{name} is quarantined: failed in {each.failed} of {each.runs} runs ({each.issue}, until {each.expires})"
        for name, each in evidence.quarantined().items()
        if groups.get(name) is Verdict.QUARANTINED
    )
    waived = (f"{name}: {each.reason} ({each.issue}, until {each.expires})" for name, each in evidence.waived().items())
    return (*held, *waived, *evidence.waiver_problems())


def _with_forms(results: Mapping[str, RequirementResult]) -> Iterator[tuple[RequirementResult, str]]:
    """Yield each requirement, directly followed by its further forms.

    A form whose requirement has no result is yielded like a requirement.
    """
    forms: dict[str, list[RequirementResult]] = defaultdict(list)
    for result in results.values():
        base = results.get(result.form_of) if result.form_of and result.form else None
        if base is not None and not base.form_of:
            forms[base.id].append(result)
    below = {form.id for listed in forms.values() for form in listed}
    for result in results.values():
        if result.id not in below:
            yield result, ""
            for form in forms[result.id]:
                yield form, f"As {form.form}"


def _of_forms(results: Mapping[str, RequirementResult]) -> str:
    """Return a sentence that counts the results of further forms, or "" if there are none."""
    count = sum(result.form_of is not None for result in results.values())
    if not count:
        return ""
    verb = "is a further form of a requirement" if count == 1 else "are further forms of requirements"
    return f"Of these {len(results)}, {count} {verb}; each counts by itself."


def _of_tables(evidence: Evidence) -> str:
    """Return a sentence that names the requirements' tables, or "" if all are in the suite's own table."""
    tables = dict.fromkeys(each.table for each in evidence.statements.values() if each.table)
    if not tables:
        return ""
    named = ", ".join(tables)
    if any(each.table is None for each in evidence.statements.values()):
        return f"Requirements of {named} are among them."
    return f"These are requirements of {named}, not of the suite: no requirement of the suite is certified."


def _group_rows(
    result: RequirementResult, cases: Mapping[str, list[Case]], known: Requirement | None, device: str, shown: int
) -> tuple[GroupRow, ...]:
    failing = {case.group: case.id for case in result.failing}
    rows = []
    for name, verdict in result.groups.items():
        own = cases.get(name, [])
        first = [failing[name]] if name in failing else []
        ids = tuple(dict.fromkeys([*first, *(case.id for case in own)]))
        seconds = sum(case.timing.get("seconds", 0.0) for case in own)
        facets = facets_of(result.id, name, known, device)
        rows.append(GroupRow(name, anchor_of(name), facets, verdict, len(own), seconds, ids[:shown], len(ids[shown:])))
    return tuple(rows)
