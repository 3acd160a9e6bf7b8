"""The spread of a cause in words: which planned groups fail and which do not, by their parameters, forms and cases."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from harness.evidence import Case, Evidence, Verdict
from reports.text import plural

_SEPARATOR = re.compile(r",(?=\w+=)")
_NAMED, _VALUES, _FIELDS = 3, 6, 3
_LEAST = 3
"""Cases that must have failed, and passed, before a field is named that separates them."""


def parameters_of(group: str) -> dict[str, str]:
    """Return the parameters in a group's name: ``{"ranks": "2", "dtype": "int8"}``."""
    inside = group.partition("[")[2].removesuffix("]")
    return {
        name: value for name, _, value in (part.partition("=") for part in _SEPARATOR.split(inside)) if value or name
    }


def spread_of(evidence: Evidence, groups: Sequence[str]) -> tuple[str, ...]:
    """Return phrases about the failing ``groups`` among the planned ones: their number, forms, parameters and cases."""
    requirements = list(dict.fromkeys(_owner(evidence, group) for group in groups))
    chosen = frozenset(requirements)
    listed = (each.group for each in evidence.plan.values() if each.requirement in chosen)
    planned = list(dict.fromkeys((*listed, *groups)))
    names = ", ".join(requirements[:_NAMED]) + (
        f" and {len(requirements) - _NAMED} more" if len(requirements) > _NAMED else ""
    )
    phrases = [f"{len(groups)} of {plural(len(planned), 'group')} of {names}"]
    phrases += _forms(evidence, requirements)
    phrases += _parameters(planned, groups)
    return (*phrases, *_fields(evidence, set(groups), set(planned)))


def _owner(evidence: Evidence, group: str) -> str:
    return evidence.plan[group].requirement if group in evidence.plan else group.partition("[")[0]


def _forms(evidence: Evidence, requirements: Sequence[str]) -> list[str]:
    """Return "IrisDeviceCtx.put only, not DeviceContext.put" where only some planned forms of a requirement fail."""
    planned = {group.requirement for group in evidence.plan.values()}
    bases = {evidence.statements[each].form_of or each for each in requirements if each in evidence.statements}
    if len(bases) != 1:
        return []
    [base] = bases
    family = [r.id for r in evidence.statements.values() if base in (r.id, r.form_of) and r.id in planned]
    others = [each for each in family if each not in requirements]
    if len(family) < 2:
        return []
    if not others:
        return [f"all {len(family)} forms"]
    names = [_form(evidence, each) for each in requirements]
    return [f"{_listed(names)} only, not {_listed([_form(evidence, each) for each in others])}"]


def _form(evidence: Evidence, requirement: str) -> str:
    known = evidence.statements[requirement]
    return known.covers[0] if known.covers else known.form or requirement


def _parameters(planned: Sequence[str], failing: Sequence[str]) -> list[str]:
    phrases = []
    every, wrong = _values(map(parameters_of, planned)), _values(map(parameters_of, failing))
    for name, values in every.items():
        bad = wrong.get(name, [])
        good = [value for value in values if value not in bad]
        if len(values) < 2 or not bad:
            continue
        if not good:
            phrases.append(f"all {len(values)} values of {name}")
        elif len(good) < len(bad) and len(good) <= _NAMED:
            phrases.append(f"all values of {name} but {_listed(good)}")
        elif len(bad) <= _VALUES:
            phrases.append(f"{name} {_listed(bad)} only")
        else:
            phrases.append(f"{len(bad)} of {len(values)} values of {name}")
    return phrases


def _values(each: Iterable[Mapping[str, str]]) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for parameters in each:
        for name, value in parameters.items():
            if value not in values.setdefault(name, []):
                values[name].append(value)
    return values


def _fields(evidence: Evidence, failing: set[str], planned: set[str]) -> list[str]:
    """Return the fields of the cases that separate those that failed from those that passed."""
    bad = [case for case in evidence.cases if case.group in failing and case.verdict is Verdict.FAIL]
    good = [case for case in evidence.cases if case.group in planned and case.verdict is Verdict.PASS]
    if len(bad) < _LEAST or len(good) < _LEAST:
        return []
    phrases = []
    for name, read in _readers(bad[0]):
        wrong, right = _seen(bad, read), _seen(good, read)
        if wrong and right and not set(wrong) & set(right) and len(wrong) <= _NAMED:
            phrases.append(f"{name} {_listed(wrong)} only" if name else f"{_listed(wrong)} only")
    return phrases[:_FIELDS]


def _readers(case: Case) -> list[tuple[str, Callable[[Case], str | None]]]:
    """Return a function for each field with few values, and for the targets of ranks."""

    def field(name: str) -> Callable[[Case], str | None]:
        return lambda case: _short(case.case["fields"].get(name))

    names = [name for name, value in case.case["fields"].items() if isinstance(value, (str, bool)) or value is None]
    readers: list[tuple[str, Callable[[Case], str | None]]] = [(name, field(name)) for name in names]
    if isinstance(case.case["fields"].get("targets"), list):
        readers.insert(0, ("", _targets))
    return readers


def _targets(case: Case) -> str | None:
    """Return whether a rank of the case has another target than itself."""
    targets = case.case["fields"].get("targets")
    if not isinstance(targets, list) or not all(isinstance(each, list) for each in targets):
        return None
    others = any(peer != rank for rank, peers in enumerate(targets) for peer in peers)
    return "targets other than self" if others else "targets self"


def _short(value: Any) -> str | None:
    return value if isinstance(value, str) and value else repr(value)


def _seen(cases: Sequence[Case], read: Callable[[Case], str | None]) -> list[str]:
    values = (read(case) for case in cases)
    return list(dict.fromkeys(value for value in values if value is not None))


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
