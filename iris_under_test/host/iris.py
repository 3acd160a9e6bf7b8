"""``Iris``: what one rank holds of the library - its symmetric heap, the tensors on it, and the collectives.

It joins the parts of the library, so it stands above them: only ``bench`` and the modules with the published names
import this file. What the parts need of an ``Iris`` is ``instance.Instance``.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from triton.runtime import driver

from iris_under_test.ccl.instance import InstanceCollectives
from iris_under_test.ops.instance import InstanceOps

from . import platform
from .device_barrier import enqueue_barrier
from .distributed import broadcast_value, host_barrier
from .distributed.helpers import agree
from .groups import Groups, Members, Scratch
from .logging import DEBUG, ERROR, INFO, WARNING, configure, log
from .memory import SymmetricHeap
from .platform.utils import write_heap_bases
from .tensor_methods import TensorMethods
from .tracing import Tracing

__all__ = ["Iris", "iris"]

# Entries of the context tensor after the heap bases, all about tracing: enabled, maximum events, two counters and
# thirteen buffers.
_TRACING_ENTRIES = 17


def iris(heap_size: int = 2**30, allocator_type: str = "torch") -> Iris:
    """Build an ``Iris`` with ``heap_size`` bytes of symmetric heap per rank. Collective over the world."""
    return Iris(heap_size, allocator_type)


class Iris(TensorMethods):
    """One rank's instance. Construction is collective; ``torch.distributed`` must be initialised. The rank's device,
    the rank modulo the visible devices, becomes the process's current one.

    Tensors on the heap come from the methods of ``TensorMethods``: zeros, ones, full, empty, zeros_like, arange,
    linspace, rand, randn, randint, uniform.

    Not thread-safe. Attributes: ``cur_rank``, ``num_ranks``, ``gpu_id``, ``heap_size``, ``heap``, ``device`` (text),
    ``heap_bases``, ``ccl``, ``ops``, ``tracing``, ``comm`` (always None).

    Raises:
        RuntimeError: torch.distributed is not initialised, or Triton has no active driver.
        ValueError: ``heap_size`` is not a positive int, differs between ranks, or cannot be allocated, or
            ``IRIS_LOG_LEVEL`` is not a level; on every rank.
        OSError: in a simulation, the file of heap bases cannot be written (see ``platform.utils.write_heap_bases``);
            RuntimeError on the ranks that could write theirs.
    """

    def __init__(self, heap_size: int = 2**30, allocator_type: str = "torch") -> None:
        """``allocator_type``: "torch" has the whole heap's memory from the start, "vmem" maps it as it is allocated.
        The environment variable ``IRIS_ALLOCATOR`` wins."""
        if not dist.is_initialized():
            raise RuntimeError("torch.distributed is not initialised: call init_process_group first")
        self._platform = platform.current()
        self.comm = None
        self.cur_rank = dist.get_rank()
        self.num_ranks = dist.get_world_size()
        self.gpu_id = self._platform.device_id(self.cur_rank)
        self._device = self._platform.device(self.cur_rank)
        self.device = str(self._device)
        self.heap = SymmetricHeap(
            heap_size, self.gpu_id, self.cur_rank, self.num_ranks, allocator_type, platform=self._platform
        )
        self.heap_size = heap_size
        self._set_up_process()
        self._context = self._make_context([0] * _TRACING_ENTRIES)
        # Without a reference to this instance, which would be a cycle.
        context_of = functools.partial(
            _context_table, heap_size, self.heap.get_heap_bases(), self._device, [0] * _TRACING_ENTRIES, self.cur_rank
        )
        self._groups = Groups(self._platform, self.cur_rank, self.num_ranks, context_of)
        self._device_barrier_state = self._groups.barrier_words
        # A view, so that the table and the context tensor can never disagree (in upstream Iris they can).
        self.heap_bases = self._context[2 : 2 + self.num_ranks]
        self.tracing = Tracing(self)

    def _set_up_process(self) -> None:
        """Set up logging and the simulator's file: here, so that a bad environment is an error on every rank."""
        error: Exception | None = None
        try:
            configure()  # and not at the first message, in mid-program
            write_heap_bases(self.cur_rank, self.heap_size, self.heap.get_heap_bases())
        except (ValueError, OSError) as bad:
            error = bad
        agree(error, "setting up logging and simulation")

    def _make_context(self, tracing: Sequence[int]) -> torch.Tensor:
        """A context tensor with these tracing entries, int64, shape (2 + num_ranks + 17,).

        In front of it lie two more entries, [heap_size, 0], which only the device functions' debug build reads: two,
        so that the tensor itself stays 16-byte aligned.
        """
        return _context_table(
            self.heap_size, self.heap.get_heap_bases(), self._device, tracing, self.cur_rank, range(self.num_ranks)
        )

    @property
    def ccl(self) -> InstanceCollectives:
        """The collectives bound to this instance: ``ctx.ccl.all_gather(output, input)``."""
        # Made anew each time: kept, it would be a reference cycle, and a deleted instance would keep its heap.
        return InstanceCollectives(self)

    @property
    def ops(self) -> InstanceOps:
        """The fused matmuls and collectives bound to this instance: ``ctx.ops.matmul_all_reduce(output, A, B)``."""
        # Made anew each time, as ``ccl`` is.
        return InstanceOps(self)

    def close(self) -> None:
        """Free the heap: unmap the peers now, and this rank's memory with its last tensor. Idempotent.

        Not collective, but no rank may still be reaching into this rank's heap. Runs by itself when the instance is
        collected or the process ends.
        """
        self._groups.close()
        self.heap.close()

    # Queries

    def get_rank(self) -> int:
        """Return the rank in the world."""
        return self.cur_rank

    def get_num_ranks(self) -> int:
        """Return the size of the world."""
        return self.num_ranks

    @property
    def reachable(self) -> tuple[int, ...]:
        """The ranks whose heaps kernels of this rank can access, itself among them, ascending: those of its host.

        ``heap_bases`` has 0 for the others, and a collective of a group with one of them raises ValueError.
        """
        return self._groups.reachable

    def get_device(self) -> torch.device:
        """The device of the heap's tensors (``cpu``, without an index, on the emulated device)."""
        return self._device

    def get_device_id(self) -> int:
        """The ordinal of this rank's device, ``gpu_id``: the rank modulo the number of visible devices."""
        return self.gpu_id

    def get_cu_count(self) -> int:
        """Return the compute units (AMD) or streaming multiprocessors (NVIDIA) of this rank's device."""
        return int(driver.active.utils.get_device_properties(self.gpu_id)["multiprocessor_count"])

    def get_heap_bases(self) -> torch.Tensor:
        """int64, shape (num_ranks,): where each rank's heap is mapped in this process. Live, always the same tensor."""
        return self.heap_bases

    def get_device_context(self) -> torch.Tensor:
        """The int64 tensor for ``IrisDeviceCtx.initialize``; the same tensor until ``tracing.enable`` makes another.

        Shape (2 + num_ranks + 17,): rank, world size, heap bases, 17 entries about tracing, zeros while it is off. In
        upstream Iris it is a snapshot of the bases; here, until then, it *is* their storage.
        """
        return self._context

    def is_symmetric(self, tensor: torch.Tensor) -> bool:
        """Return True if all of the tensor lies inside this rank's heap, or if it has no elements."""
        return self.heap.is_symmetric(tensor)

    # Memory

    def free(self, tensor: torch.Tensor) -> None:
        """Free the memory of a whole allocation. Collective; see ``SymmetricHeap.free``."""
        self.heap.free(tensor)

    def as_symmetric(self, external_tensor: torch.Tensor) -> torch.Tensor:
        """Return ``external_tensor`` on the heap. Collective; see ``SymmetricHeap.as_symmetric``.

        With ``torch`` it is a copy, with ``vmem``, where possible, the same memory mapped a second time.
        """
        return self.heap.as_symmetric(external_tensor)

    # Synchronisation and messages

    def barrier(self, stream: Any = None, group: dist.ProcessGroup | None = None) -> None:
        """Wait for this device (or only for ``stream``), then for every rank of ``group`` (default: the world).

        A rank whose device fails raises that error, and the other ranks a RuntimeError that names it: none waits.

        Raises:
            RuntimeError: this rank is not in the group.
        """
        error: Exception | None = None
        try:
            self._platform.synchronize(stream)
        except Exception as failure:  # noqa: BLE001 - raised by host_barrier, once the other ranks know
            error = failure
        host_barrier(group, error)

    def device_barrier(self, group: dist.ProcessGroup | None = None) -> None:
        """Enqueue a barrier of the devices of ``group`` (default: the world) on the current stream; no host wait.

        What members enqueued before it, on the stream of their call, is done and visible to what any of them enqueues
        behind it. Capturable in a device graph and replayable any number of times. On each rank the barriers of one
        group must be ordered, by one stream or by events: two at once would count as one. The first call for a group
        smaller than the world is collective over its members, on the host; nothing concerns ranks outside the group
        (in upstream Iris the first call allocates on the heap, and needs all ranks of the world).

        Raises:
            RuntimeError: this rank is not in the group; the instance is closed; the first call for a group during the
                capture of a graph; more than 63 such groups.
        """
        enqueue_barrier(self.members(group))

    def members(self, group: dist.ProcessGroup | None = None) -> Members:
        """Return what kernels need to work on a group, any list of ranks; see ``Groups.members``.

        The first use of a group is collective over its members, on the host.
        """
        return self._groups.members(group)

    def mailboxes(self) -> torch.Tensor:
        """Return the mailboxes through which ranks exchange messages; see ``Groups.boxes``."""
        return self._groups.boxes()

    def scratch(self, members: Members, use: str, num_bytes: int) -> Scratch:
        """Return memory outside the heap that a group's members share; see ``Groups.scratch``."""
        return self._groups.scratch(members, use, num_bytes)

    def broadcast(self, value: Any, src: int = 0) -> Any:
        """Send ``value`` from rank ``src`` to every rank; works with any backend. See ``broadcast_value``."""
        return broadcast_value(value, src)

    def debug(self, message: str) -> None:
        """Logs with rank and world size attached, at level DEBUG."""
        log(DEBUG, message, self.cur_rank, self.num_ranks)

    def info(self, message: str) -> None:
        """Logs with rank and world size attached, at level INFO."""
        log(INFO, message, self.cur_rank, self.num_ranks)

    def warning(self, message: str) -> None:
        """Logs with rank and world size attached, at level WARNING."""
        log(WARNING, message, self.cur_rank, self.num_ranks)

    def error(self, message: str) -> None:
        """Logs with rank and world size attached, at level ERROR."""
        log(ERROR, message, self.cur_rank, self.num_ranks)


def _context_table(
    heap_size: int,
    bases: Sequence[int],
    device: torch.device,
    tracing: Sequence[int],
    rank: int,
    ranks: Sequence[int],
) -> torch.Tensor:
    """Return a context tensor whose members are ``ranks`` (global), in this order; ``rank`` is this rank's."""
    hidden = [heap_size, 0]
    header = [ranks.index(rank), len(ranks), *(int(bases[member]) for member in ranks)]
    return torch.tensor([*hidden, *header, *tracing], dtype=torch.int64, device=device)[len(hidden) :]
