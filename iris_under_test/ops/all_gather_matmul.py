"""all_gather_matmul: gathers the shards of A while the product is being computed."""

from __future__ import annotations

from dataclasses import replace

import torch
import triton

from iris_under_test.host.groups import Members
from iris_under_test.host.instance import Instance
from iris_under_test.kernels.gather_matmul import COUNTERS, gather_and_matmul

from .config import FusedConfig
from .launch import FusedOp, Plan, call, enqueue, plan_of, preamble
from .operands import Operands
from .workspace import FusedWorkspace

__all__ = ["all_gather_matmul", "all_gather_matmul_preamble"]

_GATHERING = 4
"""One of this many programs gathers."""
_COPIED_BYTES = 256
"""Bytes of a row that are copied at once: two lines of 128 bytes."""


def all_gather_matmul(
    ctx: Instance,
    C: torch.Tensor,
    A_sharded: torch.Tensor,
    B: torch.Tensor,
    bias: torch.Tensor | None = None,
    async_op: bool = False,
    config: FusedConfig | None = None,
    workspace: FusedWorkspace | None = None,
) -> FusedWorkspace:
    """Compute ``C`` (M, N) = A @ ``B`` (K, N) plus ``bias`` (M,) on each rank, where A (M, K) has its columns sharded.

    A is the ``A_sharded`` (M, K/W) of each of W ranks, in the order of ranks. float16, bfloat16 or float32, the same
    for all tensors; any strides; the shard must be on the heap. Every rank has its own ``B``, ``C`` and bias. Sums are
    float32, over K from 0 upwards, and rounded once: ranks that pass equal B get equal bits. The workspace has room for
    all of A, outside the heap. See ``ops`` for the rules of every op.

    Raises:
        ValueError (FusedShapeError, an AssertionError too): shapes, dtypes or devices do not fit; ValueError: the shard
            is not on the heap, or a field of the configuration is invalid.
    """

    given = Operands(C, A_sharded, B, bias)
    return call(ALL_GATHER_MATMUL, ctx, given, async_op, config, workspace)


def all_gather_matmul_preamble(
    ctx: Instance,
    C: torch.Tensor,
    A_sharded: torch.Tensor,
    B: torch.Tensor,
    config: FusedConfig | None = None,
    workspace: FusedWorkspace | None = None,
) -> FusedWorkspace:
    """Return a workspace for such calls, with room for all of A, outside the heap. Collective."""
    return preamble(ALL_GATHER_MATMUL, ctx, Operands(C, A_sharded, B), config, workspace)


def _plan(ctx: Instance, members: Members, given: Operands, config: FusedConfig | None) -> Plan:
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


def _launch(ctx: Instance, plan: Plan, given: Operands, workspace: FusedWorkspace) -> None:
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
    """Return the elements between rows of the gathered shards, so that each row is aligned for wide loads."""
    return -(-part // 16) * 16


ALL_GATHER_MATMUL = FusedOp("all_gather_matmul", _plan, _launch)
