"""Recorded cases that passed, judged again: from the listings of their kernels, and from their outcomes.

A reader of a certificate has no GPU, no Triton and no torch, so this module needs none of them. It has the rules of
requirements on compiled code (``conformance.isa.recorded``) and of litmus tests. Everything else that a case compares
is not in its record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from conformance.isa import recorded as code
from conformance.ordering.model import allowed_in
from harness.evidence import Case, Evidence, Run, Verdict
from harness.isa.listed import ListedKernel

Rule = Callable[[Case, Sequence[ListedKernel], Run], Iterator[str]]

_OUTCOME = re.compile(r"observed \(([\d, ]*)\), final \(([\d, ]*)\)")
_DAMAGED = (ValueError, LookupError, TypeError, ArithmeticError, RecursionError)


def contradictions(
    case: Case, kernels: Sequence[ListedKernel], evidence: Evidence, *, same_suite: bool
) -> Iterator[str]:
    """Yield a clause for each thing that a requirement does not allow, of a case that passed it.

    ``kernels``: those that the case launched. ``same_suite``: this suite recorded the case. Rules that read the fields
    of a case hold for no other.
    """
    rules = _rules_of(case, evidence, same_suite)
    if not rules or case.verdict is not Verdict.PASS:
        return
    if not kernels and _outcomes not in rules:
        yield "launched no kernel whose code could show it"
        return
    try:
        for rule in rules:
            yield from rule(case, kernels, evidence.runs[0])
    except _DAMAGED as error:
        yield f"it cannot be judged again: {type(error).__name__}: {error!s:.200}"


def rejudged(case: Case, evidence: Evidence, *, same_suite: bool) -> bool:
    """Return whether a rule applies to the requirement of a case."""
    return bool(_rules_of(case, evidence, same_suite))


def _rules_of(case: Case, evidence: Evidence, same_suite: bool) -> list[Rule]:
    stated = evidence.statements.get(case.requirement)
    name = (stated.form_of if stated else None) or case.requirement
    rules = [code.WIDTHS.get(name), *((RULES.get(name), code.MOVED.get(name)) if same_suite else ())]
    return [rule for rule in dict.fromkeys(rules) if rule is not None]


def _outcomes(case: Case, kernels: Sequence[ListedKernel], run: Run) -> Iterator[str]:
    """Yield the forbidden outcomes that a litmus test has recorded."""
    fields = case.case["fields"]
    allowed = allowed_in(fields["test"], fields["release"], fields["acquire"], fields["scope"])
    if not any(case.outcomes.values()):
        yield "recorded no outcome"
    for text, number in case.outcomes.items():
        match = _OUTCOME.fullmatch(text)
        if match is None:
            yield f"recorded the outcome {text:.60}, in which a wait did not end"
        elif number and (_values(match[1]), _values(match[2])) not in allowed:
            yield f"recorded the outcome {text}, which {fields['test']} forbids"


def _values(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part.strip())


RULES: Mapping[str, Rule] = {**code.RULES, "ORDER-LITMUS-001": _outcomes}
"""Rules by requirement; a form of a requirement has the same. ``code.WIDTHS`` has those for cases of any suite."""
