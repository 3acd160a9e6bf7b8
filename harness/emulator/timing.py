"""What ``triton.testing.do_bench`` needs of a device: events that take the time, and a refusal where graphs are needed.

Launches are synchronous, so an event's time is that of the host's clock when it is recorded. What is measured is how
long the emulator takes on this CPU: it says nothing about a GPU.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import torch

_ON_GPUS_ONLY = ("do_bench_cudagraph", "do_bench_cudagraph_proton", "do_bench_proton")


class Event:
    """As ``torch.cuda.Event``, by the host's clock."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        if interprocess:
            raise ValueError("interprocess=True: events of the emulated device belong to their process")
        self._timed = enable_timing
        self._nanoseconds: int | None = None

    def record(self, stream: Any = None) -> None:
        """Take the time; the last one counts."""
        self._nanoseconds = time.perf_counter_ns()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds, more than 0, from this event to ``end_event``.

        ValueError for events without ``enable_timing=True``, RuntimeError for one that was not recorded.
        """
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._nanoseconds is None or end_event._nanoseconds is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        # Callers divide by it.
        return max(1, end_event._nanoseconds - self._nanoseconds) * 1e-6

    def query(self) -> bool:
        """True: whatever was launched has ended."""
        return True

    def synchronize(self) -> None:
        """Launches have ended when they return."""

    def wait(self, stream: Any = None) -> None:
        """Launches have ended when they return."""


class DeviceInterface:
    """What Triton uses of ``torch.cuda``: ``Event`` here, everything else is ``torch.cpu``'s."""

    Event = Event

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)


def refuse_graphs() -> None:
    """Have the functions of ``triton.testing`` that measure graphs, or by Proton, refuse by name while the emulated
    device is active: they call ``torch.cuda`` whatever the driver is. Idempotent."""
    from triton import testing

    for name in _ON_GPUS_ONLY:
        function = getattr(testing, name, None)  # Triton 3.6 has the first only
        if function is not None and not hasattr(function, "refuses_emulation"):
            setattr(testing, name, _refusing(name, function))


def _refusing(name: str, function: Any) -> Any:
    from triton.runtime import driver

    @functools.wraps(function)
    def refusing(*arguments: Any, **options: Any) -> Any:
        if isinstance(driver.active.get_device_interface(), DeviceInterface):
            raise NotImplementedError(
                f"triton.testing.{name} needs a GPU, with its graphs and its profiler, and the emulated device has"
                " none: use triton.testing.do_bench, which gives host times of the emulator"
            )
        return function(*arguments, **options)

    refusing.refuses_emulation = True  # type: ignore[attr-defined]
    return refusing
