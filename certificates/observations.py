"""Verdicts derived again from what the evidence records: cases from their observations, groups from their cases.

``harness.evidence`` derives the verdicts of requirements and of the run from these, and reports passes that a record
contradicts. This module adds the other direction, and compares the plan with the suite's table of requirements.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from harness.evidence import EXTENDED, Evidence, Requirement, Verdict

_NAMED = 3
_RANKS = re.compile(r"[\[,]ranks=(\d{1,6})[,\]]")
_PARAMETER = re.compile(r"[\[,](\w+)=((?:[^,\]]|,(?!\w+=))*)")
"""A parameter in the name of a group, such as dtype=fp16. Its value may have commas."""
_CLOCKS = timedelta(days=1)
"""Clocks of two machines may differ by this much."""


def problems(evidence: Evidence) -> Iterator[str]:
    """Yield a sentence for each verdict of a case or a group that its observations do not give, and for each case,
    kernel or group that does not belong to the recorded run."""
    yield from _cases(evidence)
    yield from _parameters(evidence)
    yield from _groups(evidence)
    launched = {hash_ for case in evidence.cases for hash_ in (*case.kernels, *case.launches)}
    for hash_, kernel in evidence.kernels.items():
        if hash_ not in launched:
            yield f"kernel {kernel.name} ({hash_[:16]}) has a record, and no case launched it"
    sizes = {int(match[1]) for name in evidence.plan if (match := _RANKS.search(name))}
    archs = {kernel.arch for kernel in evidence.kernels.values()}
    for run in evidence.runs:
        if other := sorted(sizes - set(run.ranks)):
            ranks = ", ".join(map(str, run.ranks))
            yield f"the plan has groups of {other[0]} ranks, and the run is recorded with {ranks}"
        if foreign := sorted(archs - {run.arch}):
            yield f"the run is recorded for {run.arch}, and has kernels for {foreign[0]}"


def _cases(evidence: Evidence) -> Iterator[str]:
    for case in evidence.cases:
        if case.differs is not None and case.verdict is not Verdict.FAIL:
            yield f"case {case.id} has a wrong element, and its verdict is {case.verdict}"
        if case.kernels and case.launches and set(case.kernels) != set(case.launches):
            yield f"case {case.id} lists other kernels than it launched"
        for hash_ in case.launches:
            if hash_ not in evidence.kernels:
                yield f"case {case.id} launched kernel {hash_[:16]}, which has no record"


def _parameters(evidence: Evidence) -> Iterator[str]:
    """Yield the cases of the suite that are not cases of their group: a field has another value than the parameter of
    the same name."""
    named: dict[str, dict[str, str]] = {}
    for case in evidence.cases:
        stated = evidence.statements.get(case.requirement)
        if stated is None or stated.table is not None:
            continue
        if case.group not in named:
            named[case.group] = dict(_PARAMETER.findall(case.group))
        values = {**case.case.get("fields", {}), **case.case.get("data", {})}
        for name, wanted in named[case.group].items():
            if name in values and str(values[name]) != wanted:
                yield f"case {case.id} has {name}={values[name]!s:.40}, and is recorded as one of {case.group:.100}"


def _groups(evidence: Evidence) -> Iterator[str]:
    verdicts: dict[str, set[Verdict]] = defaultdict(set)
    for case in evidence.cases:
        verdicts[case.group].add(case.verdict)
    for name, records in evidence.groups.items():
        stated = {record.verdict for record in records}
        if stated & {Verdict.FAIL, Verdict.FLAKY} and Verdict.FAIL not in verdicts[name]:
            yield f"{name} failed, and none of its cases did"
        if Verdict.PASS in stated and verdicts[name] != {Verdict.PASS}:
            yield f"{name} passed, and its cases did not all pass"


def differences(evidence: Evidence, table: Mapping[str, Requirement]) -> Iterator[str]:
    """Yield a sentence for each difference between the requirements of the plan and the suite's ``table``."""
    expected = {
        name: requirement
        for name, requirement in table.items()
        if evidence.api == EXTENDED or requirement.api == evidence.api
    }
    planned = {name: each for name, each in evidence.statements.items() if each.table is None}
    if lacking := sorted(expected.keys() - planned.keys()):
        yield f"the plan lacks requirements of the certificate's table: {_listed(lacking)}"
    if foreign := sorted(planned.keys() - expected.keys()):
        yield f"the plan has requirements that the certificate's table does not have: {_listed(foreign)}"
    if changed := sorted(name for name in expected.keys() & planned.keys() if _differ(planned[name], expected[name])):
        yield f"the plan states requirements differently than the certificate's table: {_listed(changed)}"


def dates(manifest: Mapping[str, Any], now: datetime) -> Iterator[str]:
    """Yield a sentence for each date of a manifest that is not one, or is out of order: started, finished, created."""
    started, finished, created = texts = [str(manifest.get(name)) for name in ("started", "finished", "created")]
    try:
        times = [_time(text) for text in texts]
    except ValueError:
        yield f"one of these is not a date in ISO 8601: {', '.join(texts):.200}"
        return
    if times[0] > times[1]:
        yield f"the run started at {started}, after it finished at {finished}"
    if times[1] > times[2] + timedelta(seconds=1):
        yield f"the certificate was created at {created}, before the run finished at {finished}"
    if times[2] > now + _CLOCKS:
        yield f"the certificate was created at {created}, which is in the future"


def _time(text: str) -> datetime:
    value = datetime.fromisoformat(text.replace("Z", "+00:00"))  # Python 3.10 does not read the Z
    return value if value.tzinfo else value.replace(tzinfo=timezone.utc)


def _differ(planned: Requirement, expected: Requirement) -> bool:
    return replace(planned, table=None) != replace(expected, table=None)


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
