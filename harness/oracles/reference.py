"""Results of torch.distributed for the same inputs: the oracle of transfers and collectives.

Every function is a collective, of the world or of the group that is passed: its ranks call it in the same order.
``exchange``, ``reduced``, ``gathered`` and ``swapped`` also synchronise the ranks: none returns before all ranks have
entered and completed the work on their current stream, so a case uses them as the barrier between preparing memory and
acting on it.

If the default process group has a GPU backend (NCCL, RCCL), that backend computes, with tensors on the current GPU;
else gloo computes on the CPU after the work on the current stream has ended. Arguments may be on any device, results
are on the CPU.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
import torch.distributed as dist

from harness import standstill
from harness.errors import HarnessError
from harness.oracles.folds import FOLDS

_HEADER = 8
_FEW = 1 << 16


def exchange(
    payload: torch.Tensor | Sequence[torch.Tensor], transfers: Collection[tuple[int, int]], *, rank: int, ranks: int
) -> dict[int, torch.Tensor]:
    """Return the payloads that this rank receives in the (from, to) ``transfers``, by sender; by all_to_all_single.

    ``payload`` is the tensor that this rank sends to each of its receivers (or one tensor per receiver, in ascending
    order). All payloads have the same length and dtype on every rank. Every pair of ranks exchanges a header, also
    without a transfer, so that all ranks are synchronised.
    """
    sample = payload if isinstance(payload, torch.Tensor) else payload[0]
    size = sample.numel() * sample.itemsize
    receivers = [to for to in range(ranks) if (rank, to) in transfers]
    pieces: list[torch.Tensor] = []
    for to in range(ranks):
        pieces.append(torch.full((_HEADER,), rank, dtype=torch.uint8))
        if to in receivers:
            tensor = payload if isinstance(payload, torch.Tensor) else payload[receivers.index(to)]
            pieces.append(tensor.contiguous().flatten().view(torch.uint8).cpu())
    outgoing = [_HEADER + size * ((rank, to) in transfers) for to in range(ranks)]
    incoming = [_HEADER + size * ((source, rank) in transfers) for source in range(ranks)]
    device = _device()
    arriving = torch.empty(sum(incoming), dtype=torch.uint8, device=device)
    dist.all_to_all_single(arriving, torch.cat(pieces).to(device), incoming, outgoing)
    received = arriving.cpu()
    by_sender: dict[int, torch.Tensor] = {}
    place = 0
    for source in range(ranks):
        if int(received[place]) != source:
            raise HarnessError(
                f"all_to_all_single returned data of rank {int(received[place])} in place of data of rank {source}"
            )
        if (source, rank) in transfers:
            # Cloned, so that a wider dtype is aligned.
            by_sender[source] = received[place + _HEADER : place + incoming[source]].clone().view(sample.dtype)
        place += incoming[source]
    return by_sender


def reduced(values: torch.Tensor, op: str, group: Any = None) -> torch.Tensor:
    """Return the all_reduce of ``values`` over ``group`` with ``op``: sum, product, min, max, band, bor, bxor.

    16-bit floats are reduced in float32 and rounded once, as a library must compute them; gloo and nccl would round
    after each step. They do not reduce 16-bit integers, gloo adds booleans like bytes, and nccl has no bitwise
    reductions: in these cases the values of all members are gathered and reduced here.
    """
    if values.dtype in (torch.float16, torch.bfloat16):
        return reduced(values.float(), op, group).to(values.dtype)
    device = _device()
    if (device.type != "cpu" and op in _BITWISE) or values.dtype in (torch.int16, torch.bool):
        folded, *others = gathered(values.unsqueeze(0), group).unbind()
        for other in others:
            folded = FOLDS[op](folded, other)
        return folded
    result = values.contiguous().to(device, copy=True)
    dist.all_reduce(result, op=_OPS[op], group=group)
    return result.cpu()


def gathered(values: torch.Tensor, group: Any = None) -> torch.Tensor:
    """Return the all_gather_into_tensor of a tensor along its first dimension, over ``group`` (default: the world).

    With a group it synchronises only that group. Few bytes go by way of one rank on the CPU: gloo's all_gather passes
    them from rank to rank, which takes twice as long on 4 ranks.
    """
    members = dist.get_world_size(group)
    flat = _bytes(values)
    result = torch.empty(members * flat.numel(), dtype=torch.uint8, device=flat.device)
    if flat.device.type == "cpu" and 0 < flat.numel() <= _FEW:
        first = 0 if group is None else dist.get_global_rank(group, 0)
        parts = list(result.view(members, -1).unbind()) if dist.get_rank() == first else None
        dist.gather(flat, parts, dst=first, group=group)
        dist.broadcast(result, first, group=group)
    else:
        dist.all_gather_into_tensor(result, flat, group=group)
    return _of_bytes(result, values.dtype, (members * values.shape[0], *values.shape[1:]))


def swapped(values: torch.Tensor, group: Any = None) -> torch.Tensor:
    """Return the all_to_all_single of a matrix's columns: block j of member i becomes block i of member j."""
    members = dist.get_world_size(group)
    rows, columns = values.shape
    blocks = values.view(rows, members, columns // members).transpose(0, 1)
    sent = _bytes(blocks)
    result = torch.empty_like(sent)
    dist.all_to_all_single(result, sent, group=group)
    return _of_bytes(result, values.dtype, tuple(blocks.shape)).transpose(0, 1).reshape(rows, columns)


def broadcast(values: torch.Tensor, source: int, group: Any = None) -> torch.Tensor:
    """Return the broadcast of the values of global rank ``source``; the values of all members have the same shape."""
    result = _bytes(values).clone()
    dist.broadcast(result, source, group=group)
    return _of_bytes(result, values.dtype, tuple(values.shape))


def scattered(values: torch.Tensor, source: int, group: Any = None) -> torch.Tensor:
    """Return this member's rows of the values of global rank ``source``, by scatter; all members pass the same
    shape."""
    members = dist.get_world_size(group)
    part = (values.shape[0] // members, *values.shape[1:])
    flat = _bytes(values)
    result = torch.empty(flat.numel() // members, dtype=torch.uint8, device=flat.device)
    if flat.numel():
        pieces = list(flat.chunk(members)) if dist.get_rank() == source else None
        dist.scatter(result, pieces, source, group=group)
    return _of_bytes(result, values.dtype, part)


def _bytes(values: torch.Tensor) -> torch.Tensor:
    """Return the elements in order as bytes, on the device where torch.distributed computes."""
    return values.contiguous().flatten().view(torch.uint8).to(_device())


def _of_bytes(flat: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    return flat.cpu().view(dtype).reshape(shape)


def bool_all(value: bool) -> bool:
    """Return whether ``value`` is true on every rank."""
    flag = torch.tensor([int(value)], dtype=torch.int32)
    dist.all_reduce(flag, op=dist.ReduceOp.MIN)
    return bool(flag[0])


def barrier() -> None:
    """Wait until all ranks' processes have called this; their devices may still be at work."""
    with standstill.arrived():
        dist.all_reduce(torch.zeros((), dtype=torch.int32))


def _device() -> torch.device:
    """Return the device on which torch.distributed computes; for the CPU, first wait for the current stream."""
    backends = dict(part.split(":") for part in dist.get_backend_config().split(","))
    backends.pop("cpu", None)
    for kind, backend in backends.items():
        # gloo claims to serve GPUs of every kind as well, where torch was built for them.
        if backend != "gloo":
            return torch.device(kind, getattr(torch, kind).current_device())
    for kind in backends:
        module: Any = getattr(torch, kind, None)
        if hasattr(module, "is_initialized") and module.is_initialized():
            module.current_stream().synchronize()
    return torch.device("cpu")


_OPS = {
    "sum": dist.ReduceOp.SUM, "product": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX,
    "band": dist.ReduceOp.BAND, "bor": dist.ReduceOp.BOR, "bxor": dist.ReduceOp.BXOR,
}  # fmt: skip
_BITWISE = ("band", "bor", "bxor")
