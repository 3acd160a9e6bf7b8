"""Messages between two ranks: send, recv, sendrecv."""

from __future__ import annotations

import functools
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from iris_under_test.device.mailboxes import MAX_TAGS
from iris_under_test.device.signals import MAX_PROGRAMS
from iris_under_test.host.distributed.helpers import is_outside
from iris_under_test.host.platform.base import warp_size
from iris_under_test.host.streams import is_capturing
from iris_under_test.host.tracing.kernel_artifacts import iris_launch
from iris_under_test.kernels.messages import exchange_gluon, exchange_triton

from .call import symmetric_offset
from .config import Config
from .kernel_launch import compiler_options
from .overlap import shares_memory
from .plans import check_lanes, check_memory, check_output
from .tuning import tuned_config
from .work import Work

if TYPE_CHECKING:
    from iris_under_test.host.instance import Instance

__all__ = ["recv", "send", "sendrecv"]

_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_LEAST_TILE = 16
_REFUSED = -1


def send(
    tensor: torch.Tensor,
    ctx: Instance,
    dst: int,
    tag: int = 0,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    config: Config | None = None,
) -> Work | None:
    """Send ``tensor`` into the tensor in which rank ``dst`` receives it. 1-D or 2-D, any strides and dtype, in any
    memory.

    A rendezvous: nothing moves before ``dst`` has reached its ``recv`` or ``sendrecv`` on the device, and neither
    stream continues before all data have arrived. Messages between two ranks with one tag are matched in order, and on
    each side their calls must be ordered, by one stream or by events. Other messages may be in progress at the same
    time on other streams; on one stream they wait for each other. Only the two ranks take part, and there is no message
    between hosts. The group restricts the ranks; it does not separate messages. Elements are moved bit for bit, 16
    bytes at a time if both tensors are contiguous, or have rows that start at multiples of 16 bytes. May be captured in
    a graph with ``async_op=True``.

    If the two sides differ in shape or dtype, nothing is moved, and each side that waits on the host raises ValueError:
    in this call without ``async_op``, else in ``synchronize`` of the handle. If a side is refused for another reason,
    it notifies the other side, which raises RuntimeError in the same way; with ``async_op`` it does not take part.

    Args:
        dst: a global rank, not this one.
        tag: 0 to 63.
        config: only tile, ``comm_sms``, ``num_warps``, ``threads_per_warp`` and ``use_gluon`` have an effect.

    Raises:
        ValueError: ``dst`` is not another member, an unknown tag, the tensor is not 1-D or 2-D, or the other side's
            differs.
        RuntimeError: this rank is not in the group; the other side was refused; a graph is being captured, without
            ``async_op``.
    """
    return _exchanged("send", ctx, group, async_op, config, tag, source=tensor, dst=dst)


def recv(
    tensor: torch.Tensor,
    ctx: Instance,
    src: int,
    tag: int = 0,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    config: Config | None = None,
) -> Work | None:
    """Receive the message of rank ``src`` in ``tensor``, which must be on the heap, at any offset. See ``send``.

    Args:
        config: refused as in ``send``; only ``use_gluon`` and the compiler's options other than ``num_warps`` have an
            effect.

    Raises:
        ValueError: as ``send``; or the tensor is not on the heap, or elements of it share memory with each other.
        RuntimeError: as ``send``.
    """
    return _exchanged("recv", ctx, group, async_op, config, tag, target=tensor, src=src)


def sendrecv(
    send_tensor: torch.Tensor,
    recv_tensor: torch.Tensor,
    ctx: Instance,
    dst: int,
    src: int,
    tag: int = 0,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    config: Config | None = None,
) -> Work | None:
    """Send to ``dst`` and receive from ``src`` in one kernel, in which neither waits for the other.

    So all members may send to the right and receive from the left. The other sides may be ``send``, ``recv`` or
    ``sendrecv``; ``dst`` and ``src`` may both be this rank itself.

    Raises:
        ValueError, RuntimeError: as ``send`` and ``recv``; ValueError if only one of ``dst`` and ``src`` is this rank,
            or the tensors share memory.
    """
    return _exchanged(
        "sendrecv", ctx, group, async_op, config, tag, source=send_tensor, dst=dst, target=recv_tensor, src=src
    )


@dataclass(frozen=True)
class _Side:
    """Shape and dtype of one side of a message: (rows, columns) and a number for the dtype, as the kernels compare
    them.
    """

    rows: int
    columns: int
    kind: int

    def __str__(self) -> str:
        return f"{(self.rows, self.columns)} {_dtypes().get(self.kind, 'of some dtype')}"


class _Delivery(Work):
    """Handle of a message. ``synchronize`` raises if the two sides differed."""

    def __init__(self, device: torch.device, report: torch.Tensor, messages: list[tuple[str, int, _Side]]) -> None:
        super().__init__(device)
        self._report = report
        self._messages = messages

    def synchronize(self) -> None:
        super().synchronize()
        report = self._report.tolist()
        for message, at, mine in self._messages:
            theirs = _Side(*report[at : at + 3])
            if theirs.kind == _REFUSED:
                raise RuntimeError(f"{message}: the call on that rank was refused; nothing was moved")
            if theirs != mine:
                raise ValueError(
                    f"{message}: both sides must pass the same shape and dtype, got {mine} here and {theirs} there; "
                    "nothing was moved"
                )


def _exchanged(
    op: str,
    ctx: Instance,
    group: dist.ProcessGroup | None,
    async_op: bool,
    config: Config | None,
    tag: int,
    *,
    source: torch.Tensor | None = None,
    dst: int | None = None,
    target: torch.Tensor | None = None,
    src: int | None = None,
) -> Work | None:
    _check_places(op, ctx, group, tag, dst, src)
    device = ctx.get_device()
    if not async_op and is_capturing(device):
        raise RuntimeError(f"{op} waits on the host without async_op=True, which a graph cannot capture")
    launch = functools.partial(_launch, op, ctx, tag, dst, src)
    try:
        _check_tensors(op, ctx, source, target)
        chosen, tile = _tile(config, source if source is not None else target, ctx)
    except Exception:
        if not async_op:
            # The other side would wait for this one.
            launch(None, None, *_tile(Config(), None, ctx))
        raise
    work = launch(source, target, chosen, tile)
    if async_op:
        return work
    work.synchronize()
    return None


def _check_places(
    op: str, ctx: Instance, group: dist.ProcessGroup | None, tag: object, dst: int | None, src: int | None
) -> None:
    rank = ctx.cur_rank
    if is_outside(group):
        raise RuntimeError(f"rank {rank} is not part of the group")
    ranks = list(range(ctx.num_ranks)) if group is None else dist.get_process_group_ranks(group)
    if rank not in ranks:
        raise RuntimeError(f"rank {rank} is not part of the group {ranks}")
    for name, peer in (("dst", dst), ("src", src)):
        if peer is not None and peer not in ranks:
            raise ValueError(f"{op}: {name} must be one of the group's ranks {ranks}, got {peer!r}")
    if rank in (dst, src) and dst != src:
        raise ValueError(f"{op}: rank {rank} cannot exchange with itself alone, got dst {dst} and src {src}")
    if not isinstance(tag, int) or not 0 <= tag < MAX_TAGS.value:
        raise ValueError(f"{op}: tag must be between 0 and {MAX_TAGS.value - 1}, got {tag!r}")


def _check_tensors(op: str, ctx: Instance, source: torch.Tensor | None, target: torch.Tensor | None) -> None:
    for verb, tensor in (("sends", source), ("receives", target)):
        if tensor is None:
            continue
        if tensor.dim() not in (1, 2) or tensor.dtype.itemsize not in _WORDS:
            raise ValueError(f"{op} {verb} 1-D or 2-D tensors, got {tuple(tensor.shape)} {tensor.dtype}")
    check_memory(op, ctx, source, target)
    if target is not None:
        symmetric_offset(target, f"{op}: the tensor to receive in", ctx)
        check_output(op, target)
    if source is not None and target is not None and shares_memory(_rows(source), _rows(target)):
        raise ValueError(f"{op}: send_tensor and recv_tensor overlap; a peer writes one while the other is read")


def _tile(config: Config | None, tensor: torch.Tensor | None, ctx: Instance) -> tuple[Config, tuple[int, int]]:
    """Return the config, and a tile of whole vectors of 16 bytes in each row."""
    if config is None:
        assert tensor is not None  # sanity check: every call has one
        config = tuned_config(
            "send", element_size=tensor.element_size(), world_size=ctx.num_ranks, nbytes=tensor.nbytes
        )
    check_lanes(config)
    if config.protocol != "simple":
        raise ValueError(f"a message's protocol must be simple, got {config.protocol!r}")
    elements = config.block_size_m * config.block_size_n
    if elements & (elements - 1):
        raise ValueError(
            f"block_size_m {config.block_size_m} and block_size_n {config.block_size_n} must be powers of two"
        )
    columns = max(config.block_size_n, _LEAST_TILE)
    return config, (max(elements // columns, 1), columns)


def _launch(
    op: str,
    ctx: Instance,
    tag: int,
    dst: int | None,
    src: int | None,
    source: torch.Tensor | None,
    target: torch.Tensor | None,
    config: Config,
    tile: tuple[int, int],
) -> _Delivery:
    """Enqueue the kernel on the current stream. Without tensors it reports to the other side that the call was
    refused.
    """
    report = torch.full((6,), _REFUSED, dtype=torch.int64, device=ctx.get_device())
    given, taken = _described(source), _described(target)
    tensor = source if source is not None else target if target is not None else report
    words = report if source is None else _words(source)
    if dst is None:
        # One kernel in each language receives all messages: one wavefront waits, which moves nothing.
        config, tile = replace(config, num_warps=1), (1, warp_size())
    tiles = -(-given[0][0] // tile[0]) * -(-given[0][1] // tile[1]) if dst is not None else 1
    programs = max(1, min(config.comm_sms, tiles, MAX_PROGRAMS.value))
    extra: tuple[Any, ...] = ()
    if config.use_gluon:
        lanes = warp_size() * config.num_warps
        extra = (min(max(tile[0] * tile[1] // lanes, 1), 16 // words.element_size()), warp_size(), config.num_warps)
    iris_launch(
        exchange_gluon if config.use_gluon else exchange_triton, (programs,),
        ctx.get_device_context(), ctx.mailboxes(), words, _start(report if target is None else target), report,
        *given[0], *taken[0], dst if dst is not None else 0, src if src is not None else 0, tag, given[1], taken[1],
        dst is not None, src is not None, *tile, *extra,
        algorithm=op, rank=ctx.cur_rank, dtype=tensor.dtype, **compiler_options(config),
    )  # fmt: skip
    messages = []
    if dst is not None:
        messages.append((f"{op} to rank {dst}, tag {tag}", 0, _Side(*given[0][:2], given[1])))
    if src is not None:
        messages.append((f"{op} from rank {src}, tag {tag}", 3, _Side(*taken[0][:2], taken[1])))
    return _Delivery(ctx.get_device(), report, messages)


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view as integers of the element's size, so that a kernel serves every dtype of that size."""
    return tensor.view(_WORDS[tensor.element_size()])


def _start(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of the first element: a kernel that uses an address alone serves every dtype."""
    return tensor.as_strided((min(tensor.numel(), 1),), (1,)).view(torch.int8)


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.dim() == 2 else tensor[None]


def _described(tensor: torch.Tensor | None) -> tuple[tuple[int, int, int, int], int]:
    """Return ((rows, columns, stride along M, stride along N), kind).

    For one row or column the stride is that of a contiguous tensor, so that more tensors are recognised as contiguous.
    """
    if tensor is None:
        return (0, 0, 0, 1), _REFUSED
    rows, columns = (1, *tensor.shape) if tensor.dim() == 1 else tensor.shape
    step_m, step_n = (0, *tensor.stride()) if tensor.dim() == 1 else tensor.stride()
    step_n = step_n if columns != 1 else 1
    return (rows, columns, step_m if rows != 1 else columns, step_n), _kind(tensor.dtype)


def _kind(dtype: torch.dtype) -> int:
    """Return a number for a dtype, the same on every rank, of 31 bits."""
    return zlib.crc32(str(dtype).encode()) & 0x7FFFFFFF


@functools.cache
def _dtypes() -> dict[int, torch.dtype]:
    named: list[Any] = [getattr(torch, name) for name in dir(torch)]
    return {_kind(dtype): dtype for dtype in named if isinstance(dtype, torch.dtype)}
