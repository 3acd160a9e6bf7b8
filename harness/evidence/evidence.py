"""What an evidence file says, requirement by requirement."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from harness.evidence.records import Case, End, Group, Hardware, Kernel, PlannedGroup, Requirement, Run, Telemetry
from harness.evidence.verdict import Verdict, merge

_GROUPS_NAMED = 3
"""So many groups that did not run are named one by one; more are counted."""


@dataclass(frozen=True)
class RequirementResult:
    """The result of one requirement.

    ``verdict`` is the worst of its groups, and never a pass when there are ``gaps`` (sentences that say what is
    missing or does not add up). ``groups`` maps every planned group to its verdict; ``failing`` holds the reduced
    failing case of each failed group.
    """

    id: str
    verdict: Verdict
    statement: str
    source: str
    cases: int
    seconds: float
    kernels: tuple[str, ...]
    groups: dict[str, Verdict]
    gaps: tuple[str, ...]
    failing: tuple[Case, ...]


@dataclass
class Evidence:
    """The content of one evidence file. ``plan`` and ``groups`` are keyed by group, ``kernels`` by hash.

    ``problems`` says what was damaged or contradictory. ``groups`` holds a list because a group that ended twice is a
    problem to be shown, not to be resolved by taking the better one.
    """

    runs: list[Run] = field(default_factory=list)
    plan: dict[str, PlannedGroup] = field(default_factory=dict)
    statements: dict[str, Requirement] = field(default_factory=dict)
    kernels: dict[str, Kernel] = field(default_factory=dict)
    cases: list[Case] = field(default_factory=list)
    hardware: list[Hardware] = field(default_factory=list)
    telemetry: list[Telemetry] = field(default_factory=list)
    groups: dict[str, list[Group]] = field(default_factory=dict)
    ends: list[End] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    not_applicable: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether the run planned every requirement of the suite that this device can run; otherwise it is partial."""
        return not self.missing()

    def missing(self) -> tuple[str, ...]:
        """What makes the run partial, one sentence each; empty for a complete run. Changes no verdict."""
        if not self.statements:
            return ("no plan with the suite's requirements was written",)
        planned = {group.requirement for group in self.plan.values()}
        named = [f"{name}: {reason}" for name, reason in self.left_out.items()]
        unexplained = sorted(set(self.statements) - planned - set(self.not_applicable) - set(self.left_out))
        return (*named, *(f"{name}: not planned" for name in unexplained))

    def requirements(self) -> dict[str, RequirementResult]:
        """One result per requirement that was planned or that left a record, in order of id."""
        groups: dict[str, set[str]] = defaultdict(set)
        cases: dict[str, list[Case]] = defaultdict(list)
        for planned in self.plan.values():
            groups[planned.requirement].add(planned.group)
        for group, records in self.groups.items():
            groups[records[0].requirement].add(group)
        for case in self.cases:
            cases[case.requirement].append(case)
        names = sorted({*groups, *cases, *(r.requirement for records in self.groups.values() for r in records)})
        return {name: self._requirement(name, groups[name], cases[name]) for name in names}

    def verdict(self) -> Verdict:
        """Pass only if something was planned, all of it ran and passed, and the file is whole up to its end."""
        results = [result.verdict for result in self.requirements().values()]
        return merge([*results, Verdict.UNKNOWN] if self.gaps() else results)

    def gaps(self) -> tuple[str, ...]:
        """What keeps the run as a whole from being complete, beside the gaps of single requirements."""
        gaps = list(self.problems)
        if not self.runs:
            gaps.append("the run record is missing")
        if len(self.runs) > 1:
            gaps.append(f"{len(self.runs)} runs wrote into one file")
        if not self.plan:
            gaps.append("nothing was planned")
        if not self.ends:
            gaps.append("the run did not end: it was stopped, or it crashed")
        unknown = {hash_ for case in self.cases for hash_ in case.kernels} - set(self.kernels)
        if unknown:
            gaps.append(f"{len(unknown)} kernels ran that have no kernel record")
        some_did_not_pass = any(r.verdict is not Verdict.PASS for g in self.groups.values() for r in g)
        for end in self.ends:
            if end.exit_status != 0 and not (end.exit_status == 1 and some_did_not_pass):
                gaps.append(f"pytest ended with status {end.exit_status}")
        return tuple(gaps)

    def counts(self) -> dict[str, int]:
        """Requirements per verdict, every verdict named."""
        found = Counter(result.verdict for result in self.requirements().values())
        return {verdict.value: found[verdict] for verdict in Verdict}

    def case(self, identity: str) -> Case | None:
        """The last record of a case id, or of an unambiguous beginning of one; None if none or several match."""
        found = {case.id: case for case in self.cases if case.id.startswith(identity)}
        return next(iter(found.values())) if len(found) == 1 else None

    def telemetry_of(self, identity: str) -> Telemetry | None:
        """What was measured around the case with this id; None where no GPU was watched, or it was stopped before."""
        return next((record for record in reversed(self.telemetry) if identity in record.cases), None)

    def _requirement(self, name: str, groups: set[str], cases: list[Case]) -> RequirementResult:
        """The result of ``name``: of ``groups``, which were planned or ended, and of those that ``cases`` name."""
        by_group: dict[str, list[Case]] = {}
        for case in cases:
            by_group.setdefault(case.group, []).append(case)
        verdicts: dict[str, Verdict] = {}
        gaps: list[str] = []
        for group in sorted(groups | set(by_group)):
            verdict, gap = self._group(group, by_group.get(group, []))
            verdicts[group] = verdict
            gaps.extend(gap)
        unrun = [group for group in verdicts if group not in self.groups]
        if len(unrun) > _GROUPS_NAMED:
            gaps.append(f"{len(unrun)} of {len(verdicts)} groups did not run or did not end, the first is {unrun[0]}")
        else:
            gaps.extend(f"{group} did not {'end' if group in by_group else 'run'}" for group in unrun)
        statement = self.statements.get(name)
        return RequirementResult(
            id=name,
            verdict=merge([*verdicts.values(), Verdict.UNKNOWN] if gaps and _all_pass(verdicts) else verdicts.values()),
            statement=statement.statement if statement else "",
            source=statement.source if statement else "",
            cases=len(cases),
            seconds=sum(case.timing.get("seconds", 0.0) for case in cases),
            kernels=tuple(dict.fromkeys(hash_ for case in cases for hash_ in case.kernels)),
            groups=verdicts,
            gaps=tuple(gaps),
            failing=tuple(self._failing(group, by_group.get(group, [])) for group in self._failed(verdicts, by_group)),
        )

    def _group(self, group: str, cases: list[Case]) -> tuple[Verdict, list[str]]:
        """A group's recorded verdict, and what in the evidence does not agree with it."""
        records = self.groups.get(group, [])
        if not records:
            return Verdict.NOT_RUN, []
        verdict = merge(record.verdict for record in records)
        gaps = []
        if group not in self.plan:
            gaps.append(f"{group} ran without being planned")
        if sum(record.cases for record in records) != len(cases):
            gaps.append(f"{group} counted {sum(record.cases for record in records)} cases, {len(cases)} are recorded")
        if verdict is Verdict.PASS and not cases:
            gaps.append(f"{group} passed without a case")
        if verdict is Verdict.PASS and any(case.verdict is not Verdict.PASS for case in cases):
            gaps.append(f"{group} passed, but one of its cases did not")
        if verdict is not Verdict.PASS and not any(case.verdict is not Verdict.PASS for case in cases):
            gaps.append(f"{group}: {records[-1].message or 'no case record says why'}")
        return verdict, gaps

    @staticmethod
    def _failed(verdicts: dict[str, Verdict], cases: dict[str, list[Case]]) -> list[str]:
        return [group for group in verdicts if any(case.verdict is not Verdict.PASS for case in cases.get(group, []))]

    def _failing(self, group: str, cases: list[Case]) -> Case:
        """The case that the group names, else the last that did not pass (Hypothesis ends on the reduced one)."""
        named = {record.failing_case for record in self.groups.get(group, [])}
        not_passed = [case for case in cases if case.verdict is not Verdict.PASS]
        return next((case for case in reversed(not_passed) if case.id in named), not_passed[-1])


def _all_pass(verdicts: dict[str, Verdict]) -> bool:
    return all(verdict is Verdict.PASS for verdict in verdicts.values())
