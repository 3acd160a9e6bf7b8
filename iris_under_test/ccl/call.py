"""Calling a collective: agreement of the members before the launch, and waiting for the result."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from iris_under_test.host.distributed.helpers import exchange
from iris_under_test.host.streams import current_stream, is_capturing

from .work import Work

if TYPE_CHECKING:
    from iris_under_test.host.groups import Members
    from iris_under_test.host.instance import Instance

__all__ = ["run", "symmetric_offset"]

Launch = Callable[[], None]


def run(
    op: str,
    ctx: Instance,
    group: dist.ProcessGroup | None,
    async_op: bool,
    prepare: Callable[[Members], tuple[str, Launch]],
) -> Work | None:
    """Run one call of ``op``.

    ``prepare`` checks the arguments, without waiting for other members. It returns the arguments that all members must
    pass alike, as text, and a function that launches the kernel.

    Without ``async_op`` the members compare their arguments on the host before any of them launches, and this rank
    waits for its stream afterwards. With ``async_op`` there is no message on the host: a member that raises does not
    take part, and the devices of the others wait for it.

    Raises:
        RuntimeError: this rank is not in the group; another member's ``prepare`` raised, or that member is at another
            call; a graph is being captured, without ``async_op``.
        ValueError: the members passed different arguments; the text shows the arguments of each.
    """
    members = ctx.members(group)
    device = ctx.get_device()
    if async_op:
        _, launch = prepare(members)
        launch()
        return Work(device)
    if is_capturing(device):
        raise RuntimeError(f"{op} waits on the host without async_op=True, which a graph cannot capture")
    _agreed(op, members, prepare)()
    stream = current_stream(device)
    if stream is not None:
        stream.synchronize()
    return None


def symmetric_offset(tensor: torch.Tensor, name: str, ctx: Instance) -> int:
    """Return the bytes from the heap's start to a tensor that other members access. ValueError if it is not on the
    heap.
    """
    if not ctx.is_symmetric(tensor):
        raise ValueError(f"{name} is not on the symmetric heap")
    return tensor.data_ptr() - int(ctx.heap.get_heap_bases()[ctx.cur_rank]) if tensor.numel() else 0


def _agreed(op: str, members: Members, prepare: Callable[[Members], tuple[str, Launch]]) -> Launch:
    """Return the launch of ``prepare``, after all members have passed the same arguments."""
    arguments, error = "", None
    launch: Launch | None = None
    try:
        arguments, launch = prepare(members)
    except Exception as failure:  # noqa: BLE001 - raised below, after the other members have been notified
        error = failure
    rows = exchange([error is not None, zlib.crc32(arguments.encode())], members.group, op)
    if error is not None:
        raise error
    failed = [members.ranks[place] for place, (bad, _) in enumerate(rows) if bad]
    if failed:
        raise RuntimeError(f"{op} failed on ranks {failed}")
    if len({crc for _, crc in rows}) > 1:
        passed: list[Any] = [None] * len(rows)
        dist.all_gather_object(passed, arguments, group=members.group)
        raise ValueError(
            f"{op}: every member must pass the same arguments, got {dict(zip(members.ranks, passed, strict=True))}"
        )
    assert launch is not None  # sanity check: prepare raised or returned
    return launch
