"""Streams of the caller's: what the library enqueues goes to the current one, and barrier waits for what it says.

Work on a stream is held up by a kernel that only takes time, so that whoever does not wait for it comes too early.
"""

import torch

from conformance.rma.test_put import launch as put
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase, TransferCase

TURNS, N = 4, 256
SLOTS = 65536
HELD_UP = 20_000_000
"""Clocks of the GPU, some 10 ms: longer than anything that does not wait for it takes."""
FOR_LONG = 1_000_000_000
"""Some 0.5 s: longer than a barrier of the hosts."""


def one_stream(env, found):
    """A put on a held-up stream; barrier(stream) waits for it."""
    side = torch.cuda.Stream()
    for turn in range(TURNS):
        _held_up_put(env, side, turn, turn)
        env.iris.barrier(stream=side)
        _arrived(env, found, f"put {turn} behind barrier(stream)", turn, turn)


def not_the_others(env, found):
    """barrier(stream) does not wait for another stream, and barrier() does."""
    side, busy = torch.cuda.Stream(), torch.cuda.Stream()
    env.settle()
    with torch.cuda.stream(busy):
        torch.cuda._sleep(FOR_LONG)
        done = busy.record_event()
    _held_up_put(env, side, 1, 0)
    env.iris.barrier(stream=side)
    found.true("the other stream still runs behind barrier(stream)", not done.query())
    _arrived(env, found, "the put behind barrier(stream)", 1, 0, torch.cuda.Stream())
    env.iris.barrier()
    found.true("the other stream has ended behind barrier()", done.query())


def several_streams(env, found):
    """A put on each of four held-up streams; barrier() waits for all."""
    streams = [torch.cuda.Stream() for _ in range(TURNS)]
    for turn, stream in enumerate(streams):
        _held_up_put(env, stream, 10 + turn, turn)
    env.iris.barrier()
    for turn in range(TURNS):
        _arrived(env, found, f"the put on stream {turn} behind barrier()", 10 + turn, turn)


def allocation(env, found):
    """What was enqueued on any stream before an allocation is done behind it, on every rank."""
    iris = env.under_test.iris(heap_size=1 << 18)
    _held_up_put(env, torch.cuda.Stream(), 3, 0)
    tensor = iris.zeros(8)
    _arrived(env, found, "the put behind an allocation", 3, 0)
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(HELD_UP)
        tensor = iris.full((N,), env.rank + 7, dtype=torch.int32)
    found.equal("a tensor made on another stream", tensor.tolist(), [env.rank + 7] * N)
    env.settle()
    iris.close()


def current_stream(env, found):
    """Factories with out, all_gather and device_barrier follow what the current stream holds already."""
    side, iris = torch.cuda.Stream(), env.under_test.iris(heap_size=1 << 20)
    rows, output = iris.zeros(4, 64), iris.zeros(4 * env.world_size, 64)
    config = env.under_test.config(comm_sms=2, threads_per_warp=env.device.lanes)
    iris.ccl.all_gather(output, rows, config=config)  # compiled
    iris.device_barrier()
    env.settle()
    for turn in range(1, TURNS + 1):
        with torch.cuda.stream(side):
            torch.cuda._sleep(HELD_UP)
            iris.full((4, 64), 100.0 * turn + env.rank, out=rows)
            iris.ccl.all_gather(output, rows, async_op=True, config=config)
            iris.device_barrier()
            seen = output.clone()
            # Nobody may fill its rows while another one still copies.
            iris.device_barrier()
        side.synchronize()
        wanted = torch.cat([torch.full((4, 64), 100.0 * turn + rank) for rank in range(env.world_size)])
        found.same(f"all_gather {turn} on the caller's stream", seen, wanted)
    env.settle()
    iris.close()


def _held_up_put(env, stream, turn, slot):
    """Enqueues a put of this turn's words to the right neighbour, behind a kernel that takes time."""
    source = torch.full((N,), 1000 * turn + env.rank, dtype=torch.int32, device=env.device.torch_device)
    keep = torch.ones(N, dtype=torch.uint8, device=env.device.torch_device)
    torch.cuda.current_stream().synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(HELD_UP)
        put(env, TransferCase(dtype="int32", n=N), source, _slot(env, slot), keep, (env.rank + 1) % env.world_size)
        for tensor in (source, keep):
            tensor.record_stream(stream)


def _arrived(env, found, what, turn, slot, stream=None):
    """The left neighbour's words are in this rank's slot, as ``stream`` (default: the current one) sees it now."""
    left = (env.rank - 1) % env.world_size
    with torch.cuda.stream(stream):
        seen = _slot(env, slot).cpu()
    found.same(what, seen, torch.full((N,), 1000 * turn + left, dtype=torch.int32))


def _slot(env, number):
    start = SLOTS + 4 * N * number
    return env.image.arena[start : start + 4 * N].view(torch.int32)


CHECKS = {check.__name__: check for check in (one_stream, not_the_others, several_streams, allocation, current_stream)}


def run(env, case):
    found = Findings(env.rank)
    env.image.arena[SLOTS : SLOTS + 4 * N * TURNS].fill_(0)
    _held_up_put(env, torch.cuda.Stream(), 0, 0)  # compiled
    env.settle()
    CHECKS[case.what](env, found)
    env.settle()
    return found.first


@requirement(
    "HOST-STREAM-001",
    cases=lambda ranks: [HostCase(name) for name in CHECKS],
    device="gpu",
    because="the emulated device has no streams",
)
def test_streams(check, case):
    check(run, case)
