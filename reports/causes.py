"""Causes: failing groups that fail alike are one cause, with its spread over everything that was planned."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.evidence import Case, Evidence, Verdict, in_words
from reports.spread import spread_of
from reports.symptoms import Symptom, symptom_of
from reports.text import replay_of


@dataclass(frozen=True)
class Cause:
    """One cause. ``case`` is the smallest reduced case of its ``groups``; ``spread`` are phrases that state where it
    occurs; ``wrong`` is the first wrong element in words, or "" if the failure is another one; ``stores`` are the
    instructions that wrote it, the first one first."""

    symptom: Symptom
    verdict: Verdict
    case: Case
    groups: tuple[str, ...]
    spread: tuple[str, ...]
    wrong: str
    replay: str
    stores: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The failure in words."""
        return self.symptom.title


def causes_of(evidence: Evidence) -> tuple[Cause, ...]:
    """Return the causes of all failing groups: failures before what could not be checked, then the most groups
    first."""
    alike: dict[tuple[str, ...], list[tuple[Symptom, Case]]] = {}
    for result in evidence.requirements().values():
        for case in result.failing:
            symptom = symptom_of(case, evidence.statements.get(case.requirement), stores_of(evidence, case))
            alike.setdefault(symptom.key, []).append((symptom, case))
    causes = [_cause(evidence, members) for members in alike.values()]
    return tuple(sorted(causes, key=lambda cause: (cause.verdict is not Verdict.FAIL, -len(cause.groups))))


def stores_of(evidence: Evidence, case: Case) -> Sequence[Mapping[str, Any]]:
    """Return the recorded stores that wrote the first wrong element of a group's failing case."""
    records = (record for record in evidence.groups.get(case.group, []) if record.failing_case == case.id)
    return next((record.stores for record in records), ())


def _cause(evidence: Evidence, members: Sequence[tuple[Symptom, Case]]) -> Cause:
    symptom, case = min(members, key=lambda member: _size(member[1]))
    groups = tuple(dict.fromkeys(member.group for _, member in members))
    return Cause(
        symptom=symptom,
        verdict=case.verdict,
        case=case,
        groups=groups,
        spread=spread_of(evidence, groups),
        wrong=in_words(case.differs) if case.differs else "",
        replay=replay_of(case, evidence),
        stores=tuple(
            f"{store['instruction']} of rank {store['rank']}, at {store['source'].partition(' @ ')[0]}"
            for store in stores_of(evidence, case)
        ),
    )


def _size(case: Case) -> tuple[int, str]:
    """Return a measure of a case that orders simple ones first, and is the same in every run."""
    text = json.dumps(case.case, sort_keys=True)
    return len(text), text
