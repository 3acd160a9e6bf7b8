"""How kernels record events, in the form that Triton and Gluon share: see ``GluonDeviceTracing``, ``DeviceTracing``.

The functions use only builtins that both languages have under the same name; ``triton_*`` are for Triton kernels.
"""

import triton
import triton.language as tl
from triton.experimental import gluon

from .utils import get_cu_id, get_xcc_id, read_realtime

__all__ = ["close_record", "open_record", "read_entries", "triton_close_record", "triton_open_record",
           "triton_read_entries"]  # fmt: skip


def _read_entries(context_tensor, num_ranks):
    """The tracing entries of the context tensor behind its first, which kernels do not need: a tuple of 16.

    Maximum events (int32); pointers to two counters and to the table's 13 columns.
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


def _open_record(tracing, event_id: tl.constexpr, target_rank, address, pid_m, pid_n, payload):
    """Takes a slot and an operation's number, fills the slot if there is room, and returns its number (int32)."""
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
    # Until the event ends, whatever an earlier use of the slot left.
    tl.store(tracing.duration_cycles + handle, 0, mask=room)
    # Last: what recording costs comes before the event.
    tl.store(tracing.timestamp + handle, read_realtime(), mask=room)
    return handle


def _close_record(tracing, handle):
    """Stores the time into the slot, if it is one. It lies where durations are looked for: the host subtracts."""
    now = read_realtime()
    tl.store(tracing.duration_cycles + handle, now, mask=(handle >= 0) & (handle < tracing.max_events))


read_entries, open_record, close_record = gluon.jit(_read_entries), gluon.jit(_open_record), gluon.jit(_close_record)
triton_read_entries, triton_open_record = triton.jit(_read_entries), triton.jit(_open_record)
triton_close_record = triton.jit(_close_record)
