"""``FusedWorkspace``: the memory that a fused op needs besides its tensors, kept from call to call."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

import torch

from iris_under_test.ccl.work import Work
from iris_under_test.host.instance import Instance

__all__ = ["FusedWorkspace"]


@dataclass
class FusedWorkspace:
    """Workspace of a fused op, created by a preamble or by a call without one; every op returns it, and accepts it
    again.

    It serves any number of calls of its op and shape, one after the other in stream order, also in a captured graph. No
    step is needed between them, because a call's kernel leaves the memory as it was before. On each rank the calls that
    share a workspace must be ordered, by one stream or by events. A workspace that does not fit a call is changed to
    fit, which is collective on the host and waits for the devices; so every rank must pass one that fits, or none must.

    Attributes:
        operation: name of the op.
        shape: (M, N, K) of the whole product.
        dtype, world_size, variant: properties of the calls that it serves; the variant is "" except for
            matmul_all_reduce.
        layout: blocks, programs and buffer sizes; configurations with equal layouts can share a workspace.
        aux_buffer: parts of tiles (on the heap), or the gathered shards (local); None if the op needs none.
        locks: int32; locks of tiles (on the heap), or tickets and flags (local); None if the op needs none.
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
    _heap_of: weakref.ref[Instance] | None = field(default=None, repr=False)

    def matches(
        self,
        operation: str,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        world_size: int,
        variant: str = "",
        layout: tuple[int, ...] | None = None,
    ) -> bool:
        """Return whether it was created for such a call. ``layout``: None means any."""
        own = (self.operation, tuple(self.shape), self.dtype, self.world_size, self.variant)
        requested = (operation, tuple(shape), dtype, world_size, variant)
        return own == requested and layout in (None, self.layout)

    def reset(self) -> None:
        """Make the next call initialise the memory again: needed after a kernel that was aborted.

        Not collective itself, but the next call then is, on the host: every rank resets its own.
        """
        self.prepared = False

    def clear(self) -> None:
        """Free the memory. Collective if it is on the heap; every rank clears its own."""
        for buffer in (self.aux_buffer, self.locks):
            instance = self._heap_of() if self._heap_of is not None else None
            if buffer is not None and self.symmetric and instance is not None:
                instance.free(buffer)
        self.aux_buffer = self.locks = self._work = None
        self.prepared, self.layout = False, ()

    # The last call that used it

    def wait(self) -> None:
        """Make work that is enqueued on the current stream from now on wait for the last call. The host does not
        wait.
        """
        if self._work is not None:
            self._work.wait()

    def synchronize(self) -> None:
        """Wait on the host until the last call is complete on this rank. Not while a graph is being captured."""
        if self._work is not None:
            self._work.synchronize()

    def is_completed(self) -> bool:
        """Return whether the last call is complete on this rank. Not while a graph is being captured."""
        return self._work is None or self._work.is_completed()

    # For the ops

    def finished_by(self, work: Work | None) -> FusedWorkspace:
        """Store the handle of a call (None for one that is complete); return the workspace itself."""
        self._work = work
        return self
