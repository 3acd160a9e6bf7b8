"""Recording of events by Gluon kernels: the ``tracing`` field of ``IrisDeviceCtx``. The host exports them
(``Iris.tracing``).

    ctx = IrisDeviceCtx.initialize(context_tensor, tracing=True)
    handle = ctx.tracing.record_event_start(TraceEvent().put, to_rank, target + offsets, pid_m, pid_n, mask)
    ctx.put(source + offsets, target + offsets, to_rank, mask=mask)
    ctx.tracing.record_event_end(handle)

The remote operations do not record events by themselves. Without ``tracing=True`` the compiled code contains none of
this; with it, while tracing is not enabled on the host, the code sees a table of size 0 and records nothing.

An event belongs to a program. Its times are those at which the program's first warp passed: an issued store need not
have arrived, and other warps may be elsewhere. Records are plain stores and relaxed atomics, so tracing adds no
ordering of memory accesses. They are complete when the kernel has ended.
"""

# No postponed annotations here: Triton 3.6's aggregate reads the annotations as classes.
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.core import _aggregate as aggregate

from iris_under_test.device.trace_records import close_record, open_record, read_entries

__all__ = ["GluonDeviceTracing", "device_tracing"]


@aggregate
class GluonDeviceTracing:
    """Destination of this rank's events; created by ``device_tracing``.

    ``enabled``: whether tracing is compiled in. ``rank``: the caller's rank. ``max_events`` (int32): size of the table,
    0 if the host has not enabled tracing. The others are pointers: two int32 counters and, with one element per event,
    the columns of the table; ``timestamp``, ``address`` and ``duration_cycles`` are int64, the other columns int32.
    """

    enabled: gl.constexpr
    rank: gl.tensor
    max_events: gl.tensor
    counter: gl.tensor
    op_index_counter: gl.tensor
    event_id: gl.tensor
    pid: gl.tensor
    pid_m: gl.tensor
    pid_n: gl.tensor
    cur_rank: gl.tensor
    target_rank: gl.tensor
    xcc_id: gl.tensor
    cu_id: gl.tensor
    timestamp: gl.tensor
    address: gl.tensor
    duration_cycles: gl.tensor
    op_index: gl.tensor
    payload_size: gl.tensor

    @gluon.constexpr_function
    def __init__(
        self, enabled, rank, max_events, counter, op_index_counter, event_id, pid, pid_m, pid_n, cur_rank, target_rank,
        xcc_id, cu_id, timestamp, address, duration_cycles, op_index, payload_size,
    ):  # fmt: skip
        self.enabled = gl.constexpr(enabled)
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

    @gluon.jit
    def record_event_start(self, event_id: gl.constexpr, target_rank, address, pid_m, pid_n, mask=None):
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

    @gluon.jit
    def record_event_end(self, handle):
        """Record that the event of ``handle`` ends now. An event that is never ended is exported as an instant."""
        if self.enabled:  # noqa: SIM102 - the first is settled when the kernel is compiled
            if self.max_events > 0:
                close_record(self, handle)


@gluon.jit
def device_tracing(context_tensor, rank, num_ranks, enabled: gl.constexpr):
    """Read the tracing entries of the context tensor, if ``enabled``. ``rank`` and ``num_ranks``: int32 scalars."""
    if enabled:
        entries = read_entries(context_tensor, num_ranks)
        tracing = GluonDeviceTracing(True, rank, *entries)
    else:
        # The fields need values, although nothing reads them.
        no = context_tensor
        tracing = GluonDeviceTracing(False, no, no, no, no, no, no, no, no, no, no, no, no, no, no, no, no, no)
    return tracing


@gluon.jit
def _lowest(address):
    """Return the lowest address of a pointer or a block of pointers, as int64."""
    lowest = address.to(gl.int64)
    if address.type.is_block():
        lowest = gl.min(lowest)
    return lowest


@gluon.jit
def _payload(address, mask):
    """Return the bytes of the elements where ``mask`` is true (int32); 0 without a mask."""
    payload = 0
    if mask is not None:
        # 1-bit elements occupy one byte.
        bytes_per_element: gl.constexpr = (address.dtype.element_ty.primitive_bitwidth + 7) // 8
        kept = mask.to(gl.int32)
        if mask.type.is_block():
            kept = gl.sum(kept)
        payload = kept * bytes_per_element
    return payload
