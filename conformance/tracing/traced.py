"""Kernels that record events around a put, in both languages, and the events that they are expected to record."""

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from fixtures.addresses import address_of
from harness.cases import of_name, payload

COLUMNS = (
    "event_id", "pid", "pid_m", "pid_n", "cur_rank", "target_rank", "xcc_id", "cu_id", "timestamp", "address",
    "duration_cycles", "op_index", "payload_size",
)  # fmt: skip
LONG = ("timestamp", "address", "duration_cycles")
NAMES = (
    "load", "store", "get", "put", "copy", "atomic_add", "atomic_sub", "atomic_cas", "atomic_xchg", "atomic_xor",
    "atomic_and", "atomic_or", "atomic_min", "atomic_max",
)  # fmt: skip
"""Names of the events; the index is the event number."""

HEAP_BYTES = 1 << 19

BEFORE = 3
"""Value of the target before the puts: a store of zeros shows."""


@gluon.jit(do_not_specialize=["n", "to_rank", "turn"])
def gluon_traced(
    IrisDeviceCtx: gl.constexpr, context_tensor, source, target, n, each, to_rank, turn,
    TRACING: gl.constexpr, KINDS: gl.constexpr, MASKED: gl.constexpr, ENDED: gl.constexpr,
    SPT: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    ctx = IrisDeviceCtx.initialize(context_tensor, tracing=TRACING)
    BLOCK: gl.constexpr = SPT * LANES * WARPS
    program = gl.program_id(0)
    offsets = program * BLOCK + gl.arange(0, BLOCK, layout=gl.BlockedLayout([SPT], [LANES], [WARPS], [0]))
    mask = offsets < n
    for i in gl.static_range(len(KINDS)):
        event_mask = mask if MASKED else None
        handle = ctx.tracing.record_event_start(
            KINDS[i], to_rank, target + i * each + offsets, program + 100, turn + i, event_mask
        )
        ctx.put(source + i * each + offsets, target + i * each + offsets, to_rank, mask=mask)
        if ENDED:
            ctx.tracing.record_event_end(handle)


@gluon.jit(do_not_specialize=["n", "to_rank", "turn"])
def gluon_plain(
    IrisDeviceCtx: gl.constexpr, context_tensor, source, target, n, each, to_rank, turn,
    TRACING: gl.constexpr, KINDS: gl.constexpr, MASKED: gl.constexpr, ENDED: gl.constexpr,
    SPT: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    ctx = IrisDeviceCtx.initialize(context_tensor)
    BLOCK: gl.constexpr = SPT * LANES * WARPS
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=gl.BlockedLayout([SPT], [LANES], [WARPS], [0]))
    mask = offsets < n
    for i in gl.static_range(len(KINDS)):
        ctx.put(source + i * each + offsets, target + i * each + offsets, to_rank, mask=mask)


@triton.jit(do_not_specialize=["n", "to_rank", "turn"])
def triton_traced(
    DeviceContext: tl.constexpr, context_tensor, source, target, n, each, to_rank, turn, RANK: tl.constexpr,
    RANKS: tl.constexpr, TRACING: tl.constexpr, KINDS: tl.constexpr, MASKED: tl.constexpr, ENDED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    ctx = DeviceContext.initialize(context_tensor, RANK, RANKS, tracing=TRACING)
    program = tl.program_id(0)
    offsets = program * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    for i in tl.static_range(len(KINDS)):
        event_mask = mask if MASKED else None
        handle = ctx.tracing.record_event_start(
            KINDS[i], to_rank, target + i * each + offsets, program + 100, turn + i, event_mask
        )
        ctx.put(source + i * each + offsets, target + i * each + offsets, to_rank, mask=mask)
        if ENDED:
            ctx.tracing.record_event_end(handle)


@triton.jit(do_not_specialize=["n", "to_rank", "turn"])
def triton_plain(
    DeviceContext: tl.constexpr, context_tensor, source, target, n, each, to_rank, turn, RANK: tl.constexpr,
    RANKS: tl.constexpr, TRACING: tl.constexpr, KINDS: tl.constexpr, MASKED: tl.constexpr, ENDED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    ctx = DeviceContext.initialize(context_tensor, RANK, RANKS)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    for i in tl.static_range(len(KINDS)):
        ctx.put(source + i * each + offsets, target + i * each + offsets, to_rank, mask=mask)


class Traced:
    """A separate Iris instance with a source and a target on its heap, since enabling tracing cannot be undone.

    The put of each event has a part of its own in both, so that a wrong or missing put shows.

    All ranks must construct it together. Close ``iris`` after a barrier of all ranks.
    """

    def __init__(self, env, case):
        self.env, self.case = env, case
        self.iris = env.under_test.iris(heap_size=HEAP_BYTES)
        self.each = max(case.grid * case.block, 1)
        elements, dtype = self.each * len(case.kinds), of_name(case.dtype)
        self.source = self.iris.empty(elements, dtype=dtype)
        self.source.copy_(payload(case.dtype, elements, rank=env.rank, ranks=env.world_size))
        self.target = self.iris.full((elements,), BEFORE, dtype=dtype)
        self.peer = (env.rank + case.step) % env.world_size

    @property
    def acts(self):
        """True if this rank launches the case's kernel."""
        return self.case.acts(self.env.rank, self.env.world_size)

    @property
    def count(self):
        """Events of this rank."""
        return self.case.count * self.acts

    def launch(self, *, tracing=True, plain=False, context=None):
        """Make all launches of the case, on a rank that acts. ``pid_n`` counts the events over all launches."""
        env, case = self.env, self.case
        if not self.acts:
            return
        context = self.iris.get_device_context() if context is None else context
        warps, kinds = env.warps(case.warps), tuple(case.kinds)
        for launch in range(case.launches):
            arguments = (context, self.source, self.target, case.n, self.each, self.peer, launch * len(kinds))
            if case.form == "gluon":
                (gluon_plain if plain else gluon_traced)[(case.grid,)](
                    env.device_context, *arguments, tracing, kinds, case.masked, case.ended,
                    case.spt, env.device.lanes, warps, num_warps=warps,
                )  # fmt: skip
            else:
                (triton_plain if plain else triton_traced)[(case.grid,)](
                    env.under_test.triton_context, *arguments, env.rank, env.world_size, tracing, kinds, case.masked,
                    case.ended, case.block, num_warps=warps,
                )  # fmt: skip
        env.device.synchronize()

    def expected(self):
        """Return the expected events, as a sorted list of (event_id, pid, pid_m, pid_n, cur_rank, target_rank, address,
        payload_size)."""
        case, start = self.case, address_of(self.target)
        size = self.target.element_size()
        return sorted(
            (kind, program, program + 100, launch * len(case.kinds) + i, self.env.rank, self.peer,
             start + (i * self.each + program * case.block) * size, case.payload(program))
            for launch in range(case.launches * self.acts)
            for program in range(case.grid)
            for i, kind in enumerate(case.kinds)
        )  # fmt: skip

    def recorded(self):
        """Return the events in the buffers, in the form of ``expected``, and all columns: (events, {column: list})."""
        tracing = self.iris.tracing
        count = min(int(tracing.trace_counter), tracing.max_events)
        columns = {name: tracing.trace_buffers[name][:count].tolist() for name in COLUMNS}
        names = ("event_id", "pid", "pid_m", "pid_n", "cur_rank", "target_rank", "address", "payload_size")
        return sorted(zip(*(columns[name] for name in names), strict=True)), columns

    def moved(self, findings):
        """Check the result of the puts, traced or not: every rank's target holds what its sender sent, if that acts."""
        case, ranks = self.case, self.env.world_size
        sender = (self.env.rank - case.step) % ranks
        wanted = torch.full((len(case.kinds), self.each), BEFORE, dtype=of_name(case.dtype))
        if case.acts(sender, ranks):
            sent = payload(case.dtype, wanted.numel(), rank=sender, ranks=ranks).view(wanted.shape)
            wanted[:, : case.n] = sent[:, : case.n]
        findings.same("target of the puts", self.target.cpu(), wanted.flatten())


def overwrite(env, tracing, counter=0):
    """Fill the buffers with -7, and set the number of events, in the library's process: a judge apart has copies."""
    for name in COLUMNS:
        tracing.trace_buffers[name].fill_(-7)
    tracing.trace_counter.fill_(counter)
