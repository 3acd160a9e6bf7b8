"""matmul_reduce_scatter: the sum of every rank's product, each tile on the rank that it belongs to."""

from __future__ import annotations

import torch

from iris_under_test.host.instance import Instance

from .config import FusedConfig
from .launch import call, preamble
from .operands import Operands
from .reduction import MATMUL_REDUCE_SCATTER
from .workspace import FusedWorkspace

__all__ = ["matmul_reduce_scatter", "matmul_reduce_scatter_preamble"]


def matmul_reduce_scatter(
    ctx: Instance,
    C: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    async_op: bool = False,
    config: FusedConfig | None = None,
    workspace: FusedWorkspace | None = None,
    bias: torch.Tensor | None = None,
) -> FusedWorkspace:
    """Write this rank's tiles of the sum over ranks of ``A`` (M, K) @ ``B`` (K, N), plus ``bias`` (M,), into ``C`` (M,
    N).

    float16, bfloat16 or float32, the same for all tensors; any strides; the output in any memory. Tiles of
    ``block_size_m`` x ``block_size_n`` are numbered in the grouped order of ``group_size_m`` (row by row if that is 1):
    of T tiles and W ranks, rank r gets [r * S, (r + 1) * S) with S = T // W, and the last rank also the remaining ones.
    The other tiles of its output stay unchanged. Each rank adds its own bias. (The method of upstream Iris always
    raises TypeError.)

    A rank's part of a tile travels in the dtype of the tensors, and parts are summed in float32, in the order of ranks:
    the same bits every time. See ``ops`` for the rules of every op.

    Raises:
        ValueError (FusedShapeError): shapes, dtypes or devices do not fit; ValueError: a field of the configuration is
            invalid.
    """
    return call(MATMUL_REDUCE_SCATTER, ctx, Operands(C, A, B, bias), async_op, config, workspace)


def matmul_reduce_scatter_preamble(
    ctx: Instance,
    C: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    config: FusedConfig | None = None,
    workspace: FusedWorkspace | None = None,
) -> FusedWorkspace:
    """Return a workspace for such calls, on the heap. Collective."""
    return preamble(MATMUL_REDUCE_SCATTER, ctx, Operands(C, A, B), config, workspace)
