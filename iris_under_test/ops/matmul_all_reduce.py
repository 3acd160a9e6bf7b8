"""matmul_all_reduce: the sum of every rank's product, on every rank."""

from __future__ import annotations

import torch

from iris_under_test.host.instance import Instance

from .config import FusedConfig
from .launch import call, preamble
from .operands import Operands
from .reduction import MATMUL_ALL_REDUCE
from .workspace import FusedWorkspace

__all__ = ["matmul_all_reduce", "matmul_all_reduce_preamble"]


def matmul_all_reduce(
    ctx: Instance,
    C: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    async_op: bool = False,
    config: FusedConfig | None = None,
    workspace: FusedWorkspace | None = None,
    bias: torch.Tensor | None = None,
) -> FusedWorkspace:
    """Compute ``C`` (M, N) = the sum over ranks of ``A`` (M, K) @ ``B`` (K, N), plus ``bias`` (M,) once, on every rank.

    float16, bfloat16 or float32, the same for all tensors; any strides. The bias must be the same on every rank. (The
    method of upstream Iris ignores it.) Values of ``config.all_reduce_variant``:

    * "two_shot": each rank sums a run of the tiles and sends the sums to all. Same bits on every rank, every time.
    * "one_shot": every rank sums every tile. Same bits on every rank, every time. Least latency, most traffic.
    * "atomic": as one_shot, by float32 atomics, in no fixed order.
    * "spinlock": as two_shot, each tile summed in float32 under a lock, in no fixed order.
    * "ring" is refused. (Upstream Iris accepts it and computes nothing.)

    With the first two, a rank's part of a tile travels in the dtype of the tensors, as with a matmul followed by an
    all-reduce, and parts are summed in float32; with the others it stays float32 until the sum is rounded. The output
    must be on the heap for two_shot and spinlock. See ``ops`` for the rules of every op.

    Raises:
        ValueError (FusedShapeError): shapes, dtypes or devices do not fit; ValueError: the output must be on the heap
        and
            is not, or a field of the configuration is invalid.
    """
    return call(MATMUL_ALL_REDUCE, ctx, Operands(C, A, B, bias), async_op, config, workspace)


def matmul_all_reduce_preamble(
    ctx: Instance,
    C: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    config: FusedConfig | None = None,
    workspace: FusedWorkspace | None = None,
) -> FusedWorkspace:
    """Return a workspace for such calls, on the heap. Collective."""
    return preamble(MATMUL_ALL_REDUCE, ctx, Operands(C, A, B), config, workspace)
