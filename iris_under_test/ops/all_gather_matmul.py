"""all_gather_matmul: the shards of A are gathered while the product has begun."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
import triton

from iris_under_test.ccl.launch import symmetric_offset
from iris_under_test.host.tracing.kernel_artifacts import iris_launch

from .checks import check_matrices, check_operands
from .config import FusedConfig
from .launch import Launch, Plan, alignment_of, call, plan_of, preamble
from .workspace import FusedWorkspace

if TYPE_CHECKING:
    from iris_under_test.host.groups import Members
    from iris_under_test.host.iris import Iris

__all__ = ["all_gather_matmul", "all_gather_matmul_preamble"]

_GATHERING = 4
"""One program in so many gathers."""
_COPIED_BYTES = 256
"""Of a row, at once: two lines of 128 bytes."""


def all_gather_matmul(
    ctx: Iris,
    output_tensor: torch.Tensor,
    A_shard: torch.Tensor,
    B: torch.Tensor,
    bias: torch.Tensor | None = None,
    async_op: bool = False,
    config: FusedConfig | None = None,
    workspace: FusedWorkspace | None = None,
) -> FusedWorkspace:
    """``output_tensor`` (M, N) = A @ ``B`` (K, N) plus ``bias`` (M,), where A (M, K) is the ``A_shard`` (M, K/W) of
    each of W ranks, side by side.

    float16, bfloat16 or float32, all alike; any strides; the shard on the heap. Every rank has its own ``B``, output
    and bias. Sums are float32, over K from 0 upwards, and rounded once: where ranks pass the same B, all get the same
    bits. The workspace has room for all of A, beside the heap. See ``ops`` for what holds for every op.

    Raises:
        ValueError (FusedShapeError, an AssertionError too): shapes, dtypes or devices do not fit; ValueError: the shard
            is off the heap, or the configuration does not hold.
    """

    def prepare(members: Members) -> tuple[Plan, str, Launch]:
        plan = _plan(ctx, members, output_tensor, A_shard, B, bias, config)
        offset = symmetric_offset(A_shard, "all_gather_matmul: the shard", ctx)

        def launch(used: FusedWorkspace) -> None:
            _launch(ctx, plan, output_tensor, A_shard, B, bias, used)

        return plan, plan.told(shard_at=offset, strides=A_shard.stride()), launch

    return call("all_gather_matmul", ctx, async_op, workspace, prepare)


def all_gather_matmul_preamble(
    ctx: Iris,
    output_tensor: torch.Tensor,
    A_shard: torch.Tensor,
    B: torch.Tensor,
    config: FusedConfig | None = None,
    workspace: FusedWorkspace | None = None,
) -> FusedWorkspace:
    """The workspace of such calls, with room for all of A, beside the heap. Collective."""
    return preamble(
        "all_gather_matmul",
        ctx,
        workspace,
        lambda members: _plan(ctx, members, output_tensor, A_shard, B, None, config),
    )


def _plan(
    ctx: Iris,
    members: Members,
    output_tensor: torch.Tensor,
    A_shard: torch.Tensor,
    B: torch.Tensor,
    bias: torch.Tensor | None,
    config: FusedConfig | None,
) -> Plan:
    from .triton.gather import COUNTERS

    op = "all_gather_matmul"
    check_matrices(op, output=output_tensor, A_shard=A_shard, B=B)
    (m, part), n = A_shard.shape, B.shape[1]
    k = part * members.size
    operands = [("A_shard", A_shard, (m, part)), ("B", B, (k, n)), ("output", output_tensor, (m, n))]
    check_operands(op, operands, bias, m, ctx.get_device())
    plan = plan_of(op, ctx, members, (m, n, k), m, A_shard.dtype, config)
    units = triton.cdiv(m, plan.config.block_size_m) * members.size
    return replace(
        plan,
        buffers=(members.size * m * _padded(part), COUNTERS + units),
        aux_dtype=A_shard.dtype,
        symmetric=False,
        locks_start=(0, 0, 1),
    )


def _launch(
    ctx: Iris,
    plan: Plan,
    output_tensor: torch.Tensor,
    A_shard: torch.Tensor,
    B: torch.Tensor,
    bias: torch.Tensor | None,
    workspace: FusedWorkspace,
) -> None:
    from .triton.gather import gather_and_matmul

    members, (m, part) = plan.members, A_shard.shape
    gathered = A_shard if workspace.aux_buffer is None else workspace.aux_buffer  # None where the shard is empty
    iris_launch(
        gather_and_matmul, (plan.programs,),
        members.context, members.pads, members.rank, A_shard, gathered, workspace.locks,
        B, output_tensor, A_shard if bias is None else bias, m, B.shape[1], part,
        *A_shard.stride(), _padded(part), *B.stride(), *output_tensor.stride(), 0 if bias is None else bias.stride(0),
        max(1, plan.programs // _GATHERING),
        BIASED=bias is not None, ALIGNMENT=alignment_of(A_shard), COPY_K=_COPIED_BYTES // plan.dtype.itemsize,
        **plan.blocks(part),
        algorithm=plan.operation, rank=ctx.get_rank(), dtype=plan.dtype,
    )  # fmt: skip


def _padded(part: int) -> int:
    """Elements between rows of the gathered shards: so that each row is aligned for wide loads."""
    return -(-part // 16) * 16
