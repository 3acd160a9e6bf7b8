"""Collectives with a root: broadcast, reduce, scatter, gather. And ``barrier``.

``src`` and ``dst`` are global ranks, as in torch.distributed. For groups, ``async_op``, order and errors see ``ccl``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from .launch import run
from .plans import PLANS, prepare_move
from .reduce_op import ReduceOp

if TYPE_CHECKING:
    from iris_under_test.host.groups import Members
    from iris_under_test.host.iris import Iris

    from .config import Config
    from .work import Work

__all__ = ["barrier", "broadcast", "gather", "reduce", "scatter"]


def broadcast(
    tensor: torch.Tensor,
    ctx: Iris,
    src: int = 0,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    config: Config | None = None,
) -> Work | None:
    """``tensor`` (M, N) of rank ``src`` to all members, each of which reads a share of it and passes that on.

    On the heap, any strides and dtypes. Bitwise: elements are only moved.

    Raises:
        ValueError: ``src`` is no member; the tensor is not 2-D, or off the heap; or the tile does not fit.
    """

    def prepare(members: Members) -> Any:
        root = members.place_of(src, "src")
        return prepare_move(PLANS["broadcast"], tensor, tensor, ctx, members, config, root=root)

    return run("broadcast", ctx, group, async_op, prepare)


def reduce(
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor,
    ctx: Iris,
    dst: int = 0,
    op: ReduceOp = ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    config: Config | None = None,
) -> Work | None:
    """Both (M, N): the members' inputs, reduced, in ``output_tensor`` of rank ``dst``; other outputs stay as they are.

    Both on the heap, on every member: each reduces a share of the tensor, as ``reduce_scatter`` does, and writes it to
    ``dst``. ``output_tensor`` may be ``input_tensor``. The same inputs always give the same bits.

    Raises:
        ValueError: ``dst`` is no member; shapes, dtypes, ``op`` or tile do not fit; or a tensor is off the heap.
    """

    def prepare(members: Members) -> Any:
        root = members.place_of(dst, "dst")
        return prepare_move(PLANS["reduce"], output_tensor, input_tensor, ctx, members, config, op=op, root=root)

    return run("reduce", ctx, group, async_op, prepare)


def scatter(
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor | None,
    ctx: Iris,
    src: int = 0,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    config: Config | None = None,
) -> Work | None:
    """Row block j of ``input_tensor`` (W*M, N) of rank ``src`` to ``output_tensor`` (M, N) of member j.

    The output on the heap; the input is needed on ``src`` only, elsewhere it is None. Any strides and dtypes. Bitwise.

    Raises:
        ValueError: ``src`` is no member, or has no input; shapes, dtypes or tile do not fit; the output is off the
            heap.
    """

    def prepare(members: Members) -> Any:
        root = members.place_of(src, "src")
        given = input_tensor if members.rank == root else None
        if given is None and members.rank == root:
            raise ValueError(f"scatter: rank {src} is the source, and its input is None")
        return prepare_move(PLANS["scatter"], output_tensor, given, ctx, members, config, root=root)

    return run("scatter", ctx, group, async_op, prepare)


def gather(
    output_tensor: torch.Tensor | None,
    input_tensor: torch.Tensor,
    ctx: Iris,
    dst: int = 0,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    config: Config | None = None,
) -> Work | None:
    """``input_tensor`` (M, N) of member j becomes row block j of ``output_tensor`` (W*M, N) of rank ``dst``.

    The input on the heap; the output is needed on ``dst`` only, elsewhere it is None. Any strides and dtypes. Bitwise.

    Raises:
        ValueError: ``dst`` is no member, or has no output; shapes, dtypes or tile do not fit; the input is off the
            heap.
    """

    def prepare(members: Members) -> Any:
        root = members.place_of(dst, "dst")
        given = output_tensor if members.rank == root else None
        if given is None and members.rank == root:
            raise ValueError(f"gather: rank {dst} is the destination, and its output is None")
        return prepare_move(PLANS["gather"], given, input_tensor, ctx, members, config, root=root)

    return run("gather", ctx, group, async_op, prepare)


def barrier(ctx: Iris, group: dist.ProcessGroup | None = None) -> None:
    """Waits on the host for this rank's device, then for every member: ``Iris.barrier``."""
    ctx.barrier(group=group)
