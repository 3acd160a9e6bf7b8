"""matmul_all_gather: each rank multiplies its rows, and everybody gets all of the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .config import FusedConfig
from .launch import FusedOp, Plan, call, enqueue, plan_of, preamble
from .operands import Operands
from .workspace import FusedWorkspace

if TYPE_CHECKING:
    from iris_under_test.host.groups import Members
    from iris_under_test.host.iris import Iris

__all__ = ["matmul_all_gather", "matmul_all_gather_preamble"]


def matmul_all_gather(
    ctx: Iris,
    output_tensor: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    bias: torch.Tensor | None = None,
    async_op: bool = False,
    config: FusedConfig | None = None,
    workspace: FusedWorkspace | None = None,
) -> FusedWorkspace:
    """``output_tensor`` (M, N) = every rank's ``A`` (M/W, K) @ its ``B`` (K, N), plus its ``bias`` (M/W,), stacked by
    rank, on each of W ranks.

    float16, bfloat16 or float32, all alike; any strides; the output on the heap. Sums are float32 and rounded once, so
    all ranks get the same bits. Tiles are pushed as they are finished: see ``ops`` for what holds for every op.

    Raises:
        ValueError (FusedShapeError): shapes, dtypes or devices do not fit; ValueError: the output is off the heap, or
            the configuration does not hold.
    """

    given = Operands(output_tensor, A, B, bias)
    return call(MATMUL_ALL_GATHER, ctx, given, async_op, config, workspace)


def matmul_all_gather_preamble(
    ctx: Iris,
    output_tensor: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    config: FusedConfig | None = None,
    workspace: FusedWorkspace | None = None,
) -> FusedWorkspace:
    """The workspace of such calls, which holds no memory. Collective."""
    return preamble(MATMUL_ALL_GATHER, ctx, Operands(output_tensor, A, B), config, workspace)


def _plan(ctx: Iris, members: Members, given: Operands, config: FusedConfig | None) -> Plan:
    return plan_of("matmul_all_gather", ctx, members, given, config, stacked=members.size, reached="output")


def _launch(ctx: Iris, plan: Plan, given: Operands, workspace: FusedWorkspace) -> None:
    from .triton.all_gather import matmul_and_push

    enqueue(
        matmul_and_push, ctx, plan, given,
        given.A, given.B, given.output, given.addend, given.A.shape[0], given.B.shape[1], given.A.shape[1],
        *given.strides, NUM_XCDS=plan.config.num_xcds, CHUNK=plan.config.chunk_size,
    )  # fmt: skip


MATMUL_ALL_GATHER = FusedOp("matmul_all_gather", _plan, _launch)
