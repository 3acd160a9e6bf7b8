"""What a run does not have: requirements that its device cannot run, and those that make it a partial run."""

from __future__ import annotations

from dataclasses import dataclass

from harness.evidence import Evidence
from reports.text import plural


@dataclass(frozen=True)
class Absent:
    """A requirement or case group that was not planned, the reason, and what the requirement demands."""

    id: str
    reason: str
    statement: str


@dataclass(frozen=True)
class Completeness:
    """``missing`` makes a run partial; ``not_applicable`` does not.

    ``requirements`` counts the requirements in ``missing``. ``sentence`` says what is missing, and is empty for a
    complete run. ``label`` is ``complete``, ``partial``, or ``unknown`` where the plan was lost.
    """

    missing: tuple[Absent, ...]
    not_applicable: tuple[Absent, ...]
    requirements: int
    sentence: str
    label: str

    def reasons(self) -> dict[str, list[str]]:
        """Reason -> the ids of the requirements that are not applicable here for it."""
        found: dict[str, list[str]] = {}
        for absent in self.not_applicable:
            found.setdefault(absent.reason, []).append(absent.id)
        return found


def completeness_of(evidence: Evidence) -> Completeness:
    """What ``evidence`` says of itself: ``Evidence.missing`` and ``Evidence.not_applicable``."""
    missing = tuple(_absent(evidence, *sentence.partition(": ")[::2]) for sentence in evidence.missing())
    requirements = sum(absent.id in evidence.statements for absent in missing)
    groups = sum(_owner(absent.id) in evidence.statements for absent in missing) - requirements
    other = len(missing) - requirements - groups
    possible = len(set(evidence.statements) - set(evidence.not_applicable))
    parts = [f"{requirements:,} of {plural(possible, 'requirement')}"] if requirements else []
    parts += [plural(groups, "case group")] if groups else []
    parts += [plural(other, "other item")] if other else []
    verb = "was" if len(missing) == 1 else "were"
    return Completeness(
        missing=missing,
        not_applicable=tuple(_absent(evidence, *item) for item in evidence.not_applicable.items()),
        requirements=requirements,
        sentence=f"Partial: {' and '.join(parts)} {verb} left out." if parts else "",
        label="unknown" if not evidence.statements else "partial" if missing else "complete",
    )


def _owner(name: str) -> str:
    """The requirement of a case group, which has its parameters in brackets."""
    return name.partition("[")[0]


def _absent(evidence: Evidence, name: str, reason: str) -> Absent:
    known = evidence.statements.get(_owner(name))
    return Absent(name, reason, known.statement if known else "")
