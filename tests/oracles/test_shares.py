"""Elements of a reduce_scatter that a member owns, compared with tiles numbered by hand."""

from __future__ import annotations

import pytest
import torch

from conformance.collectives.cases import CollectiveCase
from conformance.collectives.shares import owned

CASE = CollectiveCase(op="reduce_scatter", m=5, n=3, block_m=2, block_n=2, swizzle=2)
# Tiles 0 2
#       1 3
#       4 5, the last row of tiles one element high, and the last column one wide.
OWNERS = {
    (1, 2): ["000", "000", "001", "001", "111"],  # tiles 0 to 2 are member 0's
    (0, 2): ["000", "000", "111", "111", "001"],
    (1, 4): ["001", "001", "001", "001", "222"],  # two each, so that member 3 has none
    (0, 4): ["002", "002", "113", "113", "001"],
}


@pytest.mark.parametrize(("distribution", "members"), OWNERS)
def test_who_owns_what(distribution, members):
    case = CollectiveCase(**{**vars(CASE), "distribution": distribution})
    wanted = torch.tensor([[int(owner) for owner in row] for row in OWNERS[distribution, members]])
    for member in range(members):
        assert torch.equal(owned(case, member, members), wanted == member), f"member {member}"


def test_without_a_config_blocks_are_owned():
    case = CollectiveCase(**{**vars(CASE), "distribution": 0, "default": True})
    assert torch.equal(owned(case, 1, 2), owned(CASE, 1, 2))
