"""Small collectives on the default process group (or on a given one), and the geometry of groups.

All functions here except ``extract_group_info`` are collective: every rank of the group calls them, in the same order.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import pickle
import socket
import zlib
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist

__all__ = [
    "agree",
    "broadcast_value",
    "collective_device",
    "distributed_allgather",
    "distributed_allgather_multidim",
    "distributed_barrier",
    "distributed_broadcast_scalar",
    "distributed_broadcast_tensor",
    "distributed_device_barrier",
    "exchange",
    "extract_group_info",
    "host_barrier",
    "hosts",
]


_FLOATS_OF_NUMPY = (torch.float16, torch.float32, torch.float64)
_ROW = 8
"""The least number of words that ``exchange`` sends, besides its header."""


class HasDeviceBarrier(Protocol):
    """The part of an ``Iris`` that ``distributed_device_barrier`` uses."""

    def device_barrier(self, group: dist.ProcessGroup | None = None) -> None: ...


def distributed_allgather(data: Any) -> np.ndarray:
    """Gather every rank's one-dimensional array of n elements as an array of shape (world, n) and the same dtype.

    Raises, on every rank:
        ValueError: some rank's array is not one-dimensional, or holds Python objects, or ranks differ in length or
            dtype; the message names what each rank passed.
    """
    return _gathered(data, 1)


def distributed_allgather_multidim(data: Any) -> np.ndarray:
    """Gather every rank's array, of any shape, as ``(world, *shape)``; see ``distributed_allgather``."""
    return _gathered(data, None)


def distributed_broadcast_scalar(value: Any = None, root: int = 0) -> Any:
    """Return the number that rank ``root`` passes, a Python ``bool``, ``int``, ``float`` or ``complex``, on every rank.

    Raises:
        ValueError: ``root`` is not a rank; on ``root``, its value is not a number, RuntimeError on the others.
    """
    number = isinstance(value, (bool, int, float, complex, np.number, np.bool_))
    number = number or (isinstance(value, (np.ndarray, torch.Tensor)) and value.ndim == 0)
    error = None
    if dist.get_rank() == root and not number:
        error = ValueError(f"expected a scalar to broadcast, got {value!r}")
    agree(error, "broadcast of a scalar")
    got = broadcast_value(value, root)
    return got.item() if isinstance(got, np.ndarray) else got


def distributed_broadcast_tensor(value: Any = None, root: int = 0) -> np.ndarray:
    """Return the tensor or array of rank ``root``, as a numpy array, on every rank. See ``broadcast_value``."""
    return np.asarray(broadcast_value(value, root))


def distributed_barrier(group: dist.ProcessGroup | None = None) -> None:
    """Returns on no rank of the group (default: the world) before every rank of it has called; waits on the host."""
    host_barrier(group)


def distributed_device_barrier(instance: HasDeviceBarrier, group: dist.ProcessGroup | None = None) -> None:
    """``Iris.device_barrier``: a barrier of the devices, in the order of the current stream, without a wait here."""
    instance.device_barrier(group)


def collective_device(group: dist.ProcessGroup | None = None) -> torch.device:
    """Return the device for small tensors of collectives: the CPU if the group's backends serve it, else the GPU.

    ``nccl`` alone serves only GPUs; ``gloo`` and ``cpu:gloo,cuda:nccl`` serve the CPU.
    """
    served = {part.partition(":")[0] for part in dist.get_backend_config(group).split(",")}
    return torch.device("cpu" if "cpu" in served else "cuda")


def host_barrier(group: dist.ProcessGroup | None = None, error: Exception | None = None) -> None:
    """Returns on no rank of the group before every rank of it has called.

    A rank that has an ``error`` raises it here, so that the others do not wait for it; they get a RuntimeError that
    names the rank.

    Raises:
        RuntimeError: this rank is not in the group; then the members' barrier is not touched.
    """
    if is_outside(group):
        raise RuntimeError(f"barrier: rank {dist.get_rank()} is not part of the group")
    agree(error, "what a barrier waits for", group)


def is_outside(group: object) -> bool:
    """Return whether ``group`` is what ``dist.new_group`` returns on the ranks that are not members."""
    return group is dist.GroupMember.NON_GROUP_MEMBER


def exchange(values: Sequence[int], group: dist.ProcessGroup | None = None, doing: str = "exchange") -> list[list[int]]:
    """Gathers one row of 64-bit integers from every rank of the group: ``result[rank_in_group]`` is that rank's row.

    Returns on no rank before every rank has entered, so it is a barrier as well. Rows have the same length everywhere
    where ranks do the same.

    Raises, on every rank:
        RuntimeError: ranks are not ``doing`` the same, as where one allocates and another is at a barrier.
    """
    padding = [0] * (_ROW - len(values))  # so that rows of different calls match in length
    header = [zlib.crc32(doing.encode()), len(values)]
    mine = torch.tensor([*header, *values, *padding], dtype=torch.int64, device=collective_device(group))
    rows = _everyones(mine, group)
    if any(row[:2] != header for row in rows):
        calls: list[Any] = [None] * len(rows)
        dist.all_gather_object(calls, doing, group=group)
        raise RuntimeError(f"ranks are at different calls: {dict(zip(_ranks(group), calls, strict=True))}")
    return [row[2 : 2 + len(values)] for row in rows]


def hosts(group: dist.ProcessGroup | None = None) -> list[int]:
    """Return a number for the host of each rank of the group, equal for ranks of one host. Collective.

    A host is its name, as in ``topology``.
    """
    name = hashlib.sha256(socket.gethostname().encode()).digest()
    return [host for (host,) in exchange([int.from_bytes(name[:7], "little")], group, "exchanging host names")]


def agree(error: Exception | None, doing: str, group: dist.ProcessGroup | None = None) -> None:
    """Raise on every rank if any rank has an error: its own there, RuntimeError naming those ranks elsewhere."""
    failed = [place for place, (bad,) in enumerate(exchange([error is not None], group, doing)) if bad]
    if error is not None:
        raise error
    if failed:
        raise RuntimeError(f"{doing} failed on ranks {[_ranks(group)[place] for place in failed]}")


def broadcast_value(value: Any, src: int) -> Any:
    """Send ``value`` from rank ``src`` to every rank of the world; what other ranks pass is ignored.

    Numbers, tensors, arrays and numeric lists or tuples come back as numpy arrays (0-d for a number; bfloat16 and 8-bit
    floats as float32, which holds them exactly); everything else, ``bool``, ``str`` and ``dict`` among it, as its own
    type. Unlike in upstream Iris, a Python float keeps its 64 bits. Nested lists of differing lengths come back as they
    are.

    Raises, on every rank:
        ValueError: ``src`` is not a rank of the world, or differs between ranks, or the value is None.
        TypeError: the value cannot be sent: it cannot be pickled, or is a tensor without data of its own.
    """
    _check_source(src)
    message: list[Any] = [None]
    if dist.get_rank() == src:
        message = [_encode(value)]
    dist.broadcast_object_list(message, src=src)
    status, payload = message[0]
    if status == "value":
        return pickle.loads(payload)
    raise {"ValueError": ValueError, "TypeError": TypeError}[status](payload)


def _everyones(row: torch.Tensor, group: dist.ProcessGroup | None) -> list[list[int]]:
    """Return the row of each rank of the group.

    gloo passes an all_gather from rank to rank, as many times as there are ranks less one, and its threads need longer
    for each message than the few bytes take. By way of one rank it is half of the processor time on 4 ranks.
    """
    everyones = row.new_empty((dist.get_world_size(group), *row.shape))
    if row.device.type != "cpu":
        dist.all_gather(list(everyones.unbind()), row, group=group)
    else:
        first = _ranks(group)[0]
        dist.gather(row, list(everyones.unbind()) if dist.get_rank() == first else None, dst=first, group=group)
        dist.broadcast(everyones, first, group=group)
    rows: list[list[int]] = everyones.tolist()
    return rows


def _ranks(group: dist.ProcessGroup | None) -> Sequence[int]:
    """The group's members, by their ranks in the world."""
    return range(dist.get_world_size()) if group is None else dist.get_process_group_ranks(group)


def _gathered(data: Any, dimensions: int | None) -> np.ndarray:
    try:
        array = np.asarray(data)
        form = f"{array.dtype} of shape {array.shape}"
        fine = not array.dtype.hasobject and dimensions in {None, array.ndim}
    except Exception as error:  # noqa: BLE001 - whatever it is, the other ranks must hear of it
        array, form, fine = np.empty(0), f"no array: {error}", False
    rows = exchange([fine, zlib.crc32(form.encode())], doing="gathering arrays")
    if len({tuple(row) for row in rows}) > 1 or not fine:
        passed: list[Any] = [None] * len(rows)
        dist.all_gather_object(passed, form)
        expected = "arrays" if dimensions is None else f"{dimensions}-dimensional arrays"
        raise ValueError(f"every rank must pass {expected} of numbers, all alike, got {dict(enumerate(passed))}")
    result = np.empty((len(rows), *array.shape), array.dtype)
    if array.nbytes:
        mine = torch.frombuffer(bytearray(array.tobytes()), dtype=torch.uint8).to(collective_device())
        parts = [torch.empty_like(mine) for _ in rows]
        dist.all_gather(parts, mine)
        result.view(np.uint8).reshape(len(rows), -1)[:] = torch.stack(parts).cpu().numpy()
    return result


def _check_source(src: Any) -> None:
    ranks = range(dist.get_world_size())
    fine = isinstance(src, int) and src in ranks
    sources = [source for (source,) in exchange([src if fine else -1], doing="broadcast")]
    if not fine:
        raise ValueError(f"src must be a rank in [0, {len(ranks)}), got {src!r}")
    bad = [rank for rank, source in enumerate(sources) if source < 0]
    if bad:
        raise ValueError(f"src is {src} here and no rank in [0, {len(ranks)}) on ranks {bad}")
    if len(set(sources)) > 1:
        raise ValueError(f"src must be the same on every rank, got {dict(enumerate(sources))}")


def _encode(value: Any) -> tuple[str, Any]:
    if value is None:
        return "ValueError", "broadcast of None: the source rank must pass a value"
    try:
        return "value", pickle.dumps(_as_array(value))
    except Exception as error:  # noqa: BLE001 - whatever it is, the other ranks must hear of it
        return "TypeError", f"broadcast of a {type(value).__name__}: {error}"


def _as_array(value: Any) -> Any:
    """The numpy form of a numeric value, any other value unchanged."""
    if isinstance(value, torch.Tensor):
        tensor = value.detach().cpu().resolve_conj().resolve_neg()
        narrow = tensor.dtype.is_floating_point and tensor.dtype not in _FLOATS_OF_NUMPY
        return (tensor.float() if narrow else tensor).numpy()
    if isinstance(value, np.generic):
        return np.asarray(value)
    if isinstance(value, (int, float, complex)) and not isinstance(value, bool):
        return np.asarray(value)
    if isinstance(value, (list, tuple)) and _is_numeric(value):
        with contextlib.suppress(ValueError):  # their lengths differ
            return np.asarray(value)
    return value


def _is_numeric(item: Any) -> bool:
    if isinstance(item, (list, tuple)):
        return bool(item) and all(_is_numeric(inner) for inner in item)
    return isinstance(item, (int, float, complex, np.number)) and not isinstance(item, bool)


def extract_group_info(group: dist.ProcessGroup | None, rank: int, num_ranks: int) -> tuple[int, int, int, int, int]:
    """Returns ``(rank_in_group, rank_global, group_size, rank_start, rank_stride)``. Not collective.

    Member ``i`` of the group is global rank ``rank_start + i * rank_stride``. ``None`` is the world; a group of one
    has stride 1.

    Raises:
        RuntimeError: ``rank`` is not in the group.
        ValueError: the group names a rank twice (stride 0).
        NotImplementedError: the group's ranks are not uniformly spaced.
    """
    if group is None:
        return rank, rank, num_ranks, 0, 1
    members = [] if is_outside(group) else dist.get_process_group_ranks(group)
    if rank not in members:
        raise RuntimeError(f"rank {rank} is not part of the group {members}")
    strides = {after - before for before, after in itertools.pairwise(members)} or {1}
    if 0 in strides:
        raise ValueError(f"group {members} names a rank twice")
    if len(strides) > 1:
        raise NotImplementedError(f"group {members} is not uniformly spaced (strides {sorted(strides)})")
    return members.index(rank), rank, len(members), members[0], strides.pop()
