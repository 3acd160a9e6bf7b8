"""Ownership of a reduce_scatter's result: which member writes which elements.

Tiles are numbered column by column within groups of ``swizzle`` tile rows. With T tiles, W members and S = T / W
rounded up, member r owns tiles r*S to r*S + S - 1 if the distribution is 1, and the tiles whose number is r modulo W if
it is 0.
"""

import math
from collections.abc import Iterator

import torch

from conformance.collectives.cases import CollectiveCase


def owned(case: CollectiveCase, member: int, members: int) -> torch.Tensor:
    """Return a boolean mask (m, n) of the elements that ``member`` of ``members`` writes."""
    mine = torch.zeros(case.m, case.n, dtype=torch.bool)
    corners = list(_corners(case))
    share = math.ceil(len(corners) / members)
    for number, (row, column) in enumerate(corners):
        # Without a Config the distribution is the library's default, 1.
        owner = number // share if case.default or case.distribution else number % members
        mine[row : row + case.block_m, column : column + case.block_n] = owner == member
    return mine


def _corners(case: CollectiveCase) -> Iterator[tuple[int, int]]:
    """Yield the first row and column of each tile, in the order of the tiles' numbers."""
    high = case.swizzle * case.block_m
    for group in range(0, case.m, high):
        for column in range(0, case.n, case.block_n):
            for row in range(group, min(group + high, case.m), case.block_m):
                yield row, column
