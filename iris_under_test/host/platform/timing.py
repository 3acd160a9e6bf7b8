"""``do_bench``: how long a function takes on the device."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

__all__ = ["RETURN_MODES", "do_bench"]

_SUMMARIES: dict[str, Callable[[list[float]], Any]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "min": min,
    "max": max,
    "all": list,
}
RETURN_MODES = tuple(_SUMMARIES)

# More than the last-level cache of any GPU that is supported (256 MiB on MI300X, 60 MiB on H200).
_CACHE_BYTES = 256 << 20


def do_bench(
    fn: Callable[[], Any],
    barrier_fn: Callable[[], Any] = lambda: None,
    preamble_fn: Callable[[], Any] = lambda: None,
    n_warmup: int = 25,
    n_repeat: int = 100,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """The time of ``fn`` in milliseconds, over ``n_repeat`` calls.

    ``fn`` runs 1 + ``n_warmup`` + ``n_repeat`` times: once untimed (it compiles), then the warm-up. Before each call
    come ``barrier_fn``, ``preamble_fn``, the zeroing of 256 MiB so that caches are cold, and ``barrier_fn`` again; then
    an event, ``fn``, an event, on the current stream. The device is waited for once, at the end. With ranks that work
    together ``barrier_fn`` is their barrier, and all of them make the same call.

    On the emulated device, where a launch returns when the kernel has ended, the clock is the host's, and there are no
    caches to clear.

    ``return_mode`` is ``"mean"``, ``"median"``, ``"min"``, ``"max"`` (float) or ``"all"`` (list of ``n_repeat`` floats
    in order). ``quantiles`` goes before it: a list with one float per quantile, linear between neighbouring times.

    Example: with times of 1, 2 and 6 ms, mean 3.0, median 2.0, quantiles=[0, 0.25] [1.0, 1.5].

    Raises:
        ValueError: ``n_warmup`` < 0, ``n_repeat`` < 1, a quantile outside [0, 1], or another ``return_mode``; before
            anything runs.
    """
    _check(n_warmup, n_repeat, quantiles, return_mode)
    clock = _clock()
    for call in range(1 + n_warmup + n_repeat):
        barrier_fn()
        preamble_fn()
        clock.clear_caches()
        barrier_fn()
        clock.run(fn, timed=call > n_warmup)
    times = clock.milliseconds()
    if quantiles is not None:
        return torch.quantile(torch.tensor(times, dtype=torch.float64), torch.tensor(quantiles).double()).tolist()
    return _SUMMARIES[return_mode](times)


def _check(n_warmup: int, n_repeat: int, quantiles: Sequence[float] | None, return_mode: str) -> None:
    if n_warmup < 0:
        raise ValueError(f"n_warmup must be at least 0, got {n_warmup}")
    if n_repeat < 1:
        raise ValueError(f"n_repeat must be at least 1, got {n_repeat}")
    if quantiles is not None and not (len(quantiles) and all(0 <= quantile <= 1 for quantile in quantiles)):
        raise ValueError(f"quantiles must be numbers in [0, 1], got {quantiles!r}")
    if return_mode not in _SUMMARIES:
        raise ValueError(f"return_mode must be one of {', '.join(_SUMMARIES)}, got {return_mode!r}")


class _Clock(Protocol):
    def clear_caches(self) -> None:
        """Enqueue a write that evicts everything else from the device's caches."""

    def run(self, fn: Callable[[], Any], *, timed: bool) -> None:
        """Call ``fn``."""

    def milliseconds(self) -> list[float]:
        """The times of all timed calls, in order; waits for them."""


class _EventClock:
    """Events on the current stream of a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._cache = torch.empty(_CACHE_BYTES, dtype=torch.uint8, device=device)
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def clear_caches(self) -> None:
        self._cache.zero_()

    def run(self, fn: Callable[[], Any], *, timed: bool) -> None:
        if not timed:
            fn()
            return
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        fn()
        end.record()
        self._events.append((start, end))

    def milliseconds(self) -> list[float]:
        torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in self._events]


class _HostClock:
    """The host's clock, for the emulated device."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def clear_caches(self) -> None:
        pass

    def run(self, fn: Callable[[], Any], *, timed: bool) -> None:
        start = time.perf_counter()
        fn()
        seconds = time.perf_counter() - start
        if timed:
            self._times.append(seconds * 1e3)

    def milliseconds(self) -> list[float]:
        return self._times


def _clock() -> _Clock:
    from triton.runtime import driver

    device = driver.active.get_active_torch_device()
    return _HostClock() if device.type == "cpu" else _EventClock(device)
