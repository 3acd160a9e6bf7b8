"""Causes: failing groups that fail alike are one cause, with its spread over everything that was planned."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.evidence import Case, Evidence, Group, Verdict, fence_in_words, in_words, wait_in_words
from reports.spread import spread_of
from reports.symptoms import VAGUE, Symptom, symptom_of
from reports.text import replay_of

_Member = tuple[Symptom, Case]


@dataclass(frozen=True)
class Cause:
    """One cause. ``case`` is the smallest reduced case of its ``groups``; ``spread`` are phrases that state where it
    occurs; ``wrong`` is the first wrong element in words, or "" if the failure is another one; ``stores`` are the
    instructions that wrote it, the first one first; ``fences`` are those that the kernels lack;
    ``waits`` are the words that the ranks of a hang poll, with who writes them."""

    symptom: Symptom
    verdict: Verdict
    case: Case
    groups: tuple[str, ...]
    spread: tuple[str, ...]
    wrong: str
    replay: str
    stores: tuple[str, ...] = ()
    fences: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The failure in words."""
        return self.symptom.title


def causes_of(evidence: Evidence) -> tuple[Cause, ...]:
    """Return the causes of all failing groups: failures before what could not be checked, then the most groups
    first."""
    members = [
        (_symptom(evidence, case), case) for result in evidence.requirements().values() for case in result.failing
    ]
    causes = [_cause(evidence, alike) for alike in _alike(members)]
    return tuple(sorted(causes, key=lambda cause: (cause.verdict is not Verdict.FAIL, -len(cause.groups))))


def _alike(members: Sequence[_Member]) -> Iterable[Sequence[_Member]]:
    """Return the members that have one cause, as lists.

    The same key is the same cause. Wrong elements of one requirement with one fact are too, whichever store wrote them:
    an operation stores at several lines. A wrong value about which nothing is known joins the cause of the other wrong
    elements of its requirement, if that is only one.
    """
    joined: dict[tuple[str, ...], list[_Member]] = {}
    key_of: dict[tuple[str, str], tuple[str, ...]] = {}
    for symptom, case in members:
        key = symptom.key
        if case.differs is not None and symptom.fact:
            first = key_of.setdefault((symptom.fact, case.requirement), key)
            if first != key:  # the causes of both keys are one
                joined.setdefault(first, []).extend(joined.pop(key, []))
                key_of = {pair: first if other == key else other for pair, other in key_of.items()}
                key = first
        joined.setdefault(key, []).append((symptom, case))
    for (fact, requirement), key in list(key_of.items()):
        known = {other for (name, owner), other in key_of.items() if owner == requirement and name != VAGUE}
        if fact == VAGUE and len(known) == 1 and key in joined and key not in known:
            joined[known.pop()].extend(joined.pop(key))
    return joined.values()


def stores_of(evidence: Evidence, case: Case) -> Sequence[Mapping[str, Any]]:
    """Return the recorded stores that wrote the first wrong element of a group's failing case."""
    return next((record.stores for record in _records(evidence, case)), ())


def fences_of(evidence: Evidence, case: Case) -> Sequence[Mapping[str, Any]]:
    """Return the recorded fences that the kernels of a group's failing case lack."""
    return next((record.fences for record in _records(evidence, case)), ())


def _records(evidence: Evidence, case: Case) -> Iterable[Group]:
    return (record for record in evidence.groups.get(case.group, []) if record.failing_case == case.id)


def _symptom(evidence: Evidence, case: Case) -> Symptom:
    statement = evidence.statements.get(case.requirement)
    return symptom_of(case, statement, stores_of(evidence, case), fences_of(evidence, case))


def _cause(evidence: Evidence, members: Sequence[_Member]) -> Cause:
    symptom, case = min(members, key=lambda each: (each[0].fact == VAGUE, not each[0].source, _size(each[1])))
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
        fences=tuple(fence_in_words(each) for each in fences_of(evidence, case)),
        waits=_waits(evidence, case, symptom),
    )


def _waits(evidence: Evidence, case: Case, symptom: Symptom) -> tuple[str, ...]:
    """Return what the ranks of a hang wait for: what was recorded when it ran again, and of other ranks, what their
    stacks state."""
    recorded = [wait for record in _records(evidence, case) for wait in record.waits]
    known = {f"rank {wait['rank']} polls" for wait in recorded}
    others = (each for each in symptom.waits if " ".join(each.split()[:3]) not in known)
    return (*(wait_in_words(wait) for wait in recorded), *others)


def _size(case: Case) -> tuple[int, str]:
    """Return a measure of a case that orders simple ones first, and is the same in every run."""
    text = json.dumps(case.case, sort_keys=True)
    return len(text), text
