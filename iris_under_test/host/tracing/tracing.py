"""``Tracing``: the host side of the events that kernels record with ``ctx.tracing`` (``device.gluon.tracing``)."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

from iris_under_test.host.distributed.helpers import agree
from iris_under_test.host.logging import WARNING, log
from iris_under_test.host.platform import Platform

from .export import COLUMNS, UNITS, Recording, as_trace, write_json

__all__ = ["Tracing"]

_LONG_COLUMNS = ("timestamp", "address", "duration_cycles")
_INT32_MAX = 2**31 - 1


class Traced(Protocol):
    """The part of an ``Iris`` that ``Tracing`` uses; its private members are shared by these two classes only."""

    cur_rank: int
    num_ranks: int
    _platform: Platform
    _context: torch.Tensor

    def get_device(self) -> torch.device: ...
    def _make_context(self, tracing: Sequence[int]) -> torch.Tensor: ...


class Tracing:
    """``Iris.tracing``: whether this rank's kernels record events, where to, and what they recorded.

    Attributes: ``enabled``; ``max_events``; ``trace_buffers``, a dict of 1-D tensors, each of ``max_events`` elements,
    by column: event_id, pid, pid_m, pid_n, cur_rank, target_rank, xcc_id, cu_id, timestamp, address, duration_cycles,
    op_index, payload_size; ``trace_counter`` and ``op_index_counter``, int32 tensors of one element (None until
    enabled): how many events and operations were begun, also those for which there was no room.

    ``timestamp``, ``address`` and ``duration_cycles`` are int64, the rest int32. Times are ticks of the device's clock
    (100 MHz on AMD GPUs and the emulated device, 1 GHz on NVIDIA's); ``duration_cycles`` holds the *end* of an event,
    or 0 while it has none. Not thread-safe. Only ``export(merge=True)`` is collective.
    """

    def __init__(self, instance: Traced) -> None:
        # Weak: a cycle would keep the heap of a deleted instance.
        self._instance = weakref.ref(instance)
        self._rank, self._num_ranks = instance.cur_rank, instance.num_ranks
        self.enabled = False
        self.max_events = 0
        self.trace_buffers: dict[str, torch.Tensor] = {}
        self.trace_counter: torch.Tensor | None = None
        self.op_index_counter: torch.Tensor | None = None

    def enable(self, max_events: int = 1_000_000) -> None:
        """Allocate buffers for ``max_events`` events, 64 bytes each, and count from 0. Not collective.

        The memory is the device's, not the heap's. ``get_device_context()`` gives a new tensor from now on. One that
        was fetched before stays as it is: kernels that are given it record nothing, or, where it is of an earlier
        ``enable``, into the buffers of that.

        Raises:
            ValueError: ``max_events`` is not an int from 1 to 2^31 - 1.
        """
        if not _is_count(max_events):
            raise ValueError(f"max_events must be an int from 1 to {_INT32_MAX}, got {max_events!r}")
        instance = self._of()
        table = _Table(max_events, instance.get_device())
        # Filled on this stream; kernels may run on any.
        instance._platform.synchronize()
        self.enabled, self.max_events = True, max_events
        self.trace_buffers, self.trace_counter, self.op_index_counter = table.columns, table.events, table.operations
        context = instance._make_context([1, max_events, *table.addresses()])
        # The context tensor holds bare addresses: its owner must keep what they point to.
        context._iris_trace_table = table  # type: ignore[attr-defined]
        instance._context = context

    def reset(self) -> None:
        """Forgets what was recorded: zeroes the two counters, in the order of the current stream.

        Warns, and does nothing else, where tracing is not enabled.
        """
        if self.trace_counter is None or self.op_index_counter is None:
            self._warn("reset: tracing is not enabled")
            return
        self.trace_counter.zero_()
        self.op_index_counter.zero_()

    def export(self, filename: str | Path = "trace.json", merge: bool = False, unit: str = "cycles") -> dict[str, Any]:
        """Write what this rank has recorded as a Chrome/Perfetto trace, and return it.

        The file is ``<name>_rank<r>.json`` next to ``filename``. With ``merge=True``, which is collective, all ranks
        also send their events to rank 0, which writes them to ``filename`` and returns that trace; the other ranks
        return an empty dict. Waits for the device first.

        Times in a file count from its first event. Perfetto takes them for microseconds: in ``unit="cycles"``, as in
        upstream Iris, they are ticks of the device's clock, in ``unit="us"`` what Perfetto takes them for. In
        upstream Iris only merged files count from 0; but the ticks of NVIDIA's clock, which count from 1970, are beyond
        what Perfetto can read. The clocks of several GPUs need not agree: in a merged file compare times of one rank.

        A rank on which tracing is not enabled warns, writes no file and returns an empty dict; it sends nothing.

        Raises:
            ValueError: ``unit`` is neither.
            OSError: a file cannot be written.
            RuntimeError: the ``Iris`` is gone; with ``merge``, also whatever failed on another rank, named.
        """
        if not merge:
            recording = self._recording(unit)
            return {} if recording is None else write_json(self._own_file(filename), as_trace([recording], unit))
        error: Exception | None = None
        recording = None
        try:
            recording = self._recording(unit)
            if recording is not None:
                write_json(self._own_file(filename), as_trace([recording], unit))
        except Exception as failure:  # noqa: BLE001 - whatever it is, the others must not wait for this rank
            error = failure
        agree(error, "exporting a trace")
        trace: dict[str, Any] = {}
        recordings = _gather(recording, self._rank, self._num_ranks)
        if self._rank == 0 and recordings:
            try:
                trace = write_json(Path(filename), as_trace(recordings, unit))
            except Exception as failure:  # noqa: BLE001 - as above
                error = failure
        agree(error, "writing the merged trace")
        return trace

    def _recording(self, unit: str) -> Recording | None:
        """Copy the buffers to the host; None where tracing is not enabled."""
        if unit not in UNITS:
            raise ValueError(f"unit: expected one of {', '.join(UNITS)}, got {unit!r}")
        if self.trace_counter is None:
            self._warn("export: tracing is not enabled")
            return None
        platform = self._of()._platform
        platform.synchronize()
        # The counter goes on beyond 2^31 as a negative number.
        begun = int(self.trace_counter.item()) % 2**32
        count = min(begun, self.max_events)
        if begun > count:
            self._warn(f"export: no room for {begun - count} of {begun} events; enable with a larger max_events")
        columns = {name: column[:count].cpu().numpy() for name, column in self.trace_buffers.items()}
        return Recording(self._rank, columns, begun - count, platform.clock_hz)

    def _own_file(self, filename: str | Path) -> Path:
        path = Path(filename)
        return path.with_name(f"{path.stem}_rank{self._rank}{path.suffix or '.json'}")

    def _of(self) -> Traced:
        instance = self._instance()
        if instance is None:
            raise RuntimeError("the Iris instance of this Tracing was deleted; keep a reference to it while you trace")
        return instance

    def _warn(self, message: str) -> None:
        log(WARNING, message, self._rank, self._num_ranks, module="tracing")


def _is_count(value: object) -> bool:
    """Return whether it is an int from 1 to 2^31 - 1; True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _INT32_MAX


class _Table:
    """The memory of events: one allocation, so that a context tensor can keep all of it."""

    def __init__(self, max_events: int, device: torch.device) -> None:
        longs, words = len(_LONG_COLUMNS), len(COLUMNS) - len(_LONG_COLUMNS)
        # Two counters in the first 8 bytes, which keep what follows aligned; then the 8-byte columns.
        self._memory = torch.zeros(8 + max_events * (8 * longs + 4 * words), dtype=torch.uint8, device=device)
        counters = self._memory[:8].view(torch.int32)
        self.events, self.operations = counters[:1], counters[1:]
        eights = self._memory[8 : 8 + max_events * 8 * longs].view(torch.int64).view(longs, max_events)
        fours = self._memory[8 + max_events * 8 * longs :].view(torch.int32).view(words, max_events)
        rows = {8: iter(eights), 4: iter(fours)}
        self.columns = {name: next(rows[8 if name in _LONG_COLUMNS else 4]) for name in COLUMNS}
        _announce(self, self._memory)

    def addresses(self) -> list[int]:
        """Return the addresses of the counters and columns, in the order of the context tensor."""
        return [tensor.data_ptr() for tensor in (self.events, self.operations, *self.columns.values())]


def _announce(owner: object, memory: torch.Tensor) -> None:
    """Register with the emulating driver memory that kernels reach by an address in a tensor, while ``owner`` lives."""
    from triton.runtime import driver

    active = driver.active
    if hasattr(active, "register_memory"):
        address = memory.data_ptr()
        active.register_memory(address, memory.nbytes, "trace buffers")
        weakref.finalize(owner, active.unregister_memory, address).atexit = False


def _gather(recording: Recording | None, rank: int, num_ranks: int) -> list[Recording]:
    """Return every rank's recording on rank 0, and an empty list elsewhere. Collective."""
    parts: list[Recording | None] | None = [None] * num_ranks if rank == 0 else None
    dist.gather_object(recording, parts, dst=0)
    return [part for part in parts or [] if part is not None]
