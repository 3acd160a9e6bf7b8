"""All-gather: every member's rows, stacked by group rank, on every member."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from iris_under_test.host.groups import Members
from iris_under_test.host.instance import Instance

from .call import run
from .config import ALL_GATHER_VARIANTS, Config
from .plans import PLANS, Plan, prepare_move
from .work import Work

__all__ = ["GLUON_AVAILABLE", "all_gather"]

GLUON_AVAILABLE = True
"""Always True: this library needs Triton 3.6 or later, which has Gluon. Programs for upstream Iris read this name."""


def all_gather(
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor,
    ctx: Instance,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    config: Config | None = None,
) -> Work | None:
    """Gather ``input_tensor`` (M, N) of W members into ``output_tensor`` (W*M, N) on each, as all_gather_into_tensor
    does.

    Any strides and dtypes; the output must be on the heap. Elements are moved bit for bit. The input may be the
    member's own rows of the output. Remote stores are 16 bytes wide if both tensors are contiguous and aligned to 16
    bytes, or along N if row strides are multiples of 16 elements.

    ``all_gather_variant`` "persistent": each program sends its tiles to every member; "partitioned": to one member, and
    ``comm_sms`` must be a multiple of W (Triton only). For groups, ``async_op``, order and errors see ``ccl``.

    Raises:
        ValueError: shapes, dtypes or tile do not fit, the output is not on the heap, or ``use_gluon`` is set with
            another variant than "persistent".
    """

    def prepare(members: Members) -> Any:
        return prepare_move(_plan(config), output_tensor, input_tensor, ctx, members, config)

    return run("all_gather", ctx, group, async_op, prepare)


def _plan(config: Config | None) -> Plan:
    variant = "persistent" if config is None else config.all_gather_variant
    if variant not in ALL_GATHER_VARIANTS:  # a field may be assigned after Config has checked it
        raise ValueError(f"all_gather_variant must be one of {ALL_GATHER_VARIANTS}, got {variant!r}")
    if config is not None and config.use_gluon and variant != "persistent":
        raise ValueError(f"all_gather with Gluon: the variant must be persistent, got {variant}")
    return PLANS["all_gather" if variant == "persistent" else "all_gather partitioned"]
