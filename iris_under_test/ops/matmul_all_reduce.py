"""matmul_all_reduce: the sum of every rank's product, on every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .config import FusedConfig
from .launch import call, preamble
from .operands import Operands
from .reduction import MATMUL_ALL_REDUCE
from .workspace import FusedWorkspace

if TYPE_CHECKING:
    from iris_under_test.host.iris import Iris

__all__ = ["matmul_all_reduce", "matmul_all_reduce_preamble"]


def matmul_all_reduce(
    ctx: Iris,
    output_tensor: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    async_op: bool = False,
    config: FusedConfig | None = None,
    workspace: FusedWorkspace | None = None,
    bias: torch.Tensor | None = None,
) -> FusedWorkspace:
    """``output_tensor`` (M, N) = the sum over ranks of ``A`` (M, K) @ ``B`` (K, N), plus ``bias`` (M,) once.

    float16, bfloat16 or float32, all alike; any strides. The bias must be the same on every rank (the reference's
    method drops it). By ``config.all_reduce_variant``:

    * "two_shot": each rank sums a run of the tiles and sends the sums to all. Same bits on every rank, every time.
    * "one_shot": every rank sums every tile. Same bits on every rank, every time. Least latency, most traffic.
    * "atomic": as one_shot, by float32 atomics; the order of the sum is none in particular.
    * "spinlock": as two_shot, each tile summed in float32 under a lock; the order is none in particular.
    * "ring" is refused. (The reference accepts it and computes nothing.)

    With the first two a rank's part of a tile travels in the dtype of the tensors, as with a matmul and an all-reduce
    behind it, and parts are summed in float32; with the others it stays float32 until the sum is rounded. The output is
    on the heap for two_shot and spinlock. See ``ops`` for what holds for every op.

    Raises:
        ValueError (FusedShapeError): shapes, dtypes or devices do not fit; ValueError: the output is off the heap where
            it must not be, or the configuration does not hold.
    """
    return call(MATMUL_ALL_REDUCE, ctx, Operands(output_tensor, A, B, bias), async_op, config, workspace)


def matmul_all_reduce_preamble(
    ctx: Iris,
    output_tensor: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    config: FusedConfig | None = None,
    workspace: FusedWorkspace | None = None,
) -> FusedWorkspace:
    """The workspace of such calls, on the heap. Collective."""
    return preamble(MATMUL_ALL_REDUCE, ctx, Operands(output_tensor, A, B), config, workspace)
