"""Model of the instances that a sequence uses: which are open, their allocations, and what every rank's memory holds.

The controller applies each drawn step to a model, to draw the next one among what is then possible. Each rank applies
the same steps to a model of its own, and compares its memory with it. A model needs no communication: what a rank's
memory holds follows from the steps and the number of ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from conformance.collectives.cases import CollectiveCase
from harness.cases import GROUPS


@dataclass
class Block:
    """One allocation. ``values`` is the expected content on every rank: int32, shape (ranks, elements)."""

    values: torch.Tensor

    @property
    def count(self) -> int:
        return self.values.shape[1]


@dataclass
class InstanceModel:
    """One open instance. ``blocks``: its live allocations by number, which is that of the step that made them.
    ``counting``: the groups that have used ``device_barrier``, so that its counts exist."""

    blocks: dict[int, Block] = field(default_factory=dict)
    counting: set[str] = field(default_factory=set)


@dataclass
class Model:
    """The open instances by number. ``turn`` is the number of the next step. ``groups`` and ``calls`` are the kinds of
    groups, and the calls of collectives, from which steps are drawn; they have no meaning on a rank."""

    ranks: int
    groups: tuple[str, ...] = GROUPS
    calls: tuple[CollectiveCase, ...] = ()
    turn: int = 0
    instances: dict[int, InstanceModel] = field(default_factory=lambda: {0: InstanceModel()})


def pattern(turn: int, ranks: int, count: int) -> torch.Tensor:
    """Return values that are distinct by step, rank and element: int32, shape (ranks, count)."""
    return (1_000_000 * (turn + 1) + 10_000 * torch.arange(ranks, dtype=torch.int32)[:, None] + torch.arange(count)).to(
        torch.int32
    )
