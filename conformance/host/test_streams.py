"""Streams: the library enqueues its work on the caller's current stream, and barrier waits for the streams it promises.

A kernel that only takes time delays the work on a stream, so that a call that does not wait for it reads too early.
"""

import torch

from conformance.rma.cases import TransferCase
from conformance.rma.kernels import launch
from conformance.rma.operations import TRANSFERS
from conformance.support.cases import HostCase
from conformance.support.instances import release
from fixtures import judged
from fixtures.findings import Findings
from fixtures.requirement import requirement

TURNS, N = 4, 256
SLOTS = 65536
DELAY = 20_000_000
"""Clock cycles of the GPU, about 10 ms: longer than any call that does not wait."""
LONG_DELAY = 1_000_000_000
"""About 0.5 s: longer than a barrier of the hosts."""


def one_stream(env, findings):
    """Check that barrier(stream) waits for a put on a delayed stream."""
    side = torch.cuda.Stream()
    for turn in range(TURNS):
        _delayed_put(env, side, turn, turn)
        env.iris.barrier(stream=side)
        _arrived(env, findings, f"put {turn} after barrier(stream)", turn, turn)


def not_the_others(env, findings):
    """Check that barrier(stream) does not wait for another stream, and that barrier() does."""
    side, busy = torch.cuda.Stream(), torch.cuda.Stream()
    env.settle()
    with torch.cuda.stream(busy):
        torch.cuda._sleep(LONG_DELAY)
        done = busy.record_event()
    overlaps = not done.query()  # an emulated machine ends all work when it is enqueued
    _delayed_put(env, side, 1, 0)
    env.iris.barrier(stream=side)
    if overlaps:
        findings.true("the other stream still runs after barrier(stream)", not done.query())
    _arrived(env, findings, "the put after barrier(stream)", 1, 0, torch.cuda.Stream())
    env.iris.barrier()
    findings.true("the other stream has ended after barrier()", done.query())


def several_streams(env, findings, of_collectives):
    """Check that barrier() waits for a put on each of four delayed streams, and ccl.barrier() too if the library has
    it (``of_collectives``)."""
    barriers = {"barrier()": env.iris.barrier}
    if of_collectives:
        barriers["ccl.barrier()"] = env.iris.ccl.barrier
    streams = [torch.cuda.Stream() for _ in range(TURNS)]
    for number, (label, barrier) in enumerate(barriers.items(), start=1):
        for turn, stream in enumerate(streams):
            _delayed_put(env, stream, 10 * number + turn, turn)
        barrier()
        for turn in range(TURNS):
            _arrived(env, findings, f"the put on stream {turn} after {label}", 10 * number + turn, turn)
        env.settle()


def allocation(env, findings):
    """Check that an allocation waits for work enqueued before it, on every stream of every rank."""
    iris = env.under_test.iris(heap_size=1 << 18)
    _delayed_put(env, torch.cuda.Stream(), 3, 0)
    tensor = iris.zeros(8)
    _arrived(env, findings, "the put after an allocation", 3, 0)
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(DELAY)
        tensor = iris.full((N,), env.rank + 7, dtype=torch.int32)
    findings.equal("a tensor made on another stream", tensor.tolist(), [env.rank + 7] * N)
    env.settle()
    release(iris)


def current_stream(env, findings):
    """Check that factories with out, all_gather and device_barrier run after earlier work of the current stream."""
    side, iris = torch.cuda.Stream(), env.under_test.iris(heap_size=1 << 20)
    rows, output = iris.zeros(4, 64), iris.zeros(4 * env.world_size, 64)
    config = env.under_test.config(comm_sms=2, threads_per_warp=env.device.lanes)
    iris.ccl.all_gather(output, rows, config=config)  # compiled
    iris.device_barrier()
    env.settle()
    for turn in range(1, TURNS + 1):
        with torch.cuda.stream(side):
            torch.cuda._sleep(DELAY)
            iris.full((4, 64), 100.0 * turn + env.rank, out=rows)
            iris.ccl.all_gather(output, rows, async_op=True, config=config)
            iris.device_barrier()
            seen = output.clone()
            # No rank may fill its rows while another one still copies.
            iris.device_barrier()
        side.synchronize()
        wanted = torch.cat([torch.full((4, 64), 100.0 * turn + rank) for rank in range(env.world_size)])
        findings.same(f"all_gather {turn} on the caller's stream", seen, wanted)
    env.settle()
    release(iris)


def _delayed_put(env, stream, turn, slot):
    """Enqueue a kernel that takes time, and after it a put of this turn's words to the right neighbour."""
    source = torch.full((N,), 1000 * turn + env.rank, dtype=torch.int32, device=env.device.torch_device)
    keep = torch.ones(N, dtype=torch.uint8, device=env.device.torch_device)
    torch.cuda.current_stream().synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(DELAY)
        launch(
            env,
            TRANSFERS["put"],
            TransferCase(dtype="int32", n=N),
            source,
            _slot(env, slot),
            keep,
            (env.rank + 1) % env.world_size,
        )
        for tensor in (source, keep):
            tensor.record_stream(stream)


def _arrived(env, findings, label, turn, slot, stream=None):
    """Check that the left neighbour's words are in this rank's slot, read at once on ``stream`` (default: the current
    stream)."""
    left = (env.rank - 1) % env.world_size
    with torch.cuda.stream(stream):
        seen = _slot(env, slot).cpu()
    findings.same(label, seen, torch.full((N,), 1000 * turn + left, dtype=torch.int32))


def _slot(env, number):
    start = SLOTS + 4 * N * number
    return env.image.arena[start : start + 4 * N].view(torch.int32)


CHECKS = {check.__name__: check for check in (one_stream, not_the_others, several_streams, allocation, current_stream)}


def run(env, case):
    findings = Findings(env.rank)
    env.image.arena[SLOTS : SLOTS + 4 * N * TURNS].fill_(0)
    _delayed_put(env, torch.cuda.Stream(), 0, 0)  # compiled
    env.settle()
    CHECKS[case.what](env, findings, *case.arguments)
    env.settle()
    return findings.first


def cases(ranks):
    arguments = {"several_streams": (judged.offers("ccl.barrier"),)}
    return [HostCase(name, arguments.get(name, ())) for name in CHECKS]


@requirement(
    "HOST-STREAM-001",
    cases=cases,
    device="gpu",
    because="the emulated device has no streams",
)
def test_streams(check, case):
    check(run, case)
