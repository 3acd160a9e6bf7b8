"""All-to-all: a block of columns from every member to every other one."""

from __future__ import annotations

import torch
import torch.distributed as dist

from iris_under_test.host.instance import Instance

from .call import run
from .config import Config
from .plans import PLANS, prepare_move
from .work import Work

__all__ = ["GLUON_AVAILABLE", "all_to_all"]

GLUON_AVAILABLE = True
"""See ``ccl.all_gather``."""


def all_to_all(
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor,
    ctx: Instance,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    config: Config | None = None,
) -> Work | None:
    """Exchange column blocks: block j of member i's input becomes block i of member j's output. Both are (M, W*N).

    Any strides and dtypes; the output must be on the heap and must not overlap the input. Elements are moved bit for
    bit. For groups, ``async_op``, order and errors see ``ccl``. In upstream Iris the Gluon kernel needs 4 warps of 64
    lanes, and columns beyond a multiple of W are dropped; here any work-group shape works, and such columns are an
    error.

    Example: W = 2, M = 1: members have [0 1] and [2 3], and receive [0 2] and [1 3].

    Raises:
        ValueError: shapes, dtypes or tile do not fit, or the output is not on the heap.
    """
    plan = PLANS["all_to_all"]
    return run(
        "all_to_all", ctx, group, async_op,
        lambda members: prepare_move(plan, output_tensor, input_tensor, ctx, members, config),
    )  # fmt: skip
