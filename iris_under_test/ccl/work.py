"""``Work``: the handle of a collective that was called with ``async_op=True``."""

from __future__ import annotations

import torch

__all__ = ["Work"]


class Work:
    """One call, enqueued on the stream that was current then. Not thread-safe.

    The op is complete on this rank when its kernel has ended: the output is there, and nobody reads this rank's input
    any more. On the emulated device that is the case when the call returns.
    """

    def __init__(self, device: torch.device) -> None:
        """Marks the end of what the current stream of ``device`` holds."""
        self._done: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._done.record(torch.cuda.current_stream(device))

    def wait(self) -> None:
        """What is enqueued on the current stream from now on runs behind the op. The host does not wait. Capturable."""
        if self._done is not None:
            torch.cuda.current_stream().wait_event(self._done)

    def synchronize(self) -> None:
        """Waits on the host until the op is complete. Not while a graph is captured."""
        if self._done is not None:
            self._done.synchronize()

    def is_completed(self) -> bool:
        """Whether the op is complete. Not while a graph is captured."""
        return self._done is None or bool(self._done.query())
