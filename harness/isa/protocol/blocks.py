"""Cuts a listing into blocks: a block begins at a jump's target and after a jump."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.isa.protocol.program import Step


def blocks(
    steps: Sequence[Step], targets: set[int], following: Callable[[int], Sequence[int] | None]
) -> tuple[list[list[Step]], list[list[int]]]:
    """Return the blocks of ``steps`` and the edges between them.

    ``targets``: the numbers of the steps to which others jump. ``following(number)``: the steps that may follow a jump;
    None for a step that is not a jump.
    """
    jumps = {number: places for number in range(len(steps)) if (places := following(number)) is not None}
    starts = sorted({0, *targets, *(number + 1 for number in jumps)} & set(range(len(steps))))
    index = {start: block for block, start in enumerate(starts)}
    ends = [*starts[1:], len(steps)]
    edges = []
    for start, end in zip(starts, ends, strict=True):
        if (places := jumps.get(end - 1)) is not None and end > start:
            edges.append([index[place] for place in places if place in index])
        else:
            edges.append([index[end]] if end in index else [])
    return [list(steps[start:end]) for start, end in zip(starts, ends, strict=True)], edges
