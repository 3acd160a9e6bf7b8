"""The case type of sequences: steps on one or several instances of the library, the same on every rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from harness.cases.registry import case_type

Step: TypeAlias = tuple[str, tuple[tuple[str, int | str | bool], ...]]
"""A rule's name, and the rule's arguments by name."""


@case_type
@dataclass(frozen=True)
class SequenceCase:
    """Steps that begin with one instance, number 0. ``rules.RULES`` has the rules and their arguments."""

    steps: tuple[tuple[str, tuple[tuple[str, int | str | bool], ...]], ...] = ()


def step_of(rule: str, **arguments: int | str | bool) -> Step:
    """Return the step of a rule with these arguments."""
    return rule, tuple(arguments.items())


def arguments_of(step: Step) -> dict[str, Any]:
    """Return a step's arguments by name."""
    return dict(step[1])


def described(step: Step) -> str:
    """Return a step as text, such as "put(source=0, count=3)"."""
    return f"{step[0]}({', '.join(f'{name}={value!r}' for name, value in step[1])})"
