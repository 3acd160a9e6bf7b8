"""matmul_all_gather: each rank multiplies its rows, and every rank gets the whole result."""

from __future__ import annotations

import torch

from iris_under_test.host.groups import Members
from iris_under_test.host.instance import Instance
from iris_under_test.kernels.matmul_push import matmul_and_push

from .config import FusedConfig
from .launch import FusedOp, Plan, call, enqueue, plan_of, preamble
from .operands import Operands
from .workspace import FusedWorkspace

__all__ = ["matmul_all_gather", "matmul_all_gather_preamble"]


def matmul_all_gather(
    ctx: Instance,
    C: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    bias: torch.Tensor | None = None,
    async_op: bool = False,
    config: FusedConfig | None = None,
    workspace: FusedWorkspace | None = None,
) -> FusedWorkspace:
    """Compute every rank's ``A`` (M/W, K) @ its ``B`` (K, N) plus its ``bias`` (M/W,); stack them by rank in ``C`` (M,
    N) on each rank.

    float16, bfloat16 or float32, the same for all tensors; any strides; the output must be on the heap. Sums are
    float32 and rounded once, so all ranks get the same bits. Tiles are sent as they are finished. See ``ops`` for the
    rules of every op.

    Raises:
        ValueError (FusedShapeError): shapes, dtypes or devices do not fit; ValueError: the output is not on the heap,
        or
            a field of the configuration is invalid.
    """

    given = Operands(C, A, B, bias)
    return call(MATMUL_ALL_GATHER, ctx, given, async_op, config, workspace)


def matmul_all_gather_preamble(
    ctx: Instance,
    C: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    config: FusedConfig | None = None,
    workspace: FusedWorkspace | None = None,
) -> FusedWorkspace:
    """Return a workspace for such calls; it holds no memory. Collective."""
    return preamble(MATMUL_ALL_GATHER, ctx, Operands(C, A, B), config, workspace)


def _plan(ctx: Instance, members: Members, given: Operands, config: FusedConfig | None) -> Plan:
    return plan_of("matmul_all_gather", ctx, members, given, config, stacked=members.size, reached="output")


def _launch(ctx: Instance, plan: Plan, given: Operands, workspace: FusedWorkspace) -> None:
    enqueue(
        matmul_and_push, ctx, plan, given,
        given.A, given.B, given.output, given.addend, given.A.shape[0], given.B.shape[1], given.A.shape[1],
        *given.strides, NUM_XCDS=plan.config.num_xcds, CHUNK=plan.config.chunk_size,
    )  # fmt: skip


MATMUL_ALL_GATHER = FusedOp("matmul_all_gather", _plan, _launch)
