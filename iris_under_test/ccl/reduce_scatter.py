"""Reduce-scatter: each member receives some tiles of the reduced tensor."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from iris_under_test.host.groups import Members
from iris_under_test.host.instance import Instance

from .call import run
from .config import REDUCE_SCATTER_VARIANTS, Config
from .plans import PLANS, prepare_move
from .reduce_op import ReduceOp
from .work import Work

__all__ = ["reduce_scatter"]


def reduce_scatter(
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor,
    ctx: Instance,
    op: ReduceOp = ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    config: Config | None = None,
) -> Work | None:
    """Reduce the members' inputs (M, N); each member writes only the tiles that it owns. Unlike torch's, the output is
    (M, N) too.

    Tiles of block_size_m x block_size_n (32 x 64 without a config) are numbered in the grouped order of
    ``swizzle_size``; of T tiles, S = ceil(T / W), member r owns r*S to r*S + S - 1 (``all_reduce_distribution`` 1, the
    default) or those whose number is r modulo W (0).

    Any strides; the input must be on the heap; ``output_tensor`` may be ``input_tensor``. All ``ReduceOp``s, bitwise
    ones for integers; float16 and bfloat16 are summed in float32, others in their own type, in the members' order:
    equal inputs always give the same bits. For groups, ``async_op``, order and errors see ``ccl``.

    Example: W = 2, (2, 64) with tiles 1 x 64: member 0 writes row 0, member 1 row 1.

    Raises:
        ValueError: shapes, dtypes, ``op``, variant or tile do not fit, or the input is not on the heap.
    """

    def prepare(members: Members) -> Any:
        variant = REDUCE_SCATTER_VARIANTS[0] if config is None else config.reduce_scatter_variant
        if variant not in REDUCE_SCATTER_VARIANTS:
            raise ValueError(f"reduce_scatter_variant must be one of {REDUCE_SCATTER_VARIANTS}, got {variant!r}")
        return prepare_move(PLANS["reduce_scatter"], output_tensor, input_tensor, ctx, members, config, op=op)

    return run("reduce_scatter", ctx, group, async_op, prepare)
