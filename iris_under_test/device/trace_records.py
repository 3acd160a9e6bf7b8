"""Functions by which kernels write event records; see ``GluonDeviceTracing`` and ``DeviceTracing``."""

import triton
import triton.language as tl

from .utils import get_cu_id, get_xcc_id, read_realtime

__all__ = ["close_record", "open_record", "read_entries"]


@triton.jit
def read_entries(context_tensor, num_ranks):
    """Return the tracing entries of the context tensor as a tuple of 16; the first entry, which kernels do not need, is
    left out.

    Maximum number of events (int32); pointers to two counters and to the table's 13 columns.
    """
    entries = context_tensor + 2 + num_ranks
    words: tl.constexpr = tl.pointer_type(tl.int32)
    longs: tl.constexpr = tl.pointer_type(tl.int64)
    return (
        tl.load(entries + 1).to(tl.int32),
        tl.load(entries + 2).to(words),
        tl.load(entries + 3).to(words),
        tl.load(entries + 4).to(words),
        tl.load(entries + 5).to(words),
        tl.load(entries + 6).to(words),
        tl.load(entries + 7).to(words),
        tl.load(entries + 8).to(words),
        tl.load(entries + 9).to(words),
        tl.load(entries + 10).to(words),
        tl.load(entries + 11).to(words),
        tl.load(entries + 12).to(longs),
        tl.load(entries + 13).to(longs),
        tl.load(entries + 14).to(longs),
        tl.load(entries + 15).to(words),
        tl.load(entries + 16).to(words),
    )


@triton.jit
def open_record(tracing, event_id: tl.constexpr, target_rank, address, pid_m, pid_n, payload):
    """Reserve a slot and an operation number, fill the slot if it is within the table, and return its number
    (int32).
    """
    handle = tl.atomic_add(tracing.counter, 1, sem="relaxed", scope="gpu")
    op_index = tl.atomic_add(tracing.op_index_counter, 1, sem="relaxed", scope="gpu")
    # A count beyond 2^31 is negative.
    room = (handle >= 0) & (handle < tracing.max_events)
    tl.store(tracing.event_id + handle, event_id, mask=room)
    tl.store(tracing.pid + handle, tl.program_id(0), mask=room)
    tl.store(tracing.pid_m + handle, pid_m, mask=room)
    tl.store(tracing.pid_n + handle, pid_n, mask=room)
    tl.store(tracing.cur_rank + handle, tracing.rank, mask=room)
    tl.store(tracing.target_rank + handle, target_rank, mask=room)
    tl.store(tracing.xcc_id + handle, get_xcc_id(), mask=room)
    tl.store(tracing.cu_id + handle, get_cu_id(), mask=room)
    tl.store(tracing.address + handle, address, mask=room)
    tl.store(tracing.op_index + handle, op_index, mask=room)
    tl.store(tracing.payload_size + handle, payload, mask=room)
    # Without this, the slot would keep an old value until the event ends.
    tl.store(tracing.duration_cycles + handle, 0, mask=room)
    # Last, so that the cost of recording lies before the event.
    tl.store(tracing.timestamp + handle, read_realtime(), mask=room)
    return handle


@triton.jit
def close_record(tracing, handle):
    """Store the end time into the slot, if it is within the table. It goes to the column of durations; the host
    subtracts.
    """
    now = read_realtime()
    tl.store(tracing.duration_cycles + handle, now, mask=(handle >= 0) & (handle < tracing.max_events))
