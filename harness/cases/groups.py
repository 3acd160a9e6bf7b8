"""Kinds of process groups that cases name, and the ranks in them."""

from __future__ import annotations

GROUPS = ("world", "halves", "stride", "reversed", "uneven")
LEFT_OUT = (2, 5, 7)
"""Ranks modulo 8 that are in no group "uneven"."""


def members_of(group: str, rank: int, ranks: int) -> tuple[int, ...]:
    """Return the global ranks of the group that ``rank`` is in, in the group's order; () if it is in none.

    "halves" are consecutive ranks, "stride" is every second rank, "reversed" is all ranks in descending order, and
    "uneven" begins with its highest rank and leaves out some: of 8 ranks it has 5, of 4 ranks 3. "by N" are N
    consecutive ranks each, such as those of one node.
    """
    everyone = tuple(range(ranks))
    if ranks == 1:
        return everyone
    if group.startswith("by "):
        size = int(group[3:])
        return everyone[rank // size * size :][:size]
    if group == "halves":
        half = ranks // 2
        return everyone[:half] if rank < half else everyone[half:]
    if group == "stride":
        return everyone[rank % 2 :: 2]
    if group == "reversed":
        return everyone[::-1]
    if group == "uneven":
        *first, last = (one for one in everyone if one % 8 not in LEFT_OUT)
        return (last, *first) if rank % 8 not in LEFT_OUT else ()
    return everyone


def chunks_of(group: str, ranks: int) -> tuple[tuple[int, ...], ...]:
    """Return all groups of that kind, in the order of their first rank, in which every rank creates them."""
    return tuple(sorted({members_of(group, rank, ranks) for rank in range(ranks)} - {()}))
