"""Covering arrays: few combinations of values, in which every pair of values of two parameters occurs.

    covering({"op": ("put", "get"), "dtype": ("fp16", "int8"), "mask": ("none", "range")})

returns 4 of the 8 combinations: put and fp16, put and int8, fp16 and a mask, and so on, occur together in at least one.
A defect that depends on two choices is found as by all combinations, with a fraction of the kernels to compile (Kuhn,
Wallace and Gallo, "Software Fault Interactions and Implications for Software Testing", IEEE TSE 30(6), 2004).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

_LIMIT = 200_000


def covering(
    parameters: Mapping[str, Sequence[Any]],
    *,
    strength: int = 2,
    also: Sequence[Sequence[str]] = (),
    having: Sequence[Mapping[str, Any]] = (),
    derived: Mapping[str, Callable[[Mapping[str, Any]], Any]] | None = None,
    valid: Callable[[Mapping[str, Any]], bool] = lambda row: True,
) -> tuple[dict[str, Any], ...]:
    """Return valid combinations in which every ``strength`` values of different parameters occur together, if they do
    in any valid one.

    ``also`` names parameters whose values must all occur together besides, such as ``[("op", "dtype", "form")]``. It
    may name values of ``derived`` too, which are computed from a combination, and which the result does not have.
    ``having`` are combinations that the caller has anyway: what occurs in them need not occur in the result.

    The result is the same every time: each step takes the combination that brings the most new tuples, and of those
    the one whose values come first in their sequences. ValueError if there are more than 200,000 combinations, if
    ``strength`` is not from 1 to the number of parameters, or if both ``having`` and ``derived`` are given.
    """
    names = tuple(parameters)
    if not 1 <= strength <= len(names):
        raise ValueError(f"strength must be from 1 to the number of parameters, {len(names)}; got {strength}")
    if having and derived:
        raise ValueError("expected combinations that the caller has or derived values, got both")
    sizes = [len(parameters[name]) for name in names]
    if (count := int(np.prod(sizes, dtype=object))) > _LIMIT:
        raise ValueError(f"expected at most {_LIMIT} combinations, got {count}: {dict(zip(names, sizes, strict=True))}")
    # The sums of indices put simple combinations first: values at the beginning of their sequences.
    indices = sorted(itertools.product(*map(range, sizes)), key=lambda index: (sum(index), index))
    rows = [({name: parameters[name][i] for name, i in zip(names, index, strict=True)}, index) for index in indices]
    rows = [(row, index) for row, index in rows if valid(row)]
    if not rows:
        return ()
    columns = (*names, *(derived or {}))
    sets = [
        *itertools.combinations(range(len(names)), strength),
        *([columns.index(name) for name in set_] for set_ in also),
    ]
    numbers, counts = np.array([index for _, index in rows]), [*sizes]
    for value in (derived or {}).values():
        values = [value(row) for row, _ in rows]
        places = {one: place for place, one in enumerate(dict.fromkeys(values))}
        numbers = np.column_stack([numbers, [places[one] for one in values]])
        counts.append(len(places))
    tuples = _tuples(numbers, counts, sets)
    missing = np.zeros(int(tuples.max()) + 1, dtype=bool)
    missing[tuples] = True
    known = [[parameters[name].index(row[name]) for name in names] for row in having]
    if known:
        missing[(held := _tuples(np.array(known), sizes, sets))[held < len(missing)]] = False
    chosen = []
    while missing.any():
        best = int(missing[tuples].sum(axis=1).argmax())
        missing[tuples[best]] = False
        chosen.append(rows[best][0])
    return tuple(chosen)


def _tuples(index: np.ndarray, sizes: Sequence[int], sets: Sequence[Sequence[int]]) -> np.ndarray:
    """Return for each combination the numbers of its tuples of values: one column for each set of parameters."""
    columns, first = [], 0
    for places in sets:
        number = np.zeros(len(index), dtype=np.int64)
        for place in places:
            number = number * sizes[place] + index[:, place]
        columns.append(first + number)
        first += int(np.prod([sizes[place] for place in places]))
    return np.stack(columns, axis=1)
