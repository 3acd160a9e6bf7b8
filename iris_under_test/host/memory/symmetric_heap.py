"""The symmetric heap: the same offsets on every rank, every rank's heap mapped in every process."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch

from iris_under_test.host.platform import Platform, SharedMemory, current
from iris_under_test.host.platform.utils import is_simulation_env

from . import agreement
from .agreement import Operation, Request
from .allocators import ALLOCATORS, BaseAllocator
from .allocators.base_allocator import DEFAULT_ALIGNMENT, span_bytes

__all__ = ["ALLOCATOR_VARIABLE", "DEFAULT_ALIGNMENT", "SymmetricHeap"]

ALLOCATOR_VARIABLE = "IRIS_ALLOCATOR"


class SymmetricHeap:
    """A heap of ``heap_size`` bytes per rank.

    Construction and every method down to ``refresh_peer_access`` are collective over the world: all ranks call the same
    ones with the same sizes in the same order. Where they do not, every rank gets the error, and nothing has changed on
    any. No rank returns before every rank has called, and what a rank's device was doing before is done by then.
    Not thread-safe.

    Attributes: ``heap_size`` (bytes), ``allocator_type``, ``allocator``, ``bases`` (address of each rank's heap in this
    process; they never change), ``cur_rank``, ``num_ranks``.

    Raises, on every rank:
        ValueError: ``heap_size`` is not a positive int, the allocator is unknown, ranks disagree on either, or the
            memory cannot be allocated (RuntimeError on the ranks that could allocate it).
    """

    def __init__(
        self,
        heap_size: int,
        device_id: int,
        cur_rank: int,
        num_ranks: int,
        allocator_type: str = "torch",
        *,
        platform: Platform | None = None,
    ) -> None:
        """``device_id`` is the ordinal of the rank's device. The environment variable ``IRIS_ALLOCATOR`` overrides
        ``allocator_type``, and in a simulation (``IRIS_SIMULATION``) it is always "torch". ``platform`` defaults to
        that of Triton's active driver."""
        chosen = "torch" if is_simulation_env() else os.environ.get(ALLOCATOR_VARIABLE)
        self.allocator_type = chosen or allocator_type
        self._platform = platform or current()
        # Before the first collective: nccl serves the current device, and that is every process's first one.
        self._platform.make_current(cur_rank)
        agreement.on_heap(heap_size, self.allocator_type, list(ALLOCATORS))
        self.heap_size = heap_size
        self.cur_rank = cur_rank
        self.num_ranks = num_ranks
        self._closed = False
        # By the offset of the tensor's first byte: the offset of its allocation, and the bytes that it covers.
        self._live: dict[int, tuple[int, int]] = {}
        self.allocator: BaseAllocator = ALLOCATORS[self.allocator_type](
            heap_size, device_id, cur_rank, num_ranks, platform=self._platform
        )
        self.bases = list(self.allocator.bases)

    def allocate(
        self,
        num_elements: int,
        dtype: torch.dtype,
        alignment: int = DEFAULT_ALIGNMENT,
        initialise: Callable[[torch.Tensor], object] | None = None,
    ) -> torch.Tensor:
        """A 1-D tensor of ``num_elements`` at the same heap offset on every rank.

        What a rank wrote before it allocates is visible to all after it. ``initialise`` runs before that point: no
        peer's write can be undone by it. An allocation of 0 elements takes the room of one. ``alignment`` is in
        bytes, and that of the offset: heaps start at multiples of 4096.

        Raises, on every rank:
            ValueError: a rank requested a negative number of elements or a bad alignment, or ``initialise`` raised on
                another rank (on that rank, what it raised).
            RuntimeError: ranks requested different sizes, or not all an allocation; the message names them.
            HeapOutOfMemory (a MemoryError and a RuntimeError): the heap, or the memory of a rank's device, is full.
        """
        request = Request(Operation.ALLOCATE)
        tensor = torch.empty(0)
        with request.noting():
            self._check_open()
            _check_elements(num_elements, dtype, alignment)
            request.num_bytes = self.allocator.rounded(num_elements, dtype)
            request.offset = self.allocator.reserve(request.num_bytes, alignment)
            tensor = self.allocator.view(request.offset, num_elements, dtype)
            if initialise is not None:
                initialise(tensor)
        self._settle(request)
        self._live[request.offset] = (request.offset, num_elements * dtype.itemsize)
        return tensor

    def free(self, tensor: torch.Tensor) -> None:
        """Free the memory of an allocation: later allocations may use it.

        ``tensor`` covers one whole allocation: what ``allocate`` or a function of tensor_creation returned, or a view
        of all of it. It and its views must not be used any more; with ``vmem`` their addresses may fault. Nothing in
        flight is hurt: no memory is reused before every rank's device has finished what was enqueued before.

        Raises, on every rank:
            ValueError: a rank passed a tensor that is not a live allocation of this heap: of another heap or of none, a
                part of an allocation, or one that was freed before.
            RuntimeError: ranks freed different allocations, or not all freed.
        """
        request, first = Request(Operation.FREE), -1
        with request.noting():
            self._check_open()
            first = self._offset_of(tensor)
            request.offset, request.num_bytes = self._live[first]
        self._agree(request)
        del self._live[first]
        self.allocator.release(request.offset)

    def as_symmetric(self, external_tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor on the heap with the shape, dtype and values of ``external_tensor``, outside autograd.

        ``torch``: a copy. ``vmem``: a second mapping of the memory of ``external_tensor``, so that each shows what is
        written through the other, also after the heap is closed; a copy where the device or the tensor's memory does
        not allow that on every rank alike (see docs/memory.md). A second mapping takes the addresses, not the
        memory, of the whole granules around it. ``free`` frees the returned tensor and leaves the original as it is.

        Raises:
            RuntimeError: on every rank, if a rank passed a tensor that is not contiguous or not on its device, or ranks
                passed different sizes.
            HeapOutOfMemory: on every rank: the heap is full.
        """
        request, shared, tensor = Request(Operation.AS_SYMMETRIC, elsewhere=RuntimeError), None, external_tensor
        with request.noting():
            self._check_open()
            if external_tensor.device != self.get_device():
                raise RuntimeError(
                    f"as_symmetric: the tensor is on {external_tensor.device}, the heap on {self.get_device()}: "
                    "move the tensor there first"
                )
            if not external_tensor.is_contiguous():
                raise RuntimeError(
                    f"as_symmetric: the tensor must be contiguous, its strides are {external_tensor.stride()}"
                )
            tensor = external_tensor.detach()
            request.num_bytes = tensor.nbytes
            # Of a lazy conjugate or negative, the memory does not hold the values.
            plain = not tensor.is_conj() and not tensor.is_neg()
            shared = self.allocator.share(tensor) if plain and tensor.numel() else None
        try:
            places = self._agree(request, (shared.size, shared.start) if shared else (0, 0))
            if shared is None or len(set(places)) > 1:
                copy = self.allocate(tensor.numel(), tensor.dtype, initialise=lambda new: new.copy_(tensor.flatten()))
                return copy.view(tensor.shape)
            return self._map_again(tensor, shared)
        finally:
            if shared is not None:
                shared.drop()

    def refresh_peer_access(self) -> None:
        """A barrier of all ranks and their devices. Every allocation is reachable by every rank already."""
        request = Request(Operation.REFRESH)
        with request.noting():
            self._check_open()
        self._agree(request)

    # Queries, not collective

    def is_symmetric(self, tensor: torch.Tensor) -> bool:
        """Return True if all of the tensor lies inside this rank's heap, or if it has no elements."""
        return self.allocator.owns_tensor(tensor)

    def on_symmetric_heap(self, tensor: torch.Tensor) -> bool:
        """Return the result of ``is_symmetric``."""
        return self.is_symmetric(tensor)

    def get_device(self) -> torch.device:
        """The device of the heap's tensors."""
        return self.allocator.get_device()

    def get_heap_bases(self) -> list[int]:
        """Address of each rank's heap in this process."""
        return list(self.bases)

    def close(self) -> None:
        """Unmap the peers' heaps; this rank's goes with its last tensor. Idempotent, not collective."""
        self._closed = True
        self.allocator.close()

    def _agree(self, request: Request, more: tuple[int, int] = (0, 0)) -> list[tuple[int, ...]]:
        """Wait for this rank's device and for every rank, and raise on every rank unless all request the same."""
        with request.noting():  # the device may have failed, and the others must not wait for this rank
            self._platform.synchronize()
        return request.agree(more)

    def _settle(self, request: Request) -> None:
        """Ends an allocation that this rank has reserved: either every rank reaches it, or none has it."""
        try:
            self._agree(request)
            self.allocator.connect()
        except BaseException:
            if request.offset >= 0:
                self.allocator.release(request.offset)
            raise

    def _map_again(self, tensor: torch.Tensor, shared: SharedMemory) -> torch.Tensor:
        request = Request(Operation.AS_SYMMETRIC, RuntimeError, shared.size)
        with request.noting():
            request.offset = self.allocator.reserve_shared(shared, tensor)
        self._settle(request)
        first = request.offset + shared.start
        self._live[first] = (request.offset, tensor.nbytes)
        return self.allocator.view(first, tensor.numel(), tensor.dtype).view(tensor.shape)

    def _offset_of(self, tensor: torch.Tensor) -> int:
        """Return the offset of the live allocation that ``tensor`` covers; ValueError if it covers none."""
        # Not data_ptr, which is 0 for a tensor without elements.
        address = tensor.untyped_storage().data_ptr() + tensor.storage_offset() * tensor.element_size()
        first = int(address) - self.bases[self.cur_rank]
        if first not in self._live or tensor.device != self.get_device():
            raise ValueError(f"free: no live allocation of this heap starts at {address:#x}")
        size = self._live[first][1]
        if (tensor.nbytes, span_bytes(tensor)) != (size, size):
            raise ValueError(f"free: the allocation has {size} bytes, the tensor covers {tensor.nbytes} of them")
        return first

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the heap is closed")


def _check_elements(num_elements: int, dtype: torch.dtype, alignment: int) -> None:
    if num_elements < 0:
        raise ValueError(f"allocation of {num_elements} elements: the count must not be negative")
    if alignment <= 0 or alignment % dtype.itemsize:
        raise ValueError(f"alignment {alignment} must be positive and a multiple of the element size {dtype.itemsize}")
