"""``FusedWorkspace``: the memory that a fused op needs beside its tensors, kept from call to call."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from iris_under_test.ccl.work import Work

if TYPE_CHECKING:
    from iris_under_test.host.iris import Iris

__all__ = ["FusedWorkspace"]


@dataclass
class FusedWorkspace:
    """Made by a preamble, or by an op that is given none; returned by every op; used again by passing it.

    It serves any number of calls of its op and shape, one behind the other in stream order, also in a captured graph:
    nothing has to happen between them, since a call's kernel leaves the memory as it found it. On each rank the calls
    that share one must be ordered, by one stream or by events. A workspace that does not fit a call is made to fit,
    which is collective on the host, and waits for the devices; so every rank must pass one that fits, or none.

    Attributes:
        operation: name of the op.
        shape: (M, N, K) of the whole product.
        dtype, world_size, variant: what it was made for; the variant is "" but for matmul_all_reduce.
        layout: blocks and programs, and how much of each buffer; two configurations with one layout can share.
        aux_buffer: parts of tiles (on the heap), or the gathered shards (local); None where the op needs none.
        locks: int32; locks of tiles (on the heap), or tickets and flags (local); None where the op needs none.
        prepared: whether the next call can use it as it is.
    """

    operation: str = ""
    shape: tuple[int, ...] = ()
    dtype: torch.dtype | None = None
    world_size: int = 1
    variant: str = ""
    aux_buffer: torch.Tensor | None = None
    locks: torch.Tensor | None = None
    prepared: bool = False
    layout: tuple[int, ...] = ()
    symmetric: bool = False
    _work: Work | None = field(default=None, repr=False)
    _heap_of: weakref.ref[Iris] | None = field(default=None, repr=False)

    def matches(
        self,
        operation: str,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        world_size: int,
        variant: str = "",
        layout: tuple[int, ...] | None = None,
    ) -> bool:
        """Whether it was made for such a call. ``layout``: None means any."""
        made_for = (self.operation, tuple(self.shape), self.dtype, self.world_size, self.variant)
        wanted = (operation, tuple(shape), dtype, world_size, variant)
        return made_for == wanted and layout in (None, self.layout)

    def reset(self) -> None:
        """The next call puts the memory into its first state again: after a kernel that did not run to its end.

        Not collective itself, but then the next call is, on the host: every rank resets its own.
        """
        self.prepared = False

    def clear(self) -> None:
        """Gives the memory back. Collective where it lies on the heap; every rank clears its own."""
        for buffer in (self.aux_buffer, self.locks):
            instance = self._heap_of() if self._heap_of is not None else None
            if buffer is not None and self.symmetric and instance is not None:
                instance.free(buffer)
        self.aux_buffer = self.locks = self._work = None
        self.prepared, self.layout = False, ()

    # The last call that used it

    def wait(self) -> None:
        """What is enqueued on the current stream from now on runs behind the last call. The host does not wait."""
        if self._work is not None:
            self._work.wait()

    def synchronize(self) -> None:
        """Waits on the host until the last call is complete on this rank. Not while a graph is captured."""
        if self._work is not None:
            self._work.synchronize()

    def is_completed(self) -> bool:
        """Whether the last call is complete on this rank. Not while a graph is captured."""
        return self._work is None or self._work.is_completed()

    # For the ops

    def finished_by(self, work: Work | None) -> FusedWorkspace:
        """Remembers the handle of a call; None for one that is complete. Returns itself."""
        self._work = work
        return self
