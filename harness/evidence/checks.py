"""Consistency checks among the records of one file: their order, their ids, their counts.

The schema checks each record by itself; this module checks it against the records before it.
"""

from __future__ import annotations

import fnmatch
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from harness.evidence.evidence import Evidence
from harness.evidence.records import MISSING, Case, End, Group, Plan, PlannedGroup, Record, Run, Telemetry, case_id
from harness.evidence.verdict import Verdict

MAX_NAME = 1000
"""Characters of a group's name and of a node id: the suite's have about a hundred."""


_DERIVED = (Verdict.QUARANTINED, Verdict.WAIVED, Verdict.UNSUPPORTED)
"""Verdicts that a reader derives, and that no record of a case or a group has."""


class Checks:
    """Compares each record with those before it. Call ``problems`` before the record is added to ``evidence``."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._cases: dict[str, dict[str, Verdict]] = defaultdict(dict)
        self._ids: set[str] = set()
        self._planned: set[str] = set()
        self._plan_before: Plan | None = None
        self._any = False

    def problems(self, record: Record) -> Iterator[str]:
        """Yield one clause for each contradiction between ``record`` and the records so far."""
        if self._evidence.ends:
            yield "comes after the end of the run"
        if isinstance(record, Run) == self._any:
            yield f"is a {record.record} record, " + (
                "which must be the first" if self._any else "but the first record must be the run's"
            )
        self._any = True
        if isinstance(record, Plan):
            yield from self._plan(record)
        elif isinstance(record, Case):
            yield from self._case(record)
        elif isinstance(record, Group):
            yield from self._group(record)
        elif isinstance(record, Telemetry):
            if unknown := sorted(set(record.cases) - self._ids):
                yield f"measures a case without an earlier record: {unknown[0]}"
        elif isinstance(record, End):
            yield from self._end(record)

    def _plan(self, plan: Plan) -> Iterator[str]:
        further = self._is_further_shard(plan)
        known = {requirement.id for requirement in plan.requirements}
        known = known or {group.requirement for group in plan.groups if not further}
        known |= set(self._evidence.statements)
        groups = {group.group for group in plan.groups} | set(self._evidence.plan)
        self._planned |= {group.requirement for group in plan.groups}
        for group in plan.groups:
            if self._evidence.plan.get(group.group, group) != group:
                yield f"plans {group.group} differently than before"
            if group.requirement not in known:
                yield f"plans {group.group}, whose requirement is not in its table"
            if problem := _naming(group):
                yield problem
        for requirement in plan.requirements:
            if self._evidence.statements.get(requirement.id, requirement) != requirement:
                yield f"states {requirement.id} differently than before"
        for identity in {**self._evidence.not_applicable, **plan.not_applicable}:
            if identity in self._planned:
                yield f"plans groups of {identity}, and a plan calls it not applicable"
            if identity in plan.left_out or identity in self._evidence.left_out:
                yield f"calls {identity} both not applicable and left out"
            if identity in plan.unsupported or identity in self._evidence.unsupported:
                yield f"calls {identity} both not applicable and unsupported"
        named = [name.partition("[")[0] for name in (*plan.left_out, *plan.unsupported)]
        for identity in (*plan.not_applicable, *named):
            if identity not in known:
                yield f"gives a reason for {identity}, which is not in its table"
        for identity in plan.left_out:
            if identity in groups or identity in self._planned:
                yield f"leaves {identity} out, which is planned"
        for identity in {**self._evidence.unsupported, **plan.unsupported}:
            if identity in groups or identity in self._planned:
                yield f"calls {identity} unsupported, which is planned"
            if identity in plan.left_out or identity in self._evidence.left_out:
                yield f"calls {identity} both unsupported and left out"
        missing = [name for name, state in plan.capabilities.items() if state.startswith(MISSING)]
        needs = {requirement.id: requirement.needs for requirement in plan.requirements}
        for identity in plan.unsupported:
            patterns = [re.sub(r"{\w+}", "*", need) for need in needs.get(identity.partition("[")[0], ())]
            if not any(fnmatch.fnmatchcase(name, pattern) for name in missing for pattern in patterns):
                yield f"calls {identity} unsupported, and lists no capability that it needs as missing"
        if further:
            yield from self._further_shard(plan)
        elif self._plan_before is not None and _content(plan) != _content(self._plan_before):
            yield "differs from the plan before it, but all processes of a run have the same plan"
        self._plan_before = plan

    def _is_further_shard(self, plan: Plan) -> bool:
        """Return whether this is the plan of another shard than that of the plan before it."""
        before = None if self._plan_before is None else self._plan_before.shard
        return before is not None and plan.shard is not None and dict(before) != dict(plan.shard)

    def _further_shard(self, plan: Plan) -> Iterator[str]:
        """Yield what is wrong with a plan after the first one of merged evidence: it has groups of its own only."""
        assert plan.shard is not None  # sanity check: the caller has checked it
        index, of, digest = (plan.shard[name] for name in ("index", "of", "plan"))
        if index in self._evidence.shards:
            yield f"is of shard {index}, which has a plan already"
        if index > of or any((of, digest) != (each["of"], each["plan"]) for each in self._evidence.shards.values()):
            yield f"is of shard {index} of another division into shards than the plan before it"
        if again := [group.group for group in plan.groups if group.group in self._evidence.plan]:
            yield f"plans {again[0]}, which another shard has run"
        if any(_shared(plan)) or (plan.api, plan.declaration) != (self._evidence.api, self._evidence.declaration):
            yield "states more than the groups of its shard, and the first plan has what all shards share"

    def _case(self, case: Case) -> Iterator[str]:
        if case.verdict in (*_DERIVED, Verdict.FLAKY):
            yield f"states that case {case.id} ran and is {case.verdict}"
        if case.id in self._cases[case.group]:
            yield f"records case {case.id} of {case.group} again"
        self._cases[case.group][case.id] = case.verdict
        self._ids.add(case.id)
        if case_id(case.requirement, case.group, case.case) != case.id:
            yield f"names its case {case.id}, which is not the id of its content"
        planned = self._evidence.plan.get(case.group)
        if planned is None:
            yield f"is a case of {case.group}, which no earlier plan names"
        elif (planned.requirement, planned.nodeid) != (case.requirement, case.nodeid):
            yield f"is a case of {case.group} with another requirement or node id than planned"
        if case.group in self._evidence.groups:
            yield f"is a case of {case.group}, which has ended already"
        wrong = (case.message, case.differs, case.fault, case.fault_source, case.traceback, case.stacks)
        if case.verdict is Verdict.PASS and any(wrong):
            yield f"states that case {case.id} passed, and also a failure of it"

    def _group(self, group: Group) -> Iterator[str]:
        if group.verdict in _DERIVED:
            yield f"states that {group.group} ran and is {group.verdict}"
        planned = self._evidence.plan.get(group.group)
        if planned is not None and planned.requirement != group.requirement:
            yield f"ends {group.group} with another requirement than planned"
        if group.group in self._evidence.groups:
            yield f"ends {group.group}, which ended twice"
        sometimes = group.repeats is not None and group.repeats["failed"] < group.repeats["runs"]
        if (group.verdict is Verdict.FLAKY) != sometimes:
            rate = "{failed} of {runs}".format(**group.repeats) if group.repeats else "none"
            yield f"states that {group.group} is {group.verdict}, and its case failed in {rate} of its executions"
        if group.verdict is Verdict.FLAKY and group.failing_case is None:
            yield f"states that {group.group} is flaky, and names no failing case"
        if group.failing_case is not None:
            verdict = self._cases[group.group].get(group.failing_case)
            if verdict is None:
                yield f"names failing case {group.failing_case}, of which {group.group} has no record"
            elif verdict is Verdict.PASS:
                yield f"names failing case {group.failing_case}, which passed"
            if group.verdict is Verdict.PASS:
                yield f"states that {group.group} passed, and names a failing case"

    def _end(self, end: End) -> Iterator[str]:
        if self._evidence.ends:
            return  # only the first is compared, since a file may hold many of them
        counted = Counter(group.verdict.value for groups in self._evidence.groups.values() for group in groups)
        for verdict in Verdict:
            stated = end.counts.get(verdict.value, counted[verdict.value])
            if stated != counted[verdict.value]:
                yield f"counts {stated} groups with verdict {verdict}, {counted[verdict.value]} are recorded"


def _naming(group: PlannedGroup) -> str | None:
    """Return a clause unless the group is named REQUIREMENT[parameters] and its node id has only these parameters."""
    longest = max(len(group.group), len(group.nodeid))
    if longest > MAX_NAME:
        return f"plans a group with a name of {longest:,} characters, {MAX_NAME:,} are allowed: {group.group[:60]}..."
    inside = group.group.removeprefix(f"{group.requirement}[").removesuffix("]")
    if not inside or group.group != f"{group.requirement}[{inside}]":
        return f"plans {group.group}, which is not named after its requirement {group.requirement}"
    parameters = group.nodeid.partition("[")[2].removesuffix("]").split("-")
    if any(part not in inside for part in parameters):
        return f"plans {group.group}, whose node id has other parameters: {group.nodeid}"
    return None


def _content(plan: Plan) -> tuple[object, ...]:
    """Return the content of a plan for comparison, without the order of its entries."""
    requirements, *reasons = _shared(plan)
    shard = None if plan.shard is None else dict(plan.shard)
    return set(plan.groups), set(requirements), plan.api, plan.declaration, shard, *map(dict, reasons)


def _shared(plan: Plan) -> tuple[Any, ...]:
    """Return what the plans of all shards of a run share, and only the first plan of merged evidence has."""
    return plan.requirements, plan.not_applicable, plan.left_out, plan.unsupported, plan.capabilities
