"""Whether the records of one file agree with one another: their order, their ids, their counts.

The schema says what one record may hold; this says what it may hold after those before it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from harness.evidence.evidence import Evidence
from harness.evidence.records import Case, End, Group, Plan, PlannedGroup, Record, Run, Telemetry, case_id
from harness.evidence.verdict import Verdict


class Checks:
    """Compares each record with those before it. Call ``problems`` before the record is added to ``evidence``."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._cases: dict[str, dict[str, Verdict]] = defaultdict(dict)
        self._ids: set[str] = set()
        self._any = False

    def problems(self, record: Record) -> Iterator[str]:
        """One clause for everything about ``record`` that contradicts the records so far."""
        if self._evidence.ends:
            yield "stands after the end of the run"
        if isinstance(record, Run) == self._any:
            yield f"is a {record.record} record, and " + ("the run's has to be the first" if self._any else "no run's")
        self._any = True
        if isinstance(record, Plan):
            yield from self._plan(record)
        elif isinstance(record, Case):
            yield from self._case(record)
        elif isinstance(record, Group):
            yield from self._group(record)
        elif isinstance(record, Telemetry):
            if unknown := sorted(set(record.cases) - self._ids):
                yield f"measures a case that has no record before it: {unknown[0]}"
        elif isinstance(record, End):
            yield from self._end(record)

    def _plan(self, plan: Plan) -> Iterator[str]:
        known = {requirement.id for requirement in plan.requirements} or {group.requirement for group in plan.groups}
        for group in plan.groups:
            if self._evidence.plan.get(group.group, group) != group:
                yield f"plans {group.group} otherwise than before"
            if group.requirement not in known:
                yield f"plans {group.group}, whose requirement its table does not hold"
            if group.requirement in plan.not_applicable:
                yield f"plans {group.group}, whose requirement it calls not applicable"
            if problem := _naming(group):
                yield problem
        for requirement in plan.requirements:
            if self._evidence.statements.get(requirement.id, requirement) != requirement:
                yield f"states {requirement.id} otherwise than before"

    def _case(self, case: Case) -> Iterator[str]:
        self._cases[case.group][case.id] = case.verdict
        self._ids.add(case.id)
        if case_id(case.requirement, case.group, case.case) != case.id:
            yield f"names its case {case.id}, which is not the id of what it holds"
        planned = self._evidence.plan.get(case.group)
        if planned is None:
            yield f"is a case of {case.group}, which no plan before it names"
        elif (planned.requirement, planned.nodeid) != (case.requirement, case.nodeid):
            yield f"is a case of {case.group} with another requirement or node id than planned"
        if case.group in self._evidence.groups:
            yield f"is a case of {case.group}, which has ended before"
        if case.verdict is Verdict.PASS and (case.differs or case.fault or case.stacks):
            yield f"says that case {case.id} passed, and what was wrong with it"

    def _group(self, group: Group) -> Iterator[str]:
        planned = self._evidence.plan.get(group.group)
        if planned is not None and planned.requirement != group.requirement:
            yield f"ends {group.group} with another requirement than planned"
        if group.group in self._evidence.groups:
            yield f"ends {group.group}, which ended twice"
        if group.failing_case is not None:
            verdict = self._cases[group.group].get(group.failing_case)
            if verdict is None:
                yield f"names failing case {group.failing_case}, which {group.group} has no record of"
            elif verdict is Verdict.PASS:
                yield f"names failing case {group.failing_case}, which passed"
            if group.verdict is Verdict.PASS:
                yield f"says that {group.group} passed, and names a failing case"

    def _end(self, end: End) -> Iterator[str]:
        found = Counter(group.verdict.value for groups in self._evidence.groups.values() for group in groups)
        for verdict in Verdict:
            stated = end.counts.get(verdict.value, found[verdict.value])
            if stated != found[verdict.value]:
                yield f"counts {stated} groups with verdict {verdict}, {found[verdict.value]} are recorded"


def _naming(group: PlannedGroup) -> str | None:
    """A group is named REQUIREMENT[parameters], and its node id has no other parameters."""
    inside = re.fullmatch(re.escape(group.requirement) + r"\[(.+)\]", group.group, re.DOTALL)
    if inside is None:
        return f"plans {group.group}, which is not named after its requirement {group.requirement}"
    parameters = group.nodeid.partition("[")[2].removesuffix("]").split("-")
    if any(part not in inside[1] for part in parameters):
        return f"plans {group.group}, whose node id has other parameters: {group.nodeid}"
    return None
