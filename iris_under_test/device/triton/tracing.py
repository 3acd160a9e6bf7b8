"""Recording of events by Triton kernels: the ``tracing`` field of ``DeviceContext``. See ``device.gluon.tracing``.

    ctx = DeviceContext.initialize(context_tensor, rank, world_size, tracing=True)
    handle = ctx.tracing.record_event_start(TraceEvent().put, to_rank, target + offsets, pid_m, pid_n, mask)
    ctx.put(source + offsets, target + offsets, to_rank, mask=mask)
    ctx.tracing.record_event_end(handle)

In upstream Iris a kernel compiled with ``tracing=True`` must not run while tracing is off on the host; here it may, in
both languages.
"""

# No postponed annotations here: Triton 3.6's aggregate reads the annotations as classes.
import triton
import triton.language as tl
from triton.language.core import _aggregate as aggregate

from iris_under_test.device.trace_records import close_record, open_record, read_entries

__all__ = ["DeviceTracing", "device_tracing"]


@aggregate
class DeviceTracing:
    """Destination of this rank's events; created by ``device_tracing``.

    ``enabled``: whether tracing is compiled in. ``rank``: the caller's rank. ``max_events`` (int32): size of the table,
    0 if the host has not enabled tracing. The others are pointers: two int32 counters and, with one element per event,
    the columns of the table; ``timestamp``, ``address`` and ``duration_cycles`` are int64, the other columns int32.
    """

    enabled: tl.constexpr
    rank: tl.tensor
    max_events: tl.tensor
    counter: tl.tensor
    op_index_counter: tl.tensor
    event_id: tl.tensor
    pid: tl.tensor
    pid_m: tl.tensor
    pid_n: tl.tensor
    cur_rank: tl.tensor
    target_rank: tl.tensor
    xcc_id: tl.tensor
    cu_id: tl.tensor
    timestamp: tl.tensor
    address: tl.tensor
    duration_cycles: tl.tensor
    op_index: tl.tensor
    payload_size: tl.tensor

    @triton.constexpr_function
    def __init__(
        self, enabled, rank, max_events, counter, op_index_counter, event_id, pid, pid_m, pid_n, cur_rank, target_rank,
        xcc_id, cu_id, timestamp, address, duration_cycles, op_index, payload_size,
    ):  # fmt: skip
        self.enabled = tl.constexpr(enabled)
        self.rank = rank
        self.max_events = max_events
        self.counter = counter
        self.op_index_counter = op_index_counter
        self.event_id = event_id
        self.pid = pid
        self.pid_m = pid_m
        self.pid_n = pid_n
        self.cur_rank = cur_rank
        self.target_rank = target_rank
        self.xcc_id = xcc_id
        self.cu_id = cu_id
        self.timestamp = timestamp
        self.address = address
        self.duration_cycles = duration_cycles
        self.op_index = op_index
        self.payload_size = payload_size

    @triton.jit
    def record_event_start(self, event_id: tl.constexpr, target_rank, address, pid_m, pid_n, mask=None):
        """Record that an event begins now; return its handle (int32) for ``record_event_end``.

        ``event_id``: see ``TraceEvent``. ``target_rank``, ``pid_m``, ``pid_n``: integers. ``address``: a pointer or a
        block of pointers, of which the lowest is recorded. ``mask``: the elements of ``address`` that take part; their
        bytes are the payload, which is 0 without a mask. Events beyond the table's size are counted but not stored.

        Example: pointers to 64 float16 from 0x1000 on, mask ``offsets < 10``: address 0x1000, payload 20 bytes.
        """
        handle = 0
        if self.enabled:  # noqa: SIM102 - the first is settled when the kernel is compiled
            if self.max_events > 0:
                lowest, payload = _lowest(address), _payload(address, mask)
                handle = open_record(self, event_id, target_rank, lowest, pid_m, pid_n, payload)
        return handle

    @triton.jit
    def record_event_end(self, handle):
        """Record that the event of ``handle`` ends now. An event that is never ended is exported as an instant."""
        if self.enabled:  # noqa: SIM102 - the first is settled when the kernel is compiled
            if self.max_events > 0:
                close_record(self, handle)


@triton.jit
def device_tracing(context_tensor, rank, num_ranks, enabled: tl.constexpr):
    """Read the tracing entries of the context tensor, if ``enabled``. ``rank`` and ``num_ranks``: integers."""
    if enabled:
        entries = read_entries(context_tensor, num_ranks)
        tracing = DeviceTracing(True, tl.cast(rank, tl.int32), *entries)
    else:
        # The fields need values, although nothing reads them.
        no = context_tensor
        tracing = DeviceTracing(False, no, no, no, no, no, no, no, no, no, no, no, no, no, no, no, no, no)
    return tracing


@triton.jit
def _lowest(address):
    """Return the lowest address of a pointer or a block of pointers, as int64."""
    lowest = address.to(tl.int64)
    if address.type.is_block():
        lowest = tl.min(lowest)
    return lowest


@triton.jit
def _payload(address, mask):
    """Return the bytes of the elements where ``mask`` is true (int32); 0 without a mask."""
    payload = 0
    if mask is not None:
        # 1-bit elements occupy one byte.
        bytes_per_element: tl.constexpr = (address.dtype.element_ty.primitive_bitwidth + 7) // 8
        kept = mask.to(tl.int32)
        if mask.type.is_block():
            kept = tl.sum(kept)
        payload = kept * bytes_per_element
    return payload
