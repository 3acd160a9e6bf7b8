"""All-to-all: a block of columns from every member to every other one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from .launch import run
from .plans import PLANS, prepare_move

if TYPE_CHECKING:
    from iris_under_test.host.iris import Iris

    from .config import Config
    from .work import Work

__all__ = ["GLUON_AVAILABLE", "all_to_all"]

GLUON_AVAILABLE = True
"""See ``ccl.all_gather``."""


def all_to_all(
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor,
    ctx: Iris,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    config: Config | None = None,
) -> Work | None:
    """Both (M, W*N): column block j of member i's input becomes column block i of member j's output.

    Any strides and dtypes; the output on the heap, and not where the input is. Bitwise: elements are only moved. For
    groups, ``async_op``, order and errors see ``ccl``. In the reference the Gluon kernel needs 4 warps of 64 lanes and
    columns beyond a multiple of W are dropped; here any shape of work-group will do, and such columns are an error.

    Example: W = 2, M = 1: members have [0 1] and [2 3], and get [0 2] and [1 3].

    Raises:
        ValueError: shapes, dtypes or tile do not fit, or the output is off the heap.
    """
    plan = PLANS["all_to_all"]
    return run(
        "all_to_all", ctx, group, async_op,
        lambda members: prepare_move(plan, output_tensor, input_tensor, ctx, members, config),
    )  # fmt: skip
