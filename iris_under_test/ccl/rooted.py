"""Collectives with a root: broadcast, reduce, scatter, gather. And ``barrier``.

``src`` and ``dst`` are global ranks, as in torch.distributed. For groups, ``async_op``, order and errors see ``ccl``.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from iris_under_test.host.groups import Members
from iris_under_test.host.instance import Instance

from .call import run
from .config import Config
from .plans import PLANS, prepare_move
from .reduce_op import ReduceOp
from .work import Work

__all__ = ["barrier", "broadcast", "gather", "reduce", "scatter"]


def broadcast(
    tensor: torch.Tensor,
    ctx: Instance,
    src: int = 0,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    config: Config | None = None,
) -> Work | None:
    """Send ``tensor`` (M, N) of rank ``src`` to all members; each member reads a part of it and passes that on.

    The tensor must be on the heap; any strides and dtypes. Elements are moved bit for bit.

    Raises:
        ValueError: ``src`` is not a member; the tensor is not 2-D or not on the heap; or the tile does not fit.
    """

    def prepare(members: Members) -> Any:
        root = members.place_of(src, "src")
        return prepare_move(PLANS["broadcast"], tensor, tensor, ctx, members, config, root=root)

    return run("broadcast", ctx, group, async_op, prepare)


def reduce(
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor,
    ctx: Instance,
    dst: int = 0,
    op: ReduceOp = ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    config: Config | None = None,
) -> Work | None:
    """Reduce the members' inputs (M, N) into ``output_tensor`` of rank ``dst``; other outputs stay unchanged.

    Both tensors must be on the heap, on every member: each member reduces a part of the tensor, as in
    ``reduce_scatter``, and writes it to ``dst``. ``output_tensor`` may be ``input_tensor``. Equal inputs always give
    the same bits.

    Raises:
        ValueError: ``dst`` is not a member; shapes, dtypes, ``op`` or tile do not fit; or a tensor is not on the heap.
    """

    def prepare(members: Members) -> Any:
        root = members.place_of(dst, "dst")
        return prepare_move(PLANS["reduce"], output_tensor, input_tensor, ctx, members, config, op=op, root=root)

    return run("reduce", ctx, group, async_op, prepare)


def scatter(
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor | None,
    ctx: Instance,
    src: int = 0,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    config: Config | None = None,
) -> Work | None:
    """Send row block j of ``input_tensor`` (W*M, N) of rank ``src`` to ``output_tensor`` (M, N) of member j.

    The output must be on the heap; only ``src`` needs the input, elsewhere it is None. Any strides and dtypes. Elements
    are moved bit for bit.

    Raises:
        ValueError: ``src`` is not a member, or has no input; shapes, dtypes or tile do not fit; the output is not on
            the heap.
    """

    def prepare(members: Members) -> Any:
        root = members.place_of(src, "src")
        given = input_tensor if members.rank == root else None
        if given is None and members.rank == root:
            raise ValueError(f"scatter: input_tensor must be a tensor on the source rank {src}, got None")
        return prepare_move(PLANS["scatter"], output_tensor, given, ctx, members, config, root=root)

    return run("scatter", ctx, group, async_op, prepare)


def gather(
    output_tensor: torch.Tensor | None,
    input_tensor: torch.Tensor,
    ctx: Instance,
    dst: int = 0,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    config: Config | None = None,
) -> Work | None:
    """Gather ``input_tensor`` (M, N) of member j as row block j of ``output_tensor`` (W*M, N) of rank ``dst``.

    The input must be on the heap; only ``dst`` needs the output, elsewhere it is None. Any strides and dtypes. Elements
    are moved bit for bit.

    Raises:
        ValueError: ``dst`` is not a member, or has no output; shapes, dtypes or tile do not fit; the input is not on
            the heap.
    """

    def prepare(members: Members) -> Any:
        root = members.place_of(dst, "dst")
        given = output_tensor if members.rank == root else None
        if given is None and members.rank == root:
            raise ValueError(f"gather: output_tensor must be a tensor on the destination rank {dst}, got None")
        return prepare_move(PLANS["gather"], given, input_tensor, ctx, members, config, root=root)

    return run("gather", ctx, group, async_op, prepare)


def barrier(ctx: Instance, group: dist.ProcessGroup | None = None) -> None:
    """Wait on the host for this rank's device, then for every member: ``Iris.barrier``."""
    ctx.barrier(group=group)
