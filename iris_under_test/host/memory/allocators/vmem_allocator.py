"""The allocator ``vmem``: addresses are reserved at once, memory is mapped into them on demand.

Every process reserves one range per rank. When an allocation reaches addresses that have no memory yet, the rank makes
a *chunk* for them, of whole granules of the device and with one handle, and the handle's descriptor goes to every peer,
which maps the chunk at the same offset of its range for that rank. So a peer's range never moves and addresses once
handed out stay good; reading beyond what is mapped faults. A chunk without a live allocation is unmapped everywhere,
and its memory goes back to the device.

Example, granule 64 KiB: ``allocate(10, int8)`` maps [0, 64 KiB); a second of 200,000 bytes starts at 1024 and maps
[64, 256) KiB as one more chunk; freeing the second unmaps that chunk, freeing the first the other.
"""

from __future__ import annotations

import functools
import socket
import struct
import weakref
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from iris_under_test.host.distributed.fd_passing import (
    OtherEndClosedError,
    close_connections,
    exchange_fd,
    managed_fd,
    setup_fd_infrastructure,
)
from iris_under_test.host.distributed.helpers import agree, exchange, hosts
from iris_under_test.host.memory.errors import HeapOutOfMemory
from iris_under_test.host.platform import Platform, SharedMemory, VirtualMemory, current

from .base_allocator import BaseAllocator

__all__ = ["VMemAllocator"]

_PLACE = struct.Struct("<QQ")  # offset and size of a chunk, sent with its descriptor

_SECOND_MAPPINGS = 1 << 30
"""Bytes of addresses for them in every range: addresses cost nothing, and one takes all of torch's segment around a
tensor, 2 MiB for the smallest."""


class VMemAllocator(BaseAllocator):
    """Allocator that maps memory into a reserved range on demand. Construction is collective.

    ``heap_size`` bytes may be allocated. Second mappings (``reserve_shared``) lie after them: the range has 1 GiB more
    addresses, or ``va_multiplier`` times ``heap_size`` if that is more. Allocations and the tensors of second mappings
    together may have ``va_multiplier`` times ``heap_size`` bytes.

    Raises, on every rank:
        ValueError: ``va_multiplier`` is less than 1 or no range of that size can be had; RuntimeError naming the ranks
            that raised it on the others.
    """

    def __init__(
        self,
        heap_size: int,
        device_id: int,
        rank: int,
        world_size: int,
        va_multiplier: float = 1.0,
        *,
        platform: Platform | None = None,
    ) -> None:
        """``device_id`` is the ordinal of the rank's device; the platform knows it too."""
        platform = platform or current()
        if len(set(hosts())) > 1:
            raise ValueError(
                "the allocator vmem passes memory by descriptors, which only processes of one host can receive, and the"
                " ranks are on several: use the allocator torch"
            )
        self._world_size = world_size
        self._device = platform.device(rank)
        self._chunks: list[_Chunk] = []
        self._connections: dict[int, socket.socket] | None = None
        error: Exception | None = None
        self._peers: dict[int, _Range] = {}
        try:
            if not 1 <= va_multiplier < float("inf"):
                raise ValueError(f"va_multiplier must be at least 1, got {va_multiplier}")
            self._mappable = int(heap_size * va_multiplier)
            super().__init__(rank, heap_size, max(self._mappable, heap_size + _SECOND_MAPPINGS))
            memory = platform.virtual_memory(rank, world_size)
            self._granule = memory.granularity
            size = -(-self._placement.size // self._granule) * self._granule
            for owner in range(world_size):
                self._peers[owner] = _Range(memory, size, owner)
        except (OSError, ValueError, TypeError, RuntimeError) as failure:
            kind = ValueError if isinstance(failure, OSError) else type(failure)
            error = kind(f"cannot reserve heaps of {heap_size} bytes: {failure}")
        agree(error, f"reserving heaps of {heap_size} bytes")
        self.bases = [self._peers[owner].address for owner in range(world_size)]
        self._own: _Range | None = self._peers.pop(rank)
        self._memory = memory
        self._connections = setup_fd_infrastructure(rank, world_size)
        self._finalizer = weakref.finalize(self, _disconnect, self._connections, self._peers, self._chunks)
        self._finalizer.atexit = False  # at its end the process frees all, and its device may be gone

    def reserve(self, num_bytes: int, alignment: int) -> int:
        """The offset of a new allocation; what of it has no memory yet gets it, on this rank.

        Raises:
            HeapOutOfMemory: no room in the heap, or none on the device. Then nothing has changed.
        """
        offset = super().reserve(num_bytes, alignment)
        try:
            for start, stop in self._unmapped(offset, offset + num_bytes):
                handle = self._memory.create(stop - start)
                self._add(start, stop - start, handle, functools.partial(self._memory.destroy, handle))
        except (OSError, RuntimeError) as failure:
            self.release(offset)
            raise HeapOutOfMemory(f"Heap out of memory: the device has no {num_bytes} bytes: {failure}") from failure
        return offset

    def share(self, tensor: torch.Tensor) -> SharedMemory | None:
        return self._memory.share(tensor)

    def reserve_shared(self, shared: SharedMemory, tensor: torch.Tensor) -> int:
        """The offset of a second mapping of memory that is there already, as a chunk and an allocation of its own.

        The mapping takes the bytes of ``tensor`` from the heap, and with a ``va_multiplier`` from what the heap may
        have besides; what is mapped around the tensor takes only addresses. The handle stays the caller's, who keeps it
        until the ranks are connected. The tensor is kept while the mapping is: torch would use its memory again.

        Raises:
            HeapOutOfMemory: no room in the heap, or in the range.
        """
        assert self._own is not None  # the heap refuses after close
        free = self._mappable - self._used_bytes()
        if tensor.nbytes > free:
            raise HeapOutOfMemory(
                f"Heap out of memory: {tensor.nbytes} bytes requested, {free} of {self._mappable} free"
            )
        heap = -(-self.heap_size // self._granule) * self._granule
        mapped = [(chunk.offset, chunk.stop) for chunk in self._chunks if chunk.offset >= heap]
        offset = self._placement.find(shared.size, self._granule, avoid=[(0, heap), *mapped])
        if offset is None:
            raise HeapOutOfMemory(f"Heap out of memory: no {shared.size} bytes of addresses for a second mapping")
        self._add(offset, shared.size, shared.handle, None)
        self._placement.take(offset, shared.size)
        self._addresses_only[offset] = shared.size - tensor.nbytes
        if not self.owns_tensor(tensor):
            self._own.originals[offset] = tensor
        return offset

    def release(self, offset: int) -> None:
        """Free an allocation, and unmap the chunks without a live allocation."""
        super().release(offset)
        if self._own is not None:
            self._own.originals.pop(offset, None)
        for chunk in list(self._chunks):
            if not self._placement.overlaps(chunk.offset, chunk.stop):
                self._chunks.remove(chunk)
                chunk.drop()

    def connect(self) -> None:
        """Collective: every rank maps what its peers have mapped since the last call.

        Raises:
            RuntimeError: on every rank, if a chunk could not be passed or mapped somewhere: the rank's own error, and
                one that names those ranks on the others.
        """
        fresh = [chunk for chunk in self._chunks if chunk.handle is not None]
        if not fresh:
            return
        if self._connections is not None and not self._connections:
            self._connections.update(setup_fd_infrastructure(self._rank, self._world_size) or {})
        error: Exception | None = None
        try:
            for chunk in fresh:
                error = self._pass(chunk) or error
                chunk.forget_handle()
        except (OSError, RuntimeError) as failure:
            close_connections(self._connections)  # so that the peers learn of it at once
            error = failure
        # A rank that only sees that another one closed has no error of its own to report.
        state = 0 if error is None else 1 if isinstance(error, (OtherEndClosedError, ConnectionError)) else 2
        states = [state for (state,) in exchange([state], doing="mapping the peers' memory")]
        worst = max(states)
        if worst == 0:
            return
        close_connections(self._connections)  # which some rank may have closed: the next call connects anew
        if error is not None and state == worst:
            raise RuntimeError(f"cannot map a peer's memory: {error}") from error
        failed = [rank for rank, other in enumerate(states) if other == worst]
        raise RuntimeError(f"cannot map a peer's memory: it failed on ranks {failed}")

    def view(self, offset: int, num_elements: int, dtype: torch.dtype) -> torch.Tensor:
        assert self._own is not None  # the heap refuses after close
        size = max(num_elements, 1) * dtype.itemsize
        whole = self._memory.tensor(self._own.address + offset, size, self._own)
        return whole.view(dtype)[:num_elements]

    def get_device(self) -> torch.device:
        return self._device

    def mapped_bytes(self) -> int:
        """Bytes of this rank's range that have memory."""
        return sum(chunk.size for chunk in self._chunks)

    def close(self) -> None:
        self._finalizer()
        self._own = None

    def _add(self, offset: int, size: int, handle: Any, destroy: Callable[[], None] | None) -> None:
        """Add a chunk, mapped in this rank's range."""
        assert self._own is not None  # the heap refuses after close
        chunk = _Chunk(offset, size, handle, destroy)
        try:
            self._own.map(chunk, handle)
        except BaseException:
            chunk.drop()
            raise
        insort(self._chunks, chunk, key=lambda chunk: chunk.offset)

    def _pass(self, chunk: _Chunk) -> Exception | None:
        """Send a chunk to every peer and map theirs; return the first error of mapping, once all were received.

        Raises OSError or RuntimeError when they could not be exchanged.
        """
        if self._world_size == 1:
            return None
        assert self._connections  # ``connect`` has made them
        place = _PLACE.pack(chunk.offset, chunk.size)
        with managed_fd(self._memory.export(chunk.handle)) as descriptor:
            received = exchange_fd(self._connections, self._rank, descriptor, place)
        error: Exception | None = None
        for peer, (descriptor, payload) in received.items():
            with managed_fd(descriptor):
                try:
                    if payload != place:
                        got, wanted = _PLACE.unpack(payload), _PLACE.unpack(place)
                        raise RuntimeError(
                            f"rank {peer} sent the chunk (offset, size) {got}, expected {wanted}: "
                            "all ranks must make the same allocations"
                        )
                    handle = self._memory.adopt(descriptor, chunk.size)
                    try:
                        self._peers[peer].map(chunk, handle)
                    finally:
                        self._memory.destroy(handle)
                except (OSError, RuntimeError) as failure:
                    error = error or failure
        return error

    def _unmapped(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The parts of [start, stop), widened to whole granules, that no chunk covers, as pieces to be made chunks."""
        start = start // self._granule * self._granule
        stop = -(-stop // self._granule) * self._granule
        gaps = []
        for chunk in self._chunks:
            if chunk.stop > start and chunk.offset < stop:
                if chunk.offset > start:
                    gaps.append((start, chunk.offset))
                start = chunk.stop
        if start < stop:
            gaps.append((start, stop))
        step = self._memory.largest_chunk or self._placement.size + self._granule
        return [(low, min(low + step, high)) for begin, high in gaps for low in range(begin, high, step)]


class _Range:
    """A reserved range for ``owner``'s heap and what is mapped in it; released with its last reference.

    ``originals``: the tensors whose memory is mapped here a second time, by the offset of the mapping.
    """

    def __init__(self, memory: VirtualMemory, size: int, owner: int) -> None:
        self.address = memory.reserve(size, owner)
        self.owner = owner
        self.originals: dict[int, torch.Tensor] = {}
        self._memory = memory
        self._mapped: dict[int, int] = {}
        self.give_back = weakref.finalize(self, _give_back, memory, self.address, size, self._mapped)
        self.give_back.atexit = False

    def map(self, chunk: _Chunk, handle: Any) -> None:
        """Map the chunk, which keeps a reference to this range."""
        self._memory.map(self.address + chunk.offset, chunk.size, handle, self.owner)
        self._mapped[chunk.offset] = chunk.size
        chunk.ranges.append(weakref.ref(self))

    def unmap(self, chunk: _Chunk) -> None:
        """Unmap the chunk, unless the range was released."""
        if self._mapped.pop(chunk.offset, None) is not None:
            self._memory.unmap(self.address + chunk.offset, chunk.size)


def _give_back(memory: VirtualMemory, address: int, size: int, mapped: dict[int, int]) -> None:
    while mapped:
        offset, length = mapped.popitem()
        memory.unmap(address + offset, length)
    memory.release(address, size)


@dataclass(eq=False)
class _Chunk:
    """``size`` bytes at ``offset`` of every rank's range.

    ``handle`` is there until the peers have the memory, then None; ``destroy`` gives it back, None for one that is
    another owner's. The chunk keeps no range alive.
    """

    offset: int
    size: int
    handle: Any
    destroy: Callable[[], None] | None
    ranges: list[weakref.ref[_Range]] = field(default_factory=list)

    @property
    def stop(self) -> int:
        return self.offset + self.size

    def drop(self) -> None:
        """Unmap the chunk from every range."""
        self.forget_handle()
        while self.ranges:
            where = self.ranges.pop()()
            if where is not None:
                where.unmap(self)

    def forget_handle(self) -> None:
        """Release the handle; the mappings keep the memory. Idempotent."""
        destroy, self.handle, self.destroy = self.destroy, None, None
        if destroy is not None:
            destroy()


def _disconnect(connections: dict[int, socket.socket] | None, peers: dict[int, _Range], chunks: list[_Chunk]) -> None:
    close_connections(connections)
    while peers:
        peers.popitem()[1].give_back()
    while chunks:
        chunks.pop().forget_handle()
