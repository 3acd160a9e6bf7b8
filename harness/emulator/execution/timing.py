"""Device support for ``triton.testing.do_bench``: events that take the time, and a refusal of graph captures.

Launches are synchronous, so an event's time is that of the host's clock when it is recorded. The measured time is how
long the emulator takes on this CPU; it has no relation to the time on a GPU.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import torch

_ON_GPUS_ONLY = ("do_bench_cudagraph", "do_bench_cudagraph_proton", "do_bench_proton")


class Event:
    """Event with the interface of ``torch.cuda.Event``, timed by the host's clock."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        if interprocess:
            raise ValueError("interprocess=True is not supported: events of the emulated device belong to one process")
        self._timed = enable_timing
        self._nanoseconds: int | None = None

    def record(self, stream: Any = None) -> None:
        """Take the time; a later call replaces it."""
        self._nanoseconds = time.perf_counter_ns()

    def elapsed_time(self, end_event: Event) -> float:
        """Return the milliseconds, more than 0, from this event to ``end_event``.

        ValueError for events without ``enable_timing=True``, RuntimeError for an event that was not recorded.
        """
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._nanoseconds is None or end_event._nanoseconds is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        # More than 0, because callers divide by it.
        return max(1, end_event._nanoseconds - self._nanoseconds) * 1e-6

    def query(self) -> bool:
        """Return True: every launch has already ended."""
        return True

    def synchronize(self) -> None:
        """Do nothing: launches have ended when they return."""

    def wait(self, stream: Any = None) -> None:
        """Do nothing: launches have ended when they return."""


class StepClock:
    """Time of a run that can be repeated: each reading is 10 ns after the one before, from launch to launch."""

    def __init__(self) -> None:
        self._readings = 0

    def nanoseconds(self) -> int:
        """Take a reading."""
        self._readings += 1
        return self._readings * 10


class DeviceInterface:
    """The parts of ``torch.cuda`` that Triton uses: ``Event`` from here, everything else from ``torch.cpu``."""

    Event = Event

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)


def refuse_graphs() -> None:
    """Make functions of ``triton.testing`` that need GPU graphs or Proton raise while the emulated device is active.

    They call ``torch.cuda`` whichever driver is active. Idempotent.
    """
    from triton import testing

    for name in _ON_GPUS_ONLY:
        function = getattr(testing, name, None)  # Triton 3.6 has only the first
        if function is not None and not hasattr(function, "refuses_emulation"):
            setattr(testing, name, _refusing(name, function))


def _refusing(name: str, function: Any) -> Any:
    from triton.runtime import driver

    @functools.wraps(function)
    def refusing(*arguments: Any, **options: Any) -> Any:
        if isinstance(driver.active.get_device_interface(), DeviceInterface):
            raise NotImplementedError(
                f"triton.testing.{name} needs a GPU (its graphs or its profiler), and the active device is emulated:"
                " use triton.testing.do_bench, which returns host times of the emulator"
            )
        return function(*arguments, **options)

    refusing.refuses_emulation = True  # type: ignore[attr-defined]
    return refusing
