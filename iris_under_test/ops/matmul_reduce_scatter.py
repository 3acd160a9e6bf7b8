"""matmul_reduce_scatter: the sum of every rank's product, each tile on the rank that it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .config import FusedConfig
from .launch import call, preamble
from .operands import Operands
from .reduction import MATMUL_REDUCE_SCATTER
from .workspace import FusedWorkspace

if TYPE_CHECKING:
    from iris_under_test.host.iris import Iris

__all__ = ["matmul_reduce_scatter", "matmul_reduce_scatter_preamble"]


def matmul_reduce_scatter(
    ctx: Iris,
    output_tensor: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    async_op: bool = False,
    config: FusedConfig | None = None,
    workspace: FusedWorkspace | None = None,
    bias: torch.Tensor | None = None,
) -> FusedWorkspace:
    """``output_tensor`` (M, N): its tiles of the sum over ranks of ``A`` (M, K) @ ``B`` (K, N), plus ``bias`` (M,).

    float16, bfloat16 or float32, all alike; any strides; the output anywhere. Tiles of ``block_size_m`` x
    ``block_size_n`` are numbered in the grouped order of ``group_size_m`` (row by row where that is 1): of T tiles and
    W ranks, rank r gets [r * S, (r + 1) * S) with S = T // W, and the last rank the rest as well. The other tiles of
    its output stay as they are. Each rank adds its own bias. (The reference's method always raises TypeError.)

    A rank's part of a tile travels in the dtype of the tensors, and parts are summed in float32, in the order of ranks:
    the same bits every time. See ``ops`` for what holds for every op.

    Raises:
        ValueError (FusedShapeError): shapes, dtypes or devices do not fit; ValueError: the configuration does not hold.
    """
    return call(MATMUL_REDUCE_SCATTER, ctx, Operands(output_tensor, A, B, bias), async_op, config, workspace)


def matmul_reduce_scatter_preamble(
    ctx: Iris,
    output_tensor: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    config: FusedConfig | None = None,
    workspace: FusedWorkspace | None = None,
) -> FusedWorkspace:
    """The workspace of such calls, on the heap. Collective."""
    return preamble(MATMUL_REDUCE_SCATTER, ctx, Operands(output_tensor, A, B), config, workspace)
