"""All ranks of a world in one process, for kernels that are counted or compiled and not timed.

    world = World(8, heap_size=1 << 20)
    outputs = world.tensors((8 * 64, 256), torch.float16)
    inputs = world.tensors((64, 256), torch.float16)
    world.run(lambda rank: rank.ccl.all_gather(outputs[rank.cur_rank], inputs[rank.cur_rank], async_op=True))

On the emulated device the kernels of all ranks run under one scheduler, so every run is the same. On a driver that only
compiles (``harness.isa.compile_only``) rank 0's are compiled, and nothing runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from triton.runtime import driver as triton_driver

from harness import emulator
from harness.emulator.driver.driver import EmulatedDriver
from iris_under_test.ccl.instance import InstanceCollectives
from iris_under_test.device.flagged import slot_bytes
from iris_under_test.device.mailboxes import BOX_WORDS, MAX_TAGS
from iris_under_test.device.signals import MAX_PROGRAMS
from iris_under_test.host.groups import Members, Scratch
from iris_under_test.ops.instance import InstanceOps

_ALIGNMENT = 64
_TRACING_ENTRIES = 17


class World:
    """``size`` heaps of ``heap_size`` bytes; an allocation has one offset in all of them."""

    def __init__(self, size: int, heap_size: int) -> None:
        self.size = size
        self.heap_size = -(-heap_size // _ALIGNMENT) * _ALIGNMENT
        # Storages of their own: a launch may access the whole storage of each of its arguments.
        self._heaps = [torch.zeros(self.heap_size, dtype=torch.uint8) for _ in range(size)]
        self._slots = [torch.zeros(slot_bytes(size), dtype=torch.uint8) for _ in range(size)]
        self._used = 0
        self.bases = [heap.data_ptr() for heap in self._heaps]
        # As in host.groups: a table of the addresses of each member's signal words, followed by this member's own
        # words.
        tables = self.tensors((2 * size + (MAX_PROGRAMS.value + 1) * size,), torch.int32)
        bases = torch.tensor([slots.data_ptr() for slots in self._slots])
        self.ranks = [Rank(self, rank, tables, Scratch(self._slots[rank], bases)) for rank in range(size)]
        self._scratch: dict[str, list[torch.Tensor]] = {}
        self._allocated: list[list[torch.Tensor]] = []

    def tensors(self, shape: Sequence[int], dtype: torch.dtype) -> list[torch.Tensor]:
        """A tensor of zeros on each heap, at the same offset."""
        count = dtype.itemsize * int(torch.Size(shape).numel())
        start, self._used = self._used, self._used + -(-count // _ALIGNMENT) * _ALIGNMENT
        if self._used > self.heap_size:
            raise MemoryError(f"{tuple(shape)} of {dtype} wants {count} bytes, {self.heap_size - start} are left")
        return [heap[start : start + count].view(dtype).view(tuple(shape)) for heap in self._heaps]

    def scratch(self, use: str, num_bytes: int) -> list[torch.Tensor]:
        """Bytes on each heap, the same at each call for ``use``; the first call sets the number."""
        if use not in self._scratch:
            self._scratch[use] = self.tensors((num_bytes,), torch.uint8)
        assert self._scratch[use][0].numel() >= num_bytes, f"{use} wants {num_bytes} bytes now"  # sanity check
        return self._scratch[use]

    def allocation(self, number: int, shape: Sequence[int], dtype: torch.dtype) -> list[torch.Tensor]:
        """The tensors of the ``number``th allocation, which each rank requests in turn."""
        if number == len(self._allocated):
            self._allocated.append(self.tensors(shape, dtype))
        return self._allocated[number]

    def run(self, call: Callable[[Rank], Any]) -> None:
        """``call(rank)`` for each rank, whose kernels then run side by side; for rank 0 alone where nothing runs."""
        driver = triton_driver.active
        if not isinstance(driver, EmulatedDriver):
            call(self.ranks[0])
            return
        with self._registered(driver), emulator.concurrent_ranks(driver) as ranks:
            for rank in self.ranks:
                with ranks.rank(rank.cur_rank):
                    call(rank)

    @contextlib.contextmanager
    def _registered(self, driver: EmulatedDriver) -> Iterator[None]:
        memory = {}
        for rank, (base, slots) in enumerate(zip(self.bases, self._slots, strict=True)):
            memory[base] = (self.heap_size, f"heap of rank {rank}", rank)
            memory[slots.data_ptr()] = (slots.numel(), f"slots of rank {rank}", rank)
        for base, (size, label, rank) in memory.items():
            driver.register_memory(base, size, label, peer=rank)
        try:
            yield
        finally:
            for base in memory:
                driver.unregister_memory(base)


class Rank:
    """Stand-in for an ``Iris`` and its heap, as far as collectives use them, for one rank of a ``World``."""

    def __init__(self, world: World, rank: int, tables: list[torch.Tensor], slots: Scratch) -> None:
        self._world = world
        self.cur_rank = rank
        self.num_ranks, self.gpu_id = world.size, 0
        self.heap = self
        self._allocations = 0
        self.ops = InstanceOps(self)  # type: ignore[arg-type]
        self.ccl = InstanceCollectives(self)  # type: ignore[arg-type]
        self._bases, self._end = torch.tensor(world.bases), world.bases[rank] + world.heap_size
        entries = [world.heap_size, 0, rank, world.size, *world.bases, *[0] * _TRACING_ENTRIES]
        self._context = torch.tensor(entries)[2:]  # behind what only the debug build reads
        pads, words = tables[rank][: 2 * world.size].view(torch.int64), tables[rank][2 * world.size :]
        pads.copy_(torch.tensor([table.data_ptr() + pads.nbytes for table in tables]))
        everyone, rows = tuple(range(world.size)), words.view(-1, world.size)
        self._members = Members(everyone, rank, self._context, pads, rows, slots, None)

    def get_device_context(self) -> torch.Tensor:
        return self._context

    def members(self, group: None) -> Members:
        return self._members

    def get_rank(self) -> int:
        return self.cur_rank

    def get_num_ranks(self) -> int:
        return self.num_ranks

    def get_cu_count(self) -> int:
        return int(triton_driver.active.utils.get_device_properties(0)["multiprocessor_count"])

    def empty(self, *shape: int, dtype: torch.dtype) -> torch.Tensor:
        self._allocations += 1
        return self._world.allocation(self._allocations - 1, shape, dtype)[self.cur_rank]

    def barrier(self) -> None:
        """Nothing has run yet."""

    def mailboxes(self) -> torch.Tensor:
        size = self.num_ranks * MAX_TAGS.value * BOX_WORDS.value * 8
        return torch.tensor([box.data_ptr() for box in self._world.scratch("mailboxes", size)])

    def scratch(self, members: Members, use: str, num_bytes: int) -> Scratch:
        parts = self._world.scratch(use, num_bytes)
        return Scratch(parts[self.cur_rank], torch.tensor([part.data_ptr() for part in parts]))

    def get_device(self) -> torch.device:
        return torch.device("cpu")

    def get_heap_bases(self) -> torch.Tensor:
        return self._bases

    def is_symmetric(self, tensor: torch.Tensor) -> bool:
        start = int(self._bases[self.cur_rank])
        return start <= tensor.data_ptr() and tensor.data_ptr() + tensor.nbytes <= self._end
