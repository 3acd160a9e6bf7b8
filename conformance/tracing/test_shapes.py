"""Arguments of an event: a pointer or a two-dimensional block of pointers, and a mask of the same kind or none.

The event records the lowest address, the bytes that the mask keeps (a boolean is one), and the die and compute unit
that get_xcc_id and get_cu_id return in the same program.
"""

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.support.cases import HostCase
from conformance.support.instances import release
from conformance.tracing.traced import HEAP_BYTES
from fixtures.addresses import address_of
from fixtures.findings import Findings
from fixtures.requirement import requirement

PROGRAMS, ROWS, STRIDE = 12, 4, 100
EVENTS = 5
"""Events per program."""


@gluon.jit
def gluon_shapes(
    IrisDeviceCtx: gl.constexpr, get_xcc_id: gl.constexpr, get_cu_id: gl.constexpr, context_tensor, data, flags, places,
    n, ROWS: gl.constexpr, STRIDE: gl.constexpr, LANES: gl.constexpr,
):  # fmt: skip
    """Record ``EVENTS`` events per program; ``pid_n`` is the index of the event. The tile's rows have descending
    addresses."""
    tracing = IrisDeviceCtx.initialize(context_tensor, tracing=True).tracing
    program = gl.program_id(0)
    gl.store(places + 2 * program, get_xcc_id())
    gl.store(places + 2 * program + 1, get_cu_id())
    TILE: gl.constexpr = gl.BlockedLayout([1, 1], [1, LANES], [1, 1], [1, 0])
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, TILE))[:, None]
    columns = gl.arange(0, LANES, layout=gl.SliceLayout(0, TILE))[None, :]
    tile = data + program + (ROWS - 1 - rows) * STRIDE + columns
    tracing.record_event_start(0, program, data + program, program, 0)
    tracing.record_event_start(0, program, data + program, program, 1, program < n)
    tracing.record_event_start(0, program, tile, program, 2)
    tracing.record_event_start(0, program, tile, program, 3, (rows < 3) & (columns < n))
    tracing.record_event_start(0, program, flags + program + columns, program, 4, columns < n)


@triton.jit
def triton_shapes(
    DeviceContext: tl.constexpr, get_xcc_id: tl.constexpr, get_cu_id: tl.constexpr, context_tensor, data, flags, places,
    n, RANK: tl.constexpr, RANKS: tl.constexpr, ROWS: tl.constexpr, STRIDE: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """See ``gluon_shapes``."""
    tracing = DeviceContext.initialize(context_tensor, RANK, RANKS, tracing=True).tracing
    program = tl.program_id(0)
    tl.store(places + 2 * program, get_xcc_id())
    tl.store(places + 2 * program + 1, get_cu_id())
    rows, columns = tl.arange(0, ROWS)[:, None], tl.arange(0, LANES)[None, :]
    tile = data + program + (ROWS - 1 - rows) * STRIDE + columns
    tracing.record_event_start(0, program, data + program, program, 0)
    tracing.record_event_start(0, program, data + program, program, 1, program < n)
    tracing.record_event_start(0, program, tile, program, 2)
    tracing.record_event_start(0, program, tile, program, 3, (rows < 3) & (columns < n))
    tracing.record_event_start(0, program, flags + program + columns, program, 4, columns < n)


def run(env, case):
    form, n = case.arguments
    findings = Findings(env.rank)
    iris = env.under_test.iris(heap_size=HEAP_BYTES)
    iris.tracing.enable(max_events=EVENTS * PROGRAMS)
    data, flags = iris.zeros(1024, dtype=torch.int16), iris.zeros(1024, dtype=torch.bool)
    places = torch.full((PROGRAMS, 2), -1, dtype=torch.int32, device=env.device.torch_device)
    utils = env.module(".device.utils")
    arguments = (utils.get_xcc_id, utils.get_cu_id, iris.get_device_context(), data, flags, places, n)
    shape = (ROWS, STRIDE, env.device.lanes)
    acts = form == "gluon" or env.rank == env.world_size - 1  # each rank would compile its own kernel in Triton
    with env.acting():
        if form == "gluon":
            gluon_shapes[(PROGRAMS,)](env.device_context, *arguments, *shape, num_warps=1)
        elif acts:
            ranks = (env.rank, env.world_size)
            triton_shapes[(PROGRAMS,)](env.under_test.triton_context, *arguments, *ranks, *shape, num_warps=1)
    env.settle()
    names = ("pid_m", "pid_n", "target_rank", "address", "payload_size", "xcc_id", "cu_id")
    events = sorted(zip(*(iris.tracing.trace_buffers[name].tolist() for name in names), strict=True))
    size = data.element_size()
    findings.equal("trace_counter", int(iris.tracing.trace_counter), EVENTS * PROGRAMS * acts)
    for program, where in enumerate(places.tolist() if acts else ()):
        start, kept = address_of(data) + size * program, min(n, env.device.lanes)
        wanted = [
            (program, kind, program, start, payload, *where)
            for kind, payload in enumerate((0, size * (program < n), 0, size * 3 * kept))
        ]
        wanted.append((program, 4, program, address_of(flags) + program, kept, *where))
        findings.equal(f"events of program {program}", events[EVENTS * program :][:EVENTS], wanted)
    env.settle()
    release(iris)
    return findings.first


def cases(ranks):
    return [HostCase("shapes", (form, 7)) for form in ("gluon", "triton")]


@requirement("TRACE-SHAPES-001", cases=cases)
def test_shapes(check, case):
    check(run, case)
