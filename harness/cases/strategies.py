"""Hypothesis strategies for fields of many case types: element counts, and which rank acts on which.

They shrink towards one element, rank 0 to rank 1. Case types and their strategies are with the tests of their subject.
"""

from __future__ import annotations

import math

from hypothesis import strategies as st


@st.composite
def rank_patterns(draw: st.DrawFn, ranks: int) -> tuple[tuple[int, ...], ...]:
    """Draw for each rank the ranks that it acts on: one pair, itself, neighbours, all on one, one on all, a
    permutation.

    Every kind makes the same draws, since Hypothesis considers a shorter sequence of draws a simpler case.
    """
    kind = draw(st.sampled_from(["pair", "neighbour", "self", "all_to_one", "one_to_all", "permutation"]))
    root = draw(st.integers(0, ranks - 1))
    code = draw(st.integers(0, math.factorial(ranks) - 1))
    step = (1 + code) % ranks
    no_peers: tuple[int, ...] = ()
    if kind == "pair":
        return tuple(((root + step) % ranks,) if rank == root else no_peers for rank in range(ranks))
    if kind == "neighbour":
        return tuple(((rank + step) % ranks,) for rank in range(ranks))
    if kind == "self":
        return tuple((rank,) for rank in range(ranks))
    if kind == "all_to_one":
        return tuple((root,) for _ in range(ranks))
    if kind == "one_to_all":
        return tuple(tuple(range(ranks)) if rank == root else no_peers for rank in range(ranks))
    return tuple((peer,) for peer in _permutation(ranks, code))


def only(targets: tuple[tuple[int, ...], ...], actor: int) -> tuple[tuple[int, ...], ...]:
    """Return the targets if rank ``actor`` acts and the other ranks do not: those of the first rank that has any.

    Example: ``only(((), (2,), ()), 0)`` gives ``((2,), (), ())``.
    """
    chosen = next(filter(None, targets), ())
    return tuple(chosen if rank == actor else () for rank in range(len(targets)))


def _permutation(ranks: int, code: int) -> list[int]:
    """Return the permutation with number ``code`` in the factorial number system."""
    left, chosen = list(range(ranks)), []
    for size in range(ranks, 0, -1):
        code, place = divmod(code, size)
        chosen.append(left.pop(place))
    return chosen


@st.composite
def counts(draw: st.DrawFn, block: int, maximum: int, step: int = 1) -> int:
    """Draw element counts that are multiples of ``step`` up to ``maximum``: 1 and few, 0, around a block's end, several
    blocks."""
    kind = draw(st.sampled_from(["few", "zero", "edge", "several"]))
    code = draw(st.integers(0, 4095))
    limit = max(1, maximum // step)
    if kind == "zero":
        return 0
    if kind == "few":
        return step * (1 + code % min(40, limit))
    if kind == "edge":
        return step * min(limit, max(1, block // step + code % 3 - 1))
    least = max(1, min(block, maximum) // step)
    return step * (least + code % (limit - least + 1))
