"""``Work``: the handle of a collective that was called with ``async_op=True``."""

from __future__ import annotations

import torch

from iris_under_test.host.streams import current_stream

__all__ = ["Work"]


class Work:
    """One call, enqueued on the stream that was current at the call. Not thread-safe.

    The op is complete on this rank when its kernel has ended: the output is complete, and no member reads this rank's
    input any more. On the emulated device the call returns only then.
    """

    def __init__(self, device: torch.device) -> None:
        """Mark the end of the work that the current stream of ``device`` holds."""
        stream = current_stream(device)
        self._device = device
        self._done = None if stream is None else stream.record_event()

    def wait(self) -> None:
        """Make work that is enqueued on the current stream from now on wait for the op. The host does not wait.
        Capturable.
        """
        if self._done is not None:
            current_stream(self._device).wait_event(self._done)

    def synchronize(self) -> None:
        """Wait on the host until the op is complete. Not while a graph is being captured."""
        if self._done is not None:
            self._done.synchronize()

    def is_completed(self) -> bool:
        """Return whether the op is complete. Not while a graph is being captured."""
        return self._done is None or bool(self._done.query())
