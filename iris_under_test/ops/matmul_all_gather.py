"""matmul_all_gather: each rank multiplies its rows, and everybody gets all of the result."""

from __future__ import annotations

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

    def prepare(members: Members) -> tuple[Plan, str, Launch]:
        plan = _plan(ctx, members, output_tensor, A, B, bias, config)
        offset = symmetric_offset(output_tensor, "matmul_all_gather: the output", ctx)

        def launch(_: FusedWorkspace) -> None:
            _launch(ctx, plan, output_tensor, A, B, bias)

        return plan, plan.told(output_at=offset, strides=output_tensor.stride()), launch

    return call("matmul_all_gather", ctx, async_op, workspace, prepare)


def matmul_all_gather_preamble(
    ctx: Iris,
    output_tensor: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    config: FusedConfig | None = None,
    workspace: FusedWorkspace | None = None,
) -> FusedWorkspace:
    """The workspace of such calls, which holds no memory. Collective."""
    return preamble(
        "matmul_all_gather", ctx, workspace, lambda members: _plan(ctx, members, output_tensor, A, B, None, config)
    )


def _plan(
    ctx: Iris,
    members: Members,
    output_tensor: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    bias: torch.Tensor | None,
    config: FusedConfig | None,
) -> Plan:
    op = "matmul_all_gather"
    check_matrices(op, output=output_tensor, A=A, B=B)
    (rows, k), n = A.shape, B.shape[1]
    m = rows * members.size
    operands = [("A", A, (rows, k)), ("B", B, (k, n)), ("output", output_tensor, (m, n))]
    check_operands(op, operands, bias, rows, ctx.get_device())
    return plan_of(op, ctx, members, (m, n, k), rows, A.dtype, config)


def _launch(
    ctx: Iris, plan: Plan, output_tensor: torch.Tensor, A: torch.Tensor, B: torch.Tensor, bias: torch.Tensor | None
) -> None:
    from .triton.all_gather import matmul_and_push

    members, config = plan.members, plan.config
    iris_launch(
        matmul_and_push, (plan.programs,),
        members.context, members.pads, members.rank, A, B, output_tensor, A if bias is None else bias,
        A.shape[0], B.shape[1], A.shape[1],
        *A.stride(), *B.stride(), *output_tensor.stride(), 0 if bias is None else bias.stride(0),
        BIASED=bias is not None, ALIGNMENT=alignment_of(output_tensor),
        NUM_XCDS=config.num_xcds, CHUNK=config.chunk_size, **plan.blocks(A.shape[1]),
        algorithm=plan.operation, rank=ctx.get_rank(), dtype=plan.dtype,
    )  # fmt: skip
