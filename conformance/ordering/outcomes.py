"""Counting the outcomes of a litmus test that ran."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conformance.ordering.model import Outcome


@dataclass(frozen=True)
class Outcomes:
    """The outcomes of a launch. ``counts`` maps the text of each to the number of elements that had it, and "timeout"
    to those of an instance in which a wait or a start timed out. ``forbidden``: instance, element and text of the first
    outcome that is not allowed, or None."""

    counts: dict[str, int]
    forbidden: tuple[int, int, str] | None


def outcomes(allowed: Collection[Outcome], seen: NDArray[Any], final: NDArray[Any]) -> Outcomes:
    """Count the outcomes; those that are not in ``allowed`` are forbidden.

    ``seen``: [instance, observation, element], -1 for a timeout; ``final``: [instance, location, element].
    """
    instances, observations, elements = seen.shape
    rows = np.concatenate([seen, final], axis=1).transpose(0, 2, 1).reshape(instances * elements, -1)
    kinds, first, numbers = np.unique(rows, axis=0, return_index=True, return_counts=True)
    counts: dict[str, int] = {}
    wrong: list[tuple[int, str]] = []
    for kind, place, number in zip(kinds.tolist(), first.tolist(), numbers.tolist(), strict=True):
        observed, ends = tuple(kind[:observations]), tuple(kind[observations:])
        text = "timeout" if -1 in observed else f"observed {observed}, final {ends}"
        counts[text] = counts.get(text, 0) + number
        if -1 not in observed and (observed, ends) not in allowed:
            wrong.append((place, text))
    if not wrong:
        return Outcomes(counts, None)
    place, text = min(wrong)
    return Outcomes(counts, (place // elements, place % elements, text))
