"""Content of an evidence file, and the result of each requirement in it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from harness.evidence import quarantine
from harness.evidence.records import (
    EXTENDED,
    Case,
    End,
    Group,
    Hardware,
    Kernel,
    PlannedGroup,
    Requirement,
    Run,
    Telemetry,
)
from harness.evidence.verdict import Verdict, merge
from harness.evidence.waivers import Waiver, of_run

_GROUPS_NAMED = 3
"""Up to this many groups that did not run are named one by one; more are counted."""


_WAIVABLE = frozenset((Verdict.FAIL, Verdict.QUARANTINED, Verdict.PASS, Verdict.UNSUPPORTED))
"""The verdicts of the groups of a requirement that can be waived."""


@dataclass(frozen=True)
class RequirementResult:
    """The result of one requirement.

    ``verdict`` is the worst of its groups, and never a pass if there are ``gaps`` (sentences that state what is missing
    or contradictory). ``groups`` maps every planned group to its verdict; ``failing`` holds the reduced failing case of
    each failed group. ``form_of`` and ``form`` are those of its ``Requirement``.
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
    form_of: str | None = None
    form: str | None = None


@dataclass
class Evidence:
    """The content of one evidence file. ``plan`` and ``groups`` are keyed by group, ``kernels`` by hash.

    ``shards`` has the ``Plan.shard`` of each shard whose plan the file has, by index, and ``nodes`` the name of the
    machine of each group whose shard has one. ``problems`` lists what is damaged or contradictory. ``groups`` holds
    lists because a group that ended twice is reported as a problem, not resolved by taking the better result.
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
    unsupported: dict[str, str] = field(default_factory=dict)
    api: str = EXTENDED
    capabilities: dict[str, str] = field(default_factory=dict)
    declaration: tuple[str, ...] = ()
    shards: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """True unless the file has some of the shards of a run and lacks the plans of others."""
        return all(len(self.shards) == shard["of"] for shard in self.shards.values())

    @property
    def complete(self) -> bool:
        """True if the run planned every requirement of the suite that this device can run; otherwise it is partial."""
        return not self.missing()

    def missing(self) -> tuple[str, ...]:
        """Return the reasons for which the run is partial, one sentence each; empty for a complete run. They change no
        verdict."""
        if not self.statements:
            return ("no plan with the suite's requirements was written",)
        planned = {group.requirement for group in self.plan.values()}
        named = [f"{name}: {reason}" for name, reason in self.left_out.items()]
        repeated = sorted({case.group for case in self.cases if case.phase == "replay"})
        named += [f"{name}: only one case was repeated" for name in repeated]
        unsupported = {name.partition("[")[0] for name in self.unsupported}
        unexplained = sorted(
            set(self.statements) - planned - set(self.not_applicable) - set(self.left_out) - unsupported
        )
        if not self.whole:
            of = next(iter(self.shards.values()))["of"]
            listed = ", ".join(map(str, sorted(self.shards)[:_GROUPS_NAMED]))
            more = "" if len(self.shards) <= _GROUPS_NAMED else " and others"
            return (f"all groups but those of shard {listed}{more} of {of}: iris-harness merge joins shards", *named)
        return (*named, *(f"{name}: not planned" for name in unexplained))

    def requirements(self) -> dict[str, RequirementResult]:
        """Return one result per requirement that was planned, has a record, or is unsupported, in order of id."""
        groups: dict[str, set[str]] = defaultdict(set)
        cases: dict[str, list[Case]] = defaultdict(list)
        for planned in self.plan.values():
            groups[planned.requirement].add(planned.group)
        for group, records in self.groups.items():
            groups[records[0].requirement].add(group)
        for name in self.unsupported:
            groups[name.partition("[")[0]].update([name] if "[" in name else [])
        for case in self.cases:
            cases[case.requirement].append(case)
        names = sorted({*groups, *cases, *(r.requirement for records in self.groups.values() for r in records)})
        waivers = self.waivers()
        results = (self._requirement(name, groups[name], cases[name]) for name in names)
        return {result.id: self._with_waiver(result, waivers.get(result.id)) for result in results}

    def _with_waiver(self, result: RequirementResult, waiver: Waiver | None) -> RequirementResult:
        """Return the result of a requirement that a waiver may name.

        It waives failures only: no group that could not be checked, and no contradiction in the evidence.
        """
        failed = result.verdict is Verdict.FAIL and _WAIVABLE.issuperset(result.groups.values()) and not result.gaps
        if not failed or waiver is None or waiver.expired(self.runs[0]) or waiver.mismatch(self.runs[0]):
            return result
        return replace(result, verdict=Verdict.WAIVED)

    def verdict(self) -> Verdict:
        """Return the verdict of the run: pass only if something was planned, all of it ran and passed, nothing is
        unsupported or waived, and the file is complete. A capability that the library declares and does not have is a
        failure, and so is a wrong waiver."""
        results = [result.verdict for result in self.requirements().values()]
        results += [Verdict.FAIL] if self.declaration or self.waiver_problems() else []
        return merge([*results, Verdict.UNKNOWN] if self.gaps() else results)

    def gaps(self) -> tuple[str, ...]:
        """Return the gaps of the run as a whole, one sentence each; those of single requirements are separate."""
        gaps = list(self.problems)
        if not self.runs:
            gaps.append("the run record is missing")
        if len(self.runs) > 1:
            gaps.append(f"{len(self.runs)} runs wrote to one file")
        if not self.plan and not self.unsupported:
            gaps.append("nothing was planned")
        if not self.ends:
            gaps.append("the run did not end: it was stopped, or it crashed")
        unknown = {hash_ for case in self.cases for hash_ in case.kernels} - set(self.kernels)
        if unknown:
            gaps.append(f"{len(unknown)} kernels that ran have no kernel record")
        some_did_not_pass = any(r.verdict is not Verdict.PASS for g in self.groups.values() for r in g)
        for end in self.ends:
            if end.exit_status != 0 and not (
                end.exit_status == 1 and (some_did_not_pass or self.declaration or self.waiver_problems())
            ):
                gaps.append(f"pytest ended with status {end.exit_status}")
        return tuple(gaps)

    def quarantined(self) -> dict[str, quarantine.Quarantined]:
        """Return the quarantine that the run recorded, by group, without what has expired."""
        return quarantine.of_run(self.runs[0]) if self.runs else {}

    def waivers(self) -> dict[str, Waiver]:
        """Return the waivers that the run recorded, by requirement."""
        return {waiver.requirement: waiver for waiver in of_run(self.runs[0])} if self.runs else {}

    def waived(self) -> dict[str, Waiver]:
        """Return the waivers of the requirements that are waived, by requirement."""
        waivers = self.waivers()
        verdicts = {name: result.verdict for name, result in self.requirements().items()} if waivers else {}
        return {name: each for name, each in waivers.items() if verdicts.get(name) is Verdict.WAIVED}

    def waiver_problems(self) -> tuple[str, ...]:
        """Return a sentence for each waiver that expired, matches nothing, or is not needed: the run is red for it."""
        waivers = self.waivers()
        results = self.requirements() if waivers else {}
        problems = []
        for name, waiver in waivers.items():
            if waiver.expired(self.runs[0]):
                problems.append(f"the waiver of {name} expired on {waiver.expires}: {waiver.issue}")
            elif mismatch := waiver.mismatch(self.runs[0]):
                problems.append(f"the waiver of {name} matches nothing: {mismatch}")
            elif not self.whole:
                continue  # another shard may have the groups that it is for
            elif name not in results:
                why = "is not in the plan" if name in self.statements else "is not a requirement of the run"
                problems.append(f"the waiver of {name} matches nothing: {name} {why}")
            elif results[name].verdict is Verdict.PASS:
                problems.append(f"the waiver of {name} is not needed: the requirement passed; remove it")
        return tuple(problems)

    def without_waivers(self) -> Evidence:
        """Return the same evidence with all waivers lifted."""
        return replace(self, runs=[replace(run, waivers=None) for run in self.runs])

    def counts(self) -> dict[str, int]:
        """Return the number of requirements per verdict, for every verdict."""
        verdicts = Counter(result.verdict for result in self.requirements().values())
        return {verdict.value: verdicts[verdict] for verdict in Verdict}

    def case(self, identity: str) -> Case | None:
        """Return the last record of a case id, or of an unambiguous prefix of one; None if none or several match."""
        matches = {case.id: case for case in self.cases if case.id.startswith(identity)}
        return next(iter(matches.values())) if len(matches) == 1 else None

    def telemetry_of(self, identity: str) -> Telemetry | None:
        """Return the telemetry around the case with this id; None if no GPU was sampled, or sampling had ended
        before."""
        return next((record for record in reversed(self.telemetry) if identity in record.cases), None)

    def _requirement(self, name: str, groups: set[str], cases: list[Case]) -> RequirementResult:
        """Return the result of ``name`` from ``groups``, which were planned or ended, and the groups of ``cases``."""
        by_group: dict[str, list[Case]] = {}
        for case in cases:
            by_group.setdefault(case.group, []).append(case)
        verdicts: dict[str, Verdict] = {}
        gaps: list[str] = []
        quarantined = self.quarantined()
        for group in sorted(groups | set(by_group)):
            verdict, gap = self._group(group, by_group.get(group, []))
            excused = verdict in (Verdict.FAIL, Verdict.FLAKY) and group in quarantined and not gap
            verdicts[group] = Verdict.QUARANTINED if excused else verdict
            gaps.extend(gap)
        unrun = [group for group in verdicts if group not in self.groups and group not in self.unsupported]
        if len(unrun) > _GROUPS_NAMED:
            gaps.append(f"{len(unrun)} of {len(verdicts)} groups did not run or did not end, the first is {unrun[0]}")
        else:
            gaps.extend(f"{group} did not {'end' if group in by_group else 'run'}" for group in unrun)
        statement = self.statements.get(name)
        merged = [*verdicts.values(), *([Verdict.UNSUPPORTED] if name in self.unsupported else [])]
        return RequirementResult(
            id=name,
            verdict=merge([*merged, Verdict.UNKNOWN] if gaps and _all_pass(verdicts) else merged),
            statement=statement.statement if statement else "",
            source=statement.source if statement else "",
            cases=len(cases),
            seconds=sum(case.timing.get("seconds", 0.0) for case in cases),
            kernels=tuple(dict.fromkeys(hash_ for case in cases for hash_ in case.kernels)),
            groups=verdicts,
            gaps=tuple(gaps),
            failing=tuple(self._failing(group, by_group.get(group, [])) for group in self._failed(verdicts, by_group)),
            form_of=statement.form_of if statement else None,
            form=statement.form if statement else None,
        )

    def _group(self, group: str, cases: list[Case]) -> tuple[Verdict, list[str]]:
        """Return a group's recorded verdict, and what in the evidence contradicts it."""
        records = self.groups.get(group, [])
        if not records:
            return Verdict.UNSUPPORTED if group in self.unsupported else Verdict.NOT_RUN, []
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
            gaps.append(f"{group}: {records[-1].message or 'no case record states the reason'}")
        return verdict, gaps

    @staticmethod
    def _failed(verdicts: dict[str, Verdict], cases: dict[str, list[Case]]) -> list[str]:
        return [group for group in verdicts if any(case.verdict is not Verdict.PASS for case in cases.get(group, []))]

    def _failing(self, group: str, cases: list[Case]) -> Case:
        """Return the case that the group names, else the last that did not pass (Hypothesis ends on the reduced
        one)."""
        named = {record.failing_case for record in self.groups.get(group, [])}
        not_passed = [case for case in cases if case.verdict is not Verdict.PASS]
        return next((case for case in reversed(not_passed) if case.id in named), not_passed[-1])


def _all_pass(verdicts: dict[str, Verdict]) -> bool:
    return all(verdict in (Verdict.PASS, Verdict.UNSUPPORTED) for verdict in verdicts.values())
