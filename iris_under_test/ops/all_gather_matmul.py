"""all_gather_matmul: the shards of A are gathered while the product has begun."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
import triton

from .config import FusedConfig
from .launch import FusedOp, Plan, call, enqueue, plan_of, preamble
from .operands import Operands
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

    given = Operands(output_tensor, A_shard, B, bias)
    return call(ALL_GATHER_MATMUL, ctx, given, async_op, config, workspace)


def all_gather_matmul_preamble(
    ctx: Iris,
    output_tensor: torch.Tensor,
    A_shard: torch.Tensor,
    B: torch.Tensor,
    config: FusedConfig | None = None,
    workspace: FusedWorkspace | None = None,
) -> FusedWorkspace:
    """The workspace of such calls, with room for all of A, beside the heap. Collective."""
    return preamble(ALL_GATHER_MATMUL, ctx, Operands(output_tensor, A_shard, B), config, workspace)


def _plan(ctx: Iris, members: Members, given: Operands, config: FusedConfig | None) -> Plan:
    from .triton.gather import COUNTERS

    plan = plan_of("all_gather_matmul", ctx, members, given, config, shards=members.size, reached="A")
    m, part = given.A.shape
    units = triton.cdiv(m, plan.config.block_size_m) * members.size
    return replace(
        plan,
        buffers=(members.size * m * _padded(part), COUNTERS + units),
        aux_dtype=plan.dtype,
        symmetric=False,
        locks_start=(0, 0, 1),
    )


def _launch(ctx: Iris, plan: Plan, given: Operands, workspace: FusedWorkspace) -> None:
    from .triton.gather import gather_and_matmul

    m, part = given.A.shape
    of_shard, of_others = given.strides[:2], given.strides[2:]
    gathered = given.A if workspace.aux_buffer is None else workspace.aux_buffer  # None where the shard is empty
    enqueue(
        gather_and_matmul, ctx, plan, given,
        given.A, gathered, workspace.locks, given.B, given.output, given.addend, m, given.B.shape[1], part,
        *of_shard, _padded(part), *of_others, max(1, plan.programs // _GATHERING),
        COPY_K=_COPIED_BYTES // plan.dtype.itemsize,
    )  # fmt: skip


def _padded(part: int) -> int:
    """Elements between rows of the gathered shards: so that each row is aligned for wide loads."""
    return -(-part // 16) * 16


ALL_GATHER_MATMUL = FusedOp("all_gather_matmul", _plan, _launch)
