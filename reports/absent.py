"""Requirements without a verdict: those that the device cannot run, and those whose absence makes the run partial."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from harness.evidence import Evidence
from reports.text import plural


@dataclass(frozen=True)
class Absent:
    """A requirement or case group that was not planned, with the reason and the requirement's statement.

    If the list also holds the requirement of which this one is a further form, the statement only names the form.
    """

    id: str
    reason: str
    statement: str


@dataclass(frozen=True)
class Completeness:
    """Completeness of a run: ``missing`` entries make it partial, ``not_applicable`` and ``unsupported`` do not.

    ``requirements`` counts the requirements in ``missing``. ``sentence`` counts what is missing, and is empty for a
    complete run. ``label`` is ``complete``, ``partial``, or ``unknown`` if the plan was lost.
    """

    missing: tuple[Absent, ...]
    not_applicable: tuple[Absent, ...]
    unsupported: tuple[Absent, ...]
    requirements: int
    sentence: str
    label: str


def by_reason(entries: Sequence[Absent]) -> dict[str, list[str]]:
    """Return a dictionary from each reason to the ids of the entries that have it."""
    ids: dict[str, list[str]] = {}
    for absent in entries:
        ids.setdefault(absent.reason, []).append(absent.id)
    return ids


def completeness_of(evidence: Evidence) -> Completeness:
    """Return what the run left out, and what is not applicable on its device, as reports show it."""
    missing = _absent(evidence, [sentence.partition(": ")[::2] for sentence in evidence.missing()])
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
        not_applicable=_absent(evidence, list(evidence.not_applicable.items())),
        unsupported=_absent(evidence, list(evidence.unsupported.items())),
        requirements=requirements,
        sentence=f"Partial: {' and '.join(parts)} {verb} left out." if parts else "",
        label="unknown" if not evidence.statements else "partial" if missing else "complete",
    )


def _owner(name: str) -> str:
    """Return the requirement of a case group: its name without the parameters in brackets."""
    return name.partition("[")[0]


def _absent(evidence: Evidence, reasons: Sequence[tuple[str, str]]) -> tuple[Absent, ...]:
    listed = {name for name, _ in reasons}
    return tuple(Absent(name, reason, _demanded(evidence, name, listed)) for name, reason in reasons)


def _demanded(evidence: Evidence, name: str, listed: Container[str]) -> str:
    known = evidence.statements.get(_owner(name))
    if known is None:
        return ""
    return f"{known.form_of}, as {known.form}" if known.form and known.form_of in listed else known.statement
