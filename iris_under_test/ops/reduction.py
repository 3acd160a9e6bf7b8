"""matmul_all_reduce and matmul_reduce_scatter: one kernel, with options for which rank sums and receives each tile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from iris_under_test.kernels.matmul_reduce import matmul_and_reduce

from .config import FusedConfig
from .launch import FusedOp, Plan, enqueue, plan_of
from .operands import Operands
from .workspace import FusedWorkspace

if TYPE_CHECKING:
    from iris_under_test.host.groups import Members
    from iris_under_test.host.instance import Instance

__all__ = ["MATMUL_ALL_REDUCE", "MATMUL_REDUCE_SCATTER", "Reduction"]


@dataclass(frozen=True)
class Reduction:
    """Method of summing tiles; see ``kernels.matmul_reduce`` for the first three fields.

    ``even``: the number of tiles of a rank is rounded up, else down, and the last rank takes the rest.
    """

    how: str
    owned: bool
    pushed: bool
    even: bool = True

    def share(self, tiles: int, size: int) -> int:
        """Return the number of tiles that a rank sums; the last rank may differ."""
        return -(-tiles // size) if self.even else tiles // size

    def slots(self, tiles: int, size: int) -> int:
        """Return the largest number of tiles that a rank sums."""
        if not self.owned:
            return tiles
        share = self.share(tiles, size)
        return max(share, tiles - share * (size - 1))


def _op(name: str, variants: Mapping[str, Reduction]) -> FusedOp:
    """Return the op with these ``variants`` by name; "" if there is only one."""
    return FusedOp(name, partial(_plan, name, variants), partial(_launch, variants))


def _plan(
    name: str,
    variants: Mapping[str, Reduction],
    ctx: Instance,
    members: Members,
    given: Operands,
    config: FusedConfig | None,
) -> Plan:
    requested = (config or FusedConfig()).all_reduce_variant
    variant = requested if requested in variants else ""
    if variant not in variants:
        raise ValueError(f"{name}: the variant must be one of {tuple(variants)}, got {requested!r}")
    reduction = variants[variant]
    plan = plan_of(
        name, ctx, members, given, config, reached="output" if reduction.pushed else "",
        # The assignment of tiles to ranks is part of a reduce-scatter's meaning, so it must not depend on the device.
        tuned=reduction.pushed or not reduction.owned,
    )  # fmt: skip
    size, block = members.size, plan.config.block_size_m * plan.config.block_size_n
    slots = reduction.slots(plan.tiles, size)
    return replace(
        plan,
        variant=variant,
        buffers=(slots * block * (size if reduction.how == "slots" else 1), slots if reduction.how == "lock" else 0),
        aux_dtype=plan.dtype if reduction.how == "slots" else torch.float32,
        alike={"bias": given.bias is not None},
    )


def _launch(
    variants: Mapping[str, Reduction], ctx: Instance, plan: Plan, given: Operands, workspace: FusedWorkspace
) -> None:
    reduction, size = variants[plan.variant], plan.members.size
    enqueue(
        matmul_and_reduce, ctx, plan, given,
        given.A, given.B, given.output, given.addend, workspace.aux_buffer,
        workspace.aux_buffer if workspace.locks is None else workspace.locks, *plan.shape, *given.strides,
        reduction.share(plan.tiles, size), reduction.slots(plan.tiles, size),
        HOW=reduction.how, OWNED=reduction.owned, PUSHED=reduction.pushed,
        NUM_XCDS=plan.config.num_xcds, CHUNK=plan.config.chunk_size,
    )  # fmt: skip


MATMUL_REDUCE_SCATTER = _op("matmul_reduce_scatter", {"": Reduction("slots", owned=True, pushed=False, even=False)})
MATMUL_ALL_REDUCE = _op(
    "matmul_all_reduce",
    {
        "two_shot": Reduction("slots", owned=True, pushed=True),
        "one_shot": Reduction("slots", owned=False, pushed=False),
        "atomic": Reduction("atomic", owned=False, pushed=False),
        "spinlock": Reduction("lock", owned=True, pushed=True),
    },
)
