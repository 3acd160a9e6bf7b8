"""How a collective is called: who agrees on what before its kernel is launched, and what waits for it."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from iris_under_test.host.distributed.helpers import exchange
from iris_under_test.host.platform.base import warp_size

from .work import Work

if TYPE_CHECKING:
    from iris_under_test.host.groups import Members
    from iris_under_test.host.iris import Iris

    from .config import Config

__all__ = ["compiler_options", "lane_layout", "run", "symmetric_offset"]

Launch = Callable[[], None]


def run(
    op: str,
    ctx: Iris,
    group: dist.ProcessGroup | None,
    async_op: bool,
    prepare: Callable[[Members], tuple[str, Launch]],
) -> Work | None:
    """One call of ``op``. ``prepare`` checks the arguments, and says what all members must have passed alike and how
    the kernel is launched; it waits for nobody.

    Without ``async_op`` the members tell one another on the host before anybody launches, and this rank waits for its
    stream afterwards. With it nothing is said: who raises does not take part, and the others' devices wait for it.

    Raises:
        RuntimeError: this rank is not in the group; another member's ``prepare`` has raised, or is at another call;
            a graph is being captured, without ``async_op``.
        ValueError: the members did not pass the same; the text has what each of them passed.
    """
    members = ctx.members(group)
    device = ctx.get_device()
    if async_op:
        _, launch = prepare(members)
        launch()
        return Work(device)
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(f"{op} waits on the host without async_op=True, which a graph cannot capture")
    _agreed(op, members, prepare)()
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
    return None


def symmetric_offset(tensor: torch.Tensor, what: str, ctx: Iris) -> int:
    """Bytes from the heap's start to a tensor that other members reach. ValueError if it is not on the heap."""
    if not ctx.is_symmetric(tensor):
        raise ValueError(f"{what} is not on the symmetric heap")
    return tensor.data_ptr() - int(ctx.heap.get_heap_bases()[ctx.cur_rank]) if tensor.numel() else 0


def compiler_options(config: Config) -> dict[str, Any]:
    """What a launch tells the compiler. ``waves_per_eu`` only for AMD GPUs: Triton refuses it for others."""
    from triton.runtime import driver

    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    if config.waves_per_eu and driver.active.get_current_target().backend == "hip":
        options["waves_per_eu"] = config.waves_per_eu
    return options


def lane_layout(config: Config, elements: int, element_size: int) -> tuple[int, ...]:
    """The last arguments of a Gluon kernel: elements per lane, up to 16 bytes; lanes; wavefronts. Triton's has none."""
    if not config.use_gluon:
        return ()
    lanes = warp_size()
    per_lane = max(elements // (lanes * config.num_warps), 1)
    return min(per_lane, max(16 // element_size, 1)), lanes, config.num_warps


def _agreed(op: str, members: Members, prepare: Callable[[Members], tuple[str, Launch]]) -> Launch:
    """The launch that ``prepare`` gives, once every member's has given the same."""
    told, error = "", None
    launch: Launch | None = None
    try:
        told, launch = prepare(members)
    except Exception as failure:  # noqa: BLE001 - raised below, once the others have been told
        error = failure
    rows = exchange([error is not None, zlib.crc32(told.encode())], members.group, op)
    if error is not None:
        raise error
    failed = [members.ranks[place] for place, (bad, _) in enumerate(rows) if bad]
    if failed:
        raise RuntimeError(f"{op} failed on ranks {failed}")
    if len({crc for _, crc in rows}) > 1:
        passed: list[Any] = [None] * len(rows)
        dist.all_gather_object(passed, told, group=members.group)
        raise ValueError(f"{op}: every member must pass the same, got {dict(zip(members.ranks, passed, strict=True))}")
    assert launch is not None  # sanity check: prepare raised or returned
    return launch
