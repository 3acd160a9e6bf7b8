"""Which elements of a reduce_scatter's result are whose.

Tiles are numbered down columns of ``swizzle`` tile rows. Of T tiles and W members, S = T / W rounded up, member r owns
tiles r*S to r*S + S - 1 where the distribution is 1, and those whose number is r modulo W where it is 0.
"""

import math
from collections.abc import Iterator

import torch

from harness.cases import CollectiveCase


def owned(case: CollectiveCase, member: int, members: int) -> torch.Tensor:
    """bool (m, n): the elements that a member of so many writes."""
    mine = torch.zeros(case.m, case.n, dtype=torch.bool)
    corners = list(_corners(case))
    share = math.ceil(len(corners) / members)
    for number, (row, column) in enumerate(corners):
        # Without a Config it is the library's default, which is 1.
        owner = number // share if case.default or case.distribution else number % members
        mine[row : row + case.block_m, column : column + case.block_n] = owner == member
    return mine


def _corners(case: CollectiveCase) -> Iterator[tuple[int, int]]:
    """The first row and column of each tile, in the order of their numbers."""
    high = case.swizzle * case.block_m
    for group in range(0, case.m, high):
        for column in range(0, case.n, case.block_n):
            for row in range(group, min(group + high, case.m), case.block_m):
                yield row, column
