"""The symmetric heap: the same offsets on every rank, every rank's heap mapped in every process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch

from iris_under_test.host.distributed.helpers import exchange
from iris_under_test.host.platform import Platform

from .allocator import BumpAllocator

__all__ = ["DEFAULT_ALIGNMENT", "SymmetricHeap"]

DEFAULT_ALIGNMENT = 1024

_FINE, _BAD_REQUEST, _DOES_NOT_FIT = range(3)


class SymmetricHeap:
    """A heap of ``heap_size`` bytes per rank. Construction, like each allocation, is collective over the world.

    Raises:
        ValueError: on every rank, if ``heap_size`` is no positive int somewhere, differs between ranks, or cannot be
            had.
    """

    def __init__(self, heap_size: int, platform: Platform, cur_rank: int, num_ranks: int) -> None:
        _check_heap_size(heap_size)
        self.heap_size = heap_size
        self.cur_rank = cur_rank
        self.num_ranks = num_ranks
        self._platform = platform
        self._memory = platform.map_symmetric_memory(heap_size, cur_rank, num_ranks)
        self.allocator = BumpAllocator(self._memory.pool)
        self.bases = list(self._memory.bases)

    def allocate(
        self,
        num_elements: int,
        dtype: torch.dtype,
        alignment: int = DEFAULT_ALIGNMENT,
        initialise: Callable[[torch.Tensor], object] | None = None,
    ) -> torch.Tensor:
        """Returns a 1-D tensor of ``num_elements`` at the same heap offset on every rank.

        Collective: no rank returns before every rank has called, so what a rank wrote before it allocates is visible
        to all after it. ``initialise`` runs before that point: no peer's write can be undone by it. An allocation of 0
        elements takes the room of one.

        Raises, on every rank, and then nothing is allocated anywhere:
            ValueError: a rank asked for a negative number of elements or a bad alignment.
            RuntimeError: ranks asked for different sizes; the message names them.
            MemoryError: the heap is full.
        """
        problem = _request_problem(num_elements, dtype, alignment)
        num_bytes, offset = -1, None
        if problem is None:
            num_bytes = max(num_elements, 1) * dtype.itemsize
            offset = self.allocator.place(num_bytes, alignment)
        status = _BAD_REQUEST if problem else _FINE if offset is not None else _DOES_NOT_FIT

        tensor = torch.empty(0)
        if offset is not None:
            tensor = self.allocator.view(offset, num_elements, dtype)
            if initialise is not None:
                initialise(tensor)
        # What was enqueued before is done, on any stream, before a peer can go on.
        self._platform.synchronize()
        # Sizes beyond 64 bits never fit; the exchange cannot carry them.
        rows = exchange([status, -1 if offset is None else offset, min(num_bytes, 2**63 - 1)])

        if problem is not None:
            raise ValueError(problem)
        bad = [rank for rank, row in enumerate(rows) if row[0] == _BAD_REQUEST]
        if bad:
            raise ValueError(f"allocation of {num_elements} elements: bad request on ranks {bad}")
        _check_symmetry(rows)
        if offset is None:
            raise MemoryError(
                f"Heap out of memory: {num_bytes} bytes asked, {self.allocator.free_bytes()} of {self.heap_size} free"
            )
        self.allocator.take(offset, num_bytes)
        return tensor

    def is_symmetric(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor starts inside this rank's heap; every tensor without elements counts as inside."""
        return self.allocator.owns_tensor(tensor)

    on_symmetric_heap = is_symmetric

    def get_device(self) -> torch.device:
        return self.allocator.get_device()

    def get_heap_bases(self) -> list[int]:
        """Address of each rank's heap in this process."""
        return list(self.bases)

    def close(self) -> None:
        """Unmaps the peers' heaps; the own one goes with its last tensor. Idempotent, not collective."""
        self._memory.close()


def _request_problem(num_elements: int, dtype: torch.dtype, alignment: int) -> str | None:
    if num_elements < 0:
        return f"allocation of {num_elements} elements: the count must not be negative"
    if alignment <= 0 or alignment % dtype.itemsize:
        return f"alignment {alignment} must be positive and a multiple of the element size {dtype.itemsize}"
    return None


def _check_heap_size(heap_size: int) -> None:
    """Collective: raises ValueError on every rank unless all pass the same positive int."""
    fine = isinstance(heap_size, int) and not isinstance(heap_size, bool) and 0 < heap_size < 2**63
    sizes = [size for (size,) in exchange([heap_size if fine else -1])]
    if not fine:
        raise ValueError(f"heap_size must be a positive number of bytes, got {heap_size!r}")
    bad = [rank for rank, size in enumerate(sizes) if size < 0]
    if bad:
        raise ValueError(f"heap_size is {heap_size} here and no positive number of bytes on ranks {bad}")
    if len(set(sizes)) > 1:
        raise ValueError(f"heap_size must be the same on every rank, got {dict(enumerate(sizes))}")


def _check_symmetry(rows: list[list[int]]) -> None:
    places = [(row[1], row[2]) for row in rows]
    common, count = Counter(places).most_common(1)[0]
    if count == len(places):
        return
    others = {rank: place for rank, place in enumerate(places) if place != common}
    told = ", ".join(f"rank {rank}: {size} bytes at offset {offset}" for rank, (offset, size) in others.items())
    raise RuntimeError(
        f"asymmetric allocation: most ranks asked for {common[1]} bytes at offset {common[0]}, but {told}"
    )
