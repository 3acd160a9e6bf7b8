"""What matmul_all_reduce and matmul_reduce_scatter share: one kernel, told who sums which tile and who gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from iris_under_test.ccl.launch import symmetric_offset
from iris_under_test.host.tracing.kernel_artifacts import iris_launch

from .checks import check_matrices, check_operands
from .config import FusedConfig
from .launch import Launch, Plan, alignment_of, call, plan_of, preamble
from .workspace import FusedWorkspace

if TYPE_CHECKING:
    from iris_under_test.host.groups import Members
    from iris_under_test.host.iris import Iris

__all__ = ["ALL_REDUCE", "REDUCE_SCATTER", "Reduction", "prepare_reduction", "reduce_matmul"]


@dataclass(frozen=True)
class Reduction:
    """How tiles are summed; see ``triton.reduce`` for the first three.

    ``even``: the share of a rank is rounded up, else down, and the last rank takes the rest.
    """

    how: str
    owned: bool
    pushed: bool
    even: bool = True

    def share(self, tiles: int, size: int) -> int:
        """Tiles that a rank sums, the last one aside."""
        return -(-tiles // size) if self.even else tiles // size

    def slots(self, tiles: int, size: int) -> int:
        """Tiles that a rank sums at most."""
        if not self.owned:
            return tiles
        share = self.share(tiles, size)
        return max(share, tiles - share * (size - 1))


REDUCE_SCATTER = {"": Reduction("slots", owned=True, pushed=False, even=False)}
ALL_REDUCE = {
    "two_shot": Reduction("slots", owned=True, pushed=True),
    "one_shot": Reduction("slots", owned=False, pushed=False),
    "atomic": Reduction("atomic", owned=False, pushed=False),
    "spinlock": Reduction("lock", owned=True, pushed=True),
}


def reduce_matmul(
    op: str,
    variants: Mapping[str, Reduction],
    ctx: Iris,
    output_tensor: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    bias: torch.Tensor | None,
    async_op: bool,
    config: FusedConfig | None,
    workspace: FusedWorkspace | None,
) -> FusedWorkspace:
    """One call of an op that has these ``variants``, by name; "" if there is but one."""

    def prepare(members: Members) -> tuple[Plan, str, Launch]:
        plan = _plan(op, variants, ctx, members, output_tensor, A, B, bias, config)
        reduction = variants[plan.variant]
        more: dict[str, object] = {"bias": bias is not None, "strides": output_tensor.stride()}
        if reduction.pushed:
            more["output_at"] = symmetric_offset(output_tensor, f"{op}: the output", ctx)

        def launch(used: FusedWorkspace) -> None:
            _launch(reduction, ctx, plan, output_tensor, A, B, bias, used)

        return plan, plan.told(**more), launch

    return call(op, ctx, async_op, workspace, prepare)


def prepare_reduction(
    op: str,
    variants: Mapping[str, Reduction],
    ctx: Iris,
    output_tensor: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    config: FusedConfig | None,
    workspace: FusedWorkspace | None,
) -> FusedWorkspace:
    """The workspace of such calls. Collective."""
    return preamble(
        op, ctx, workspace, lambda members: _plan(op, variants, ctx, members, output_tensor, A, B, None, config)
    )


def _plan(
    op: str,
    variants: Mapping[str, Reduction],
    ctx: Iris,
    members: Members,
    output_tensor: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    bias: torch.Tensor | None,
    config: FusedConfig | None,
) -> Plan:
    check_matrices(op, output=output_tensor, A=A, B=B)
    (m, k), n = A.shape, B.shape[1]
    operands = [("A", A, (m, k)), ("B", B, (k, n)), ("output", output_tensor, (m, n))]
    check_operands(op, operands, bias, m, ctx.get_device())
    wanted = (config or FusedConfig()).all_reduce_variant
    variant = wanted if wanted in variants else ""
    if variant not in variants:
        raise ValueError(f"{op}: the variant must be one of {tuple(variants)}, got {wanted!r}")
    reduction = variants[variant]
    # Which tiles are whose is part of what a reduce-scatter means, so it must not hang on the device.
    plan = plan_of(op, ctx, members, (m, n, k), m, A.dtype, config, tuned=reduction.pushed or not reduction.owned)
    size, block = members.size, plan.config.block_size_m * plan.config.block_size_n
    slots = reduction.slots(plan.tiles, size)
    return replace(
        plan,
        variant=variant,
        buffers=(slots * block * (size if reduction.how == "slots" else 1), slots if reduction.how == "lock" else 0),
        aux_dtype=A.dtype if reduction.how == "slots" else torch.float32,
    )


def _launch(
    reduction: Reduction,
    ctx: Iris,
    plan: Plan,
    output_tensor: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    bias: torch.Tensor | None,
    workspace: FusedWorkspace,
) -> None:
    from .triton.reduce import matmul_and_reduce

    members, config, (m, n, k) = plan.members, plan.config, plan.shape
    locks = workspace.aux_buffer if workspace.locks is None else workspace.locks
    iris_launch(
        matmul_and_reduce, (plan.programs,),
        members.context, members.pads, members.rank, A, B, output_tensor, A if bias is None else bias,
        workspace.aux_buffer, locks, m, n, k,
        *A.stride(), *B.stride(), *output_tensor.stride(), 0 if bias is None else bias.stride(0),
        reduction.share(plan.tiles, members.size), reduction.slots(plan.tiles, members.size),
        HOW=reduction.how, OWNED=reduction.owned, PUSHED=reduction.pushed,
        BIASED=bias is not None, ALIGNMENT=alignment_of(output_tensor),
        NUM_XCDS=config.num_xcds, CHUNK=config.chunk_size, **plan.blocks(k),
        algorithm=plan.operation, rank=ctx.get_rank(), dtype=plan.dtype,
    )  # fmt: skip
