"""Messages between two ranks: send, recv, sendrecv."""

from __future__ import annotations

import functools
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from iris_under_test.device.mailboxes import MOST_TAGS
from iris_under_test.device.signals import MOST_PROGRAMS
from iris_under_test.host.platform.base import warp_size
from iris_under_test.host.tracing.kernel_artifacts import iris_launch

from .config import Config
from .launch import compiler_options, symmetric_offset
from .overlap import shares_memory
from .plans import check_device, check_output
from .tuning import tuned_config
from .work import Work

if TYPE_CHECKING:
    from iris_under_test.host.iris import Iris

__all__ = ["recv", "send", "sendrecv"]

_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_LEAST_TILE = 16
_REFUSED = -1


def send(
    tensor: torch.Tensor,
    ctx: Iris,
    dst: int,
    tag: int = 0,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    config: Config | None = None,
) -> Work | None:
    """Pushes ``tensor`` into the one that rank ``dst`` receives it in. 1-D or 2-D, any strides and dtype, anywhere.

    A rendezvous: on the devices, nothing moves and the stream does not go on before ``dst`` has come to its ``recv`` or
    ``sendrecv``, and its stream not before all is there. Messages between two ranks with one tag are matched in order,
    and their calls on each side must be ordered, by one stream or by events; others may be under way at the same time
    on other streams, on one stream they wait for each other. Only the two ranks take part, and nothing is said on the
    host; the group says who may, it does not keep messages apart. Bitwise: elements are only moved, 16 bytes at a time
    where both tensors are contiguous, or have rows that begin at multiples of 16 bytes. May be captured in a graph with
    ``async_op=True``.

    If the two sides differ in shape or dtype nothing is moved, and each side that waits on the host gets a ValueError:
    here without ``async_op``, else from ``synchronize`` of the handle, if it is called. Who is refused for another
    reason tells the other side, which gets a RuntimeError likewise; with ``async_op`` it does not take part.

    Args:
        dst: a global rank, another one.
        tag: 0 to 63.
        config: tile, ``comm_sms``, ``num_warps`` and ``use_gluon`` are what counts here.

    Raises:
        ValueError: ``dst`` is no other member, no such tag, the tensor is not 1-D or 2-D, or the other side's differs.
        RuntimeError: this rank is not in the group; the other side was refused; a graph is being captured, without
            ``async_op``.
    """
    return _exchanged("send", ctx, group, async_op, config, tag, source=tensor, dst=dst)


def recv(
    tensor: torch.Tensor,
    ctx: Iris,
    src: int,
    tag: int = 0,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    config: Config | None = None,
) -> Work | None:
    """Receives what rank ``src`` sends in ``tensor``, which is on the heap, at a place of its own. See ``send``.

    Raises:
        ValueError: as ``send``; or the tensor is off the heap, or has elements that lie on each other.
        RuntimeError: as ``send``.
    """
    return _exchanged("recv", ctx, group, async_op, config, tag, target=tensor, src=src)


def sendrecv(
    send_tensor: torch.Tensor,
    recv_tensor: torch.Tensor,
    ctx: Iris,
    dst: int,
    src: int,
    tag: int = 0,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    config: Config | None = None,
) -> Work | None:
    """``send`` to ``dst`` and ``recv`` from ``src`` in one kernel, which does not wait for the one before it is ready
    for the other: so all members may send to the right and receive from the left. The other sides may be ``send``,
    ``recv`` or ``sendrecv``; ``dst`` and ``src`` may be this rank itself, both.

    Raises:
        ValueError, RuntimeError: as ``send`` and ``recv``; ValueError if only one of ``dst`` and ``src`` is this rank,
            or the tensors share memory.
    """
    return _exchanged(
        "sendrecv", ctx, group, async_op, config, tag, source=send_tensor, dst=dst, target=recv_tensor, src=src
    )


@dataclass(frozen=True)
class _Side:
    """What one side of a message has: (rows, columns) and a number for the dtype, as the kernels compare them."""

    rows: int
    columns: int
    kind: int

    def __str__(self) -> str:
        return f"{(self.rows, self.columns)} {_dtypes().get(self.kind, 'of some dtype')}"


class _Delivery(Work):
    """The handle of a message. ``synchronize`` raises if the two sides differed."""

    def __init__(self, device: torch.device, report: torch.Tensor, told: list[tuple[str, int, _Side]]) -> None:
        super().__init__(device)
        self._report = report
        self._told = told

    def synchronize(self) -> None:
        super().synchronize()
        found = self._report.tolist()
        for what, at, mine in self._told:
            theirs = _Side(*found[at : at + 3])
            if theirs.kind == _REFUSED:
                raise RuntimeError(f"{what}: the call there was refused, nothing was moved")
            if theirs != mine:
                raise ValueError(f"{what}: nothing was moved, since this rank has {mine} and that one {theirs}")


def _exchanged(
    op: str,
    ctx: Iris,
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
    if not async_op and device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(f"{op} waits on the host without async_op=True, which a graph cannot capture")
    launch = functools.partial(_launch, op, ctx, tag, dst, src)
    try:
        _check_tensors(op, ctx, source, target)
        chosen, tile = _tile(config, source if source is not None else target, ctx)
    except Exception:
        if not async_op:
            # The other side is on its way to this one, and would wait.
            launch(None, None, *_tile(Config(), None, ctx))
        raise
    work = launch(source, target, chosen, tile)
    if async_op:
        return work
    work.synchronize()
    return None


def _check_places(
    op: str, ctx: Iris, group: dist.ProcessGroup | None, tag: int, dst: int | None, src: int | None
) -> None:
    rank = ctx.cur_rank
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        raise RuntimeError(f"rank {rank} is not part of the group")
    ranks = list(range(ctx.num_ranks)) if group is None else dist.get_process_group_ranks(group)
    if rank not in ranks:
        raise RuntimeError(f"rank {rank} is not part of the group {ranks}")
    for what, peer in (("dst", dst), ("src", src)):
        if peer is not None and peer not in ranks:
            raise ValueError(f"{op}: {what} must be one of the group's ranks {ranks}, got {peer!r}")
    if rank in (dst, src) and dst != src:
        raise ValueError(f"{op}: rank {rank} cannot exchange with itself alone, got dst {dst} and src {src}")
    if not isinstance(tag, int) or not 0 <= tag < MOST_TAGS.value:
        raise ValueError(f"{op}: tag must be between 0 and {MOST_TAGS.value - 1}, got {tag!r}")


def _check_tensors(op: str, ctx: Iris, source: torch.Tensor | None, target: torch.Tensor | None) -> None:
    for what, tensor in (("sends", source), ("receives", target)):
        if tensor is None:
            continue
        if tensor.dim() not in (1, 2) or tensor.dtype.itemsize not in _WORDS:
            raise ValueError(f"{op} {what} 1-D or 2-D tensors, got {tuple(tensor.shape)} {tensor.dtype}")
    check_device(op, ctx, source, target)
    if target is not None:
        symmetric_offset(target, f"{op}: the tensor to receive in", ctx)
        check_output(op, target)
    if source is not None and target is not None and shares_memory(_rows(source), _rows(target)):
        raise ValueError(f"{op}: the tensors overlap, and a peer writes the one while the other is read")


def _tile(config: Config | None, tensor: torch.Tensor | None, ctx: Iris) -> tuple[Config, tuple[int, int]]:
    """The config, and a tile of whole vectors of 16 bytes in each row."""
    if config is None:
        assert tensor is not None  # sanity check: every call has one
        config = tuned_config(
            "send", element_size=tensor.element_size(), world_size=ctx.num_ranks, nbytes=tensor.nbytes
        )
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
    ctx: Iris,
    tag: int,
    dst: int | None,
    src: int | None,
    source: torch.Tensor | None,
    target: torch.Tensor | None,
    config: Config,
    tile: tuple[int, int],
) -> _Delivery:
    """Enqueues the kernel on the current stream. No tensors: to say that the call was refused."""
    # Not at import: the one needs Gluon, and only its callers should.
    if config.use_gluon:
        from .gluon.send_recv import exchange_kernel
    else:
        from .triton.send_recv import exchange_kernel  # type: ignore[assignment]
    report = torch.full((6,), _REFUSED, dtype=torch.int64, device=ctx.get_device())
    given, taken = _described(source), _described(target)
    tensor = source if source is not None else target if target is not None else report
    words = tensor.view(_WORDS[tensor.element_size()])
    tiles = -(-given[0][0] // tile[0]) * -(-given[0][1] // tile[1]) if dst is not None else 1
    programs = max(1, min(config.comm_sms, tiles, MOST_PROGRAMS.value))
    extra: tuple[Any, ...] = ()
    if config.use_gluon:
        lanes = warp_size() * config.num_warps
        extra = (min(max(tile[0] * tile[1] // lanes, 1), 16 // words.element_size()), warp_size(), config.num_warps)
    iris_launch(
        exchange_kernel, (programs,),
        ctx.get_device_context(), ctx.mailboxes(), words, target if target is not None else report, report,
        *given[0], *taken[0], dst if dst is not None else 0, src if src is not None else 0, tag, given[1], taken[1],
        dst is not None, src is not None, *tile, *extra,
        algorithm=op, rank=ctx.cur_rank, dtype=tensor.dtype, **compiler_options(config),
    )  # fmt: skip
    told = []
    if dst is not None:
        told.append((f"{op} to rank {dst}, tag {tag}", 0, _Side(*given[0][:2], given[1])))
    if src is not None:
        told.append((f"{op} from rank {src}, tag {tag}", 3, _Side(*taken[0][:2], taken[1])))
    return _Delivery(ctx.get_device(), report, told)


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.dim() == 2 else tensor[None]


def _described(tensor: torch.Tensor | None) -> tuple[tuple[int, int, int, int], int]:
    """((rows, columns, stride along M, stride along N), kind). Where there is one row or column the stride is that of a
    contiguous tensor, so that more of them are seen to be contiguous."""
    if tensor is None:
        return (0, 0, 0, 1), _REFUSED
    rows, columns = (1, *tensor.shape) if tensor.dim() == 1 else tensor.shape
    step_m, step_n = (0, *tensor.stride()) if tensor.dim() == 1 else tensor.stride()
    step_n = step_n if columns != 1 else 1
    return (rows, columns, step_m if rows != 1 else columns, step_n), _kind(tensor.dtype)


def _kind(dtype: torch.dtype) -> int:
    """A number for a dtype, the same on every rank and of 31 bits."""
    return zlib.crc32(str(dtype).encode()) & 0x7FFFFFFF


@functools.cache
def _dtypes() -> dict[int, torch.dtype]:
    named: list[Any] = [getattr(torch, name) for name in dir(torch)]
    return {_kind(dtype): dtype for dtype in named if isinstance(dtype, torch.dtype)}
