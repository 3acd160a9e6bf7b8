"""``torch.distributed._symmetric_memory`` on emulated GPUs: allocations that every rank of a group maps."""

# torch's stubs describe builds that this module replaces parts of.
# mypy: disable-error-code="arg-type,no-untyped-call"
from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import sharing
from .support import refuse

_PAD = 2048  # bytes of the signal pad where the program sets no other size, as PyTorch has it for a few ranks
_ALIGNMENT = 2 << 20


def make(native: Any, memory: Any) -> type:
    """Return the class ``_SymmetricMemory``."""
    allocations: dict[int, Memory] = {}  # address -> the memory there, as long as a tensor uses it
    groups: dict[str, tuple[int, int, Any]] = {}
    handles: dict[tuple[int, str], Any] = {}
    rounds: dict[str, int] = {}

    class Memory:
        """Memory of this rank, kept by its tensors and by its handles: the program's bytes, then the signal pad."""

        def __init__(self, nbytes: int, device: int) -> None:
            self.nbytes, self.pad = nbytes, SymmetricMemory.signal_pad_size
            self.address = memory.allocate(-(-(nbytes + 16 + self.pad) // _ALIGNMENT) * _ALIGNMENT, device)

        def __del__(self) -> None:
            if hasattr(self, "address"):
                memory.free(self.address)

    class Allocation:
        """Owner of the tensors of one allocation. When the last tensor is dropped, a rendezvous finds it no more."""

        def __init__(self, nbytes: int, device: int) -> None:
            self.memory = Memory(nbytes, device)
            self.address = self.memory.address
            allocations[self.address] = self.memory

        def __del__(self) -> None:
            if hasattr(self, "address"):
                for key in [key for key in handles if key[0] == self.address]:
                    del handles[key]
                del allocations[self.address]

    class SymmetricMemory:
        """Handle of one symmetric allocation, as seen by this rank.

        ``signal_pad_size`` of the class is that of allocations to come; a handle has its own.
        """

        signal_pad_size = _PAD

        def __init__(self, address: int, group_name: str, device: int) -> None:
            self.rank, self.world_size, store = groups[group_name]
            self.device = torch.device("cuda", device)
            self._memory = allocations[address]
            self.buffer_size, self.signal_pad_size = self._memory.nbytes, self._memory.pad
            self.offset = 0
            number = rounds[group_name] = rounds.get(group_name, 0) + 1
            mine = f"{self.buffer_size} bytes and a signal pad of {self.signal_pad_size}"
            store.set(f"{number}/{self.rank}", sharing.export(memory, address, self.buffer_size))
            store.set(f"{number}/size/{self.rank}", mine.encode())
            self._mappings: list[Any] = []
            self.buffer_ptrs: list[int] = []
            for rank in range(self.world_size):
                received = store.get(f"{number}/{rank}")
                theirs = store.get(f"{number}/size/{rank}").decode()
                if theirs != mine:
                    raise RuntimeError(
                        f"rendezvous: rank {rank} allocated {theirs}, rank {self.rank} {mine}: every rank must allocate"
                        " the same sizes"
                    )
                if rank == self.rank:
                    self.buffer_ptrs.append(address)
                else:
                    mapping = sharing.attach(memory, received, device, rank)
                    self._mappings.append(mapping)
                    self.buffer_ptrs.append(mapping.address + mapping.offset)
            start = -(-self.buffer_size // 16) * 16
            self.signal_pad_ptrs = [pointer + start for pointer in self.buffer_ptrs]
            self._tables = [
                torch.tensor(pointers, dtype=torch.int64).to(self.device)
                for pointers in (self.buffer_ptrs, self.signal_pad_ptrs)
            ]
            self.buffer_ptrs_dev, self.signal_pad_ptrs_dev = (table.data_ptr() for table in self._tables)
            self.multicast_ptr = 0
            # No rank may free or signal before every rank has mapped all of it.
            store.set(f"{number}/mapped/{self.rank}", b"1")
            for rank in range(self.world_size):
                store.get(f"{number}/mapped/{rank}")

        @staticmethod
        def set_group_info(group_name: str, rank: int, world_size: int, store: Any) -> None:
            groups[group_name] = rank, world_size, store

        @staticmethod
        def empty_strided_p2p(
            size: Sequence[int], stride: Sequence[int], dtype: Any, device: Any, group_name: str | None = None, *_: Any
        ) -> Any:
            device = torch.device(device)
            if device.type != "cuda":
                raise RuntimeError(f"symmetric memory is allocated on a cuda device, got {device}")
            gpu = native.current_gpu() if device.index is None else device.index
            count = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) if 0 not in size else 0
            allocation = Allocation(max(1, count) * dtype.itemsize, gpu)
            tensor = native.tensor_at(allocation.address, list(size), list(stride), dtype, gpu, allocation)
            defaults[allocation.address] = group_name
            return tensor

        @staticmethod
        def rendezvous(tensor: Any, group_name: str | None = None) -> Any:
            """Return the handle of a symmetric tensor's memory; None for any other tensor, as PyTorch does."""
            pointer = tensor.untyped_storage().data_ptr()
            if pointer not in allocations:
                return None
            group_name = group_name or defaults.get(pointer)
            if group_name is None:
                raise RuntimeError("rendezvous: pass the group, or allocate the tensor for one")
            if group_name not in groups:
                groups[group_name] = _group_info(group_name)
            key = pointer, group_name
            if key not in handles:
                handles[key] = SymmetricMemory(pointer, group_name, tensor.device.index)
            return handles[key]

        @staticmethod
        def is_symm_mem_tensor(tensor: Any) -> bool:
            return tensor.untyped_storage().data_ptr() in allocations

        @staticmethod
        def has_multicast_support(device_type: Any, device_index: int) -> bool:
            return False

        @staticmethod
        def set_backend(name: str) -> None:
            if name != "CUDA":
                raise refuse(f"symmetric memory with the backend {name!r:.60}, other than 'CUDA',")

        @staticmethod
        def get_backend(device: Any) -> str:
            return "CUDA"

        def get_buffer(self, rank: int, sizes: Sequence[int], dtype: Any, storage_offset: int = 0) -> Any:
            return self._tensor(self.buffer_ptrs[rank], self.buffer_size, sizes, dtype, storage_offset, "get_buffer")

        get_remote_tensor = get_buffer

        def get_signal_pad(
            self, rank: int, sizes: Sequence[int] = (), dtype: Any = None, storage_offset: int = 0
        ) -> Any:
            dtype = dtype or torch.uint32
            sizes = sizes or (self.signal_pad_size // dtype.itemsize - storage_offset,)
            return self._tensor(
                self.signal_pad_ptrs[rank], self.signal_pad_size, sizes, dtype, storage_offset, "get_signal_pad"
            )

        def _tensor(self, address: int, limit: int, sizes: Any, dtype: Any, offset: int, call: str) -> Any:
            count = 1
            for n in sizes:
                count *= n
            wanted = (offset + count) * dtype.itemsize
            if wanted > limit:
                raise RuntimeError(f"{call}: {wanted} bytes are requested, the symmetric memory has {limit} bytes")
            strides = [0] * len(sizes)
            step = 1
            for i in reversed(range(len(sizes))):
                strides[i], step = step, step * max(1, sizes[i])
            return native.tensor_at(
                address + offset * dtype.itemsize, list(sizes), strides, dtype, self.device.index, self
            )

        def _slot(self, owner: int, channel: int, other: int) -> Any:
            index = channel * self.world_size + other
            channels = self.signal_pad_size // 4 // self.world_size
            if not 0 <= channel < channels:
                raise RuntimeError(f"channel {channel}: the signal pad has {channels} channels")
            return ctypes.c_uint32.from_address(self.signal_pad_ptrs[owner] + 4 * index)

        def put_signal(self, dst_rank: int, channel: int = 0, timeout_ms: int = 0) -> None:
            slot = self._slot(dst_rank, channel, self.rank)
            _poll(lambda: slot.value == 0, timeout_ms, f"put_signal: rank {dst_rank} has not taken the last signal")
            slot.value = 1

        def wait_signal(self, src_rank: int, channel: int = 0, timeout_ms: int = 0) -> None:
            slot = self._slot(self.rank, channel, src_rank)
            _poll(lambda: slot.value == 1, timeout_ms, f"wait_signal: no signal of rank {src_rank}")
            slot.value = 0

        def barrier(self, channel: int = 0, timeout_ms: int = 0) -> None:
            others = [rank for rank in range(self.world_size) if rank != self.rank]
            for rank in others:
                self.put_signal(rank, channel, timeout_ms)
            for rank in others:
                self.wait_signal(rank, channel, timeout_ms)

        @staticmethod
        def stream_write_value32(tensor: Any, offset: int, val: int) -> None:
            tensor.view(-1)[offset] = val

        @staticmethod
        def memset32(tensor: Any, offset: int, val: int, count: int = 1) -> None:
            tensor.view(-1)[offset : offset + count] = val

    defaults: dict[int, str | None] = {}
    return SymmetricMemory


def register_operators(symmetric: Any) -> Any:
    """Implement the operators ``torch.ops.symm_mem`` that need neither multicast nor NVSHMEM nor NCCL's windows, and
    refuse the others by name; the caller keeps what is returned."""

    def reduced(tensor: Any, operation: str, group_name: str, count: int | None = None) -> tuple[Any, Any]:
        """Return the handle of a symmetric tensor, and the reduction of its first ``count`` elements over the group."""
        handle = symmetric.rendezvous(tensor, group_name)
        if handle is None:
            raise RuntimeError(
                "the input must be symmetric memory: make it with torch.distributed._symmetric_memory.empty"
            )
        if operation not in ("sum", "avg"):
            raise ValueError(f"reduce_op must be 'sum' or 'avg', got {operation!r:.60}")
        shape, offset = tuple(tensor.shape) if count is None else (count,), tensor.storage_offset()
        handle.barrier()
        buffers = [handle.get_buffer(r, shape, tensor.dtype, offset) for r in range(handle.world_size)]
        wide = torch.stack(
            [each.float() if each.element_size() < 4 and each.is_floating_point() else each for each in buffers]
        )
        total = {"sum": lambda: wide.sum(0), "avg": lambda: wide.mean(0)}[operation]()
        handle.barrier()
        return handle, total.to(tensor.dtype)

    def one_shot(tensor: Any, operation: str, group_name: str) -> Any:
        return reduced(tensor, operation, group_name)[1]

    def one_shot_copy(buffer: Any, given: Any, operation: str, group_name: str) -> Any:
        if given.numel() > buffer.numel():
            raise RuntimeError(f"one_shot_all_reduce_copy: {given.numel()} elements, the buffer has {buffer.numel()}")
        buffer.view(-1)[: given.numel()].copy_(given.reshape(-1))
        return reduced(buffer.view(-1), operation, group_name, given.numel())[1].view(given.shape)

    def two_shot(tensor: Any, operation: str, group_name: str) -> Any:
        handle, total = reduced(tensor, operation, group_name)
        tensor.copy_(total)
        handle.barrier()
        return tensor

    def reduce_scatter(tensor: Any, group_name: str, split_last_dim: bool, output: Any) -> Any:
        handle, total = reduced(tensor, "sum", group_name)
        total = total if split_last_dim else total.reshape(-1)
        return output.copy_(total.chunk(handle.world_size, -1)[handle.rank].reshape(output.shape))

    def words(tensor: Any, offset: int, count: int, call: str) -> Any:
        if tensor.element_size() != 4 or not 0 <= offset <= offset + count <= tensor.numel():
            raise RuntimeError(
                f"{call}: expected {count} elements of 4 bytes from element {offset} on, got a tensor of"
                f" {tensor.numel()} {tensor.dtype}"
            )
        return tensor.view(-1)[offset : offset + count]

    def write(tensor: Any, offset: int, value: int, count: int = 1, call: str = "stream_write_value32_") -> Any:
        words(tensor, offset, count, call).view(torch.int32).fill_((value + (1 << 31)) % (1 << 32) - (1 << 31))
        return tensor

    def to_output(operator: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: arguments[-1].copy_(operator(*arguments[:-1]))

    operators = {
        "one_shot_all_reduce": one_shot,
        "one_shot_all_reduce_out": to_output(one_shot),
        "one_shot_all_reduce_copy": one_shot_copy,
        "one_shot_all_reduce_copy_out": to_output(one_shot_copy),
        "two_shot_all_reduce_": two_shot,
        "two_shot_all_reduce_out": to_output(one_shot),
        "reduce_scatter_out": reduce_scatter,
        "stream_write_value32_": write,
        "memset32_": lambda tensor, offset, value, count=1: write(tensor, offset, value, count, "memset32_"),
    }
    library = torch.library.Library("symm_mem", "IMPL", "CUDA")
    for full in torch._C._dispatch_get_all_op_names():
        space, _, name = full.partition("::")
        if space != "symm_mem":
            continue
        if name in operators:
            library.impl(name, operators[name])
        elif not torch._C._dispatch_has_kernel_for_dispatch_key(full, "CUDA"):
            library.impl(name, _refusing(name))
    return library


def _refusing(name: str) -> Callable[..., Any]:
    def refused(*_: Any, **__: Any) -> None:
        raise refuse(f"torch.ops.symm_mem.{name}")

    return refused


def _group_info(name: str) -> tuple[int, int, Any]:
    """Return the rank, the size, and a store of the process group of that name. Groups of other ranks have others."""
    from torch.distributed import distributed_c10d

    c10d: Any = distributed_c10d  # its stubs leave most of this out
    group = c10d._resolve_process_group(name)
    ranks = "_".join(map(str, sorted(c10d._world.pg_group_ranks[group])))
    store = c10d.PrefixStore(f"symmetric_memory-{ranks}", c10d._get_process_group_store(group))
    return group.rank(), group.size(), store


def _poll(ready: Callable[[], bool], timeout_ms: int, failure: str) -> None:
    """Wait for ``ready``; without a limit if ``timeout_ms`` is 0."""
    deadline = time.monotonic() + timeout_ms / 1000
    pause = 0.0
    while not ready():
        if timeout_ms and time.monotonic() > deadline:
            raise RuntimeError(f"{failure} within {timeout_ms} ms")
        time.sleep(pause)
        pause = min(0.001, pause + 0.00002)
