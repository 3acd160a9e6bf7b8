"""device_barrier: work that any rank enqueued before it is complete and visible to work that any rank enqueues after
it.

In each turn, every rank's kernel writes the turn into the rank's cell of every member's heap. After the barrier a
kernel on the same stream reads this rank's cells; no host waits. One rank is late. Each turn has the cells of the
turn two before it: a fast rank that passes the next barrier before a late one has read overwrites its cells. If
``wraps`` is True, the barrier's counts start just below 2^31 and pass it.
"""

import torch

from conformance.rma.cases import TransferCase
from conformance.rma.kernels import launch
from conformance.rma.operations import TRANSFERS
from conformance.support.cases import HostCase
from conformance.support.instances import preset_barrier, release
from conformance.support.steps import CALLS, Stops
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import chunks_of, members_of

TURNS = 6
WRAPS = 2
REPLAYS = 4
CELLS, SEEN = 4096, 16384


def run(env, case):
    (group, wraps) = case.arguments
    me, findings = env.rank, Findings(env.rank)
    members = members_of(group, me, env.world_size)
    handle = env.group(members, chunks_of(group, env.world_size))
    iris = env.under_test.iris(heap_size=1 << 16)
    if wraps:
        iris.device_barrier(handle)  # allocates the flags
        env.settle()
        preset_barrier(iris, handle, 2**31 - 1 - WRAPS)  # so that every count wraps in turn WRAPS
    env.image.reset()
    cells = env.image.claim("cells", CELLS, env.world_size * 2, torch.int32)
    env.image.fill(cells, torch.zeros(cells.count, dtype=torch.int32))
    source = torch.arange(1, TURNS + 1, dtype=torch.int32, device=env.device.torch_device)
    seen = torch.zeros(TURNS, env.world_size, dtype=torch.int32, device=env.device.torch_device)
    keep = torch.ones(env.world_size, dtype=torch.uint8, device=env.device.torch_device)
    one, all_cells = TransferCase(dtype="int32", n=1), TransferCase(dtype="int32", n=env.world_size)
    env.settle()
    with env.acting():
        for turn in range(TURNS):
            # The delay is longer in the turn in which counts wrap: only one barrier of a case does, and a busy machine
            # must not hide a rank that leaves it too early.
            late_ms = 6 * case.late_ms if wraps and turn == WRAPS else case.late_ms
            env.late(members[(case.late + turn) % len(members)], late_ms)
            # The next turn has other cells: a rank may begin it before a slower one has read those of this turn.
            start = CELLS + 4 * (turn % 2) * env.world_size
            for member in members:
                launch(
                    env, TRANSFERS["put"], one, source[turn:], env.pointer(start + 4 * me, torch.int32), keep, member
                )
            iris.device_barrier(handle)
            launch(env, TRANSFERS["load"], all_cells, env.pointer(start, torch.int32), seen[turn], keep, me)
    env.settle()
    for turn in range(TURNS):
        wanted = [turn + 1 if rank in members else 0 for rank in range(env.world_size)]
        findings.equal(f"cells read after barrier {turn}", seen[turn].tolist(), wanted)
    env.settle()
    release(iris)
    return findings.first


def run_stopping(env, case, stopping):
    """Let one rank stop inside its kernels, the barrier's among them; see ``conformance.support.steps``."""
    (group,) = case.arguments
    me, findings = env.rank, Findings(env.rank)
    members = members_of(group, me, env.world_size)
    handle = env.group(members, chunks_of(group, env.world_size))
    iris = env.under_test.iris(heap_size=1 << 16)
    env.image.reset()
    cells = env.image.claim("cells", CELLS, env.world_size * CALLS, torch.int32)
    env.image.fill(cells, torch.zeros(cells.count, dtype=torch.int32))
    source = torch.arange(1, CALLS + 1, dtype=torch.int32, device=env.device.torch_device)
    seen = torch.zeros(CALLS, env.world_size, dtype=torch.int32, device=env.device.torch_device)
    keep = torch.ones(env.world_size, dtype=torch.uint8, device=env.device.torch_device)
    one, all_cells = TransferCase(dtype="int32", n=1), TransferCase(dtype="int32", n=env.world_size)
    stops = Stops(env, stopping)
    env.settle()
    with env.acting():
        for turn in range(CALLS):
            start = CELLS + 4 * turn * env.world_size
            with stops.call(turn):
                for member in members:
                    to = env.pointer(start + 4 * me, torch.int32)
                    launch(env, TRANSFERS["put"], one, source[turn:], to, keep, member)
                iris.device_barrier(handle)
                launch(env, TRANSFERS["load"], all_cells, env.pointer(start, torch.int32), seen[turn], keep, me)
    stops.end(findings)
    env.settle()
    for turn in range(CALLS):
        wanted = [turn + 1 if rank in members else 0 for rank in range(env.world_size)]
        findings.equal(f"cells read after barrier {turn}", seen[turn].tolist(), wanted)
    env.settle()
    release(iris)
    return findings.first


def run_overlapping(env, case):
    """Let two groups take turns: all ranks but the last, and all but the first. Ranks in both groups pass both
    barriers, in the same order."""
    me, findings = env.rank, Findings(env.rank)
    everyone = tuple(range(env.world_size))
    groups = everyone[:-1], everyone[1:]
    iris = env.under_test.iris(heap_size=1 << 16)
    handles = [env.group(members, groups) for members in groups]
    env.image.reset()
    cells = env.image.claim("cells", CELLS, env.world_size * TURNS * len(groups), torch.int32)
    env.image.fill(cells, torch.zeros(cells.count, dtype=torch.int32))
    source = torch.arange(1, TURNS + 1, dtype=torch.int32, device=env.device.torch_device)
    seen = torch.zeros(TURNS, len(groups), env.world_size, dtype=torch.int32, device=env.device.torch_device)
    keep = torch.ones(env.world_size, dtype=torch.uint8, device=env.device.torch_device)
    one, all_cells = TransferCase(dtype="int32", n=1), TransferCase(dtype="int32", n=env.world_size)
    env.settle()
    with env.acting():
        for turn in range(TURNS):
            for which, members in enumerate(groups):
                env.late(members[(case.late + turn) % len(members)], case.late_ms)
                if me not in members:
                    continue
                start = CELLS + 4 * env.world_size * (len(groups) * turn + which)
                for member in members:
                    launch(
                        env,
                        TRANSFERS["put"],
                        one,
                        source[turn:],
                        env.pointer(start + 4 * me, torch.int32),
                        keep,
                        member,
                    )
                iris.device_barrier(handles[which])
                launch(env, TRANSFERS["load"], all_cells, env.pointer(start, torch.int32), seen[turn, which], keep, me)
    env.settle()
    for turn in range(TURNS):
        for which, members in enumerate(groups):
            if me in members:
                wanted = [turn + 1 if rank in members else 0 for rank in everyone]
                findings.equal(
                    f"cells read after barrier {turn} of group {members}", seen[turn, which].tolist(), wanted
                )
    env.settle()
    release(iris)
    return findings.first


def run_captured(env, case):
    """Replay a device graph of TURNS steps with other data: put to all ranks, device_barrier, read this rank's
    cells."""
    me, findings = env.rank, Findings(env.rank)
    iris = env.under_test.iris(heap_size=1 << 16)
    env.image.reset()
    cells = env.image.claim("cells", CELLS, env.world_size * TURNS, torch.int32)
    env.image.fill(cells, torch.zeros(cells.count, dtype=torch.int32))
    source = torch.zeros(TURNS, dtype=torch.int32, device=env.device.torch_device)
    seen = torch.zeros(TURNS, env.world_size, dtype=torch.int32, device=env.device.torch_device)
    keep = torch.ones(env.world_size, dtype=torch.uint8, device=env.device.torch_device)
    one, all_cells = TransferCase(dtype="int32", n=1), TransferCase(dtype="int32", n=env.world_size)

    def steps():
        for turn in range(TURNS):
            start = CELLS + 4 * turn * env.world_size
            for member in range(env.world_size):
                launch(
                    env, TRANSFERS["put"], one, source[turn:], env.pointer(start + 4 * me, torch.int32), keep, member
                )
            iris.device_barrier()
            launch(env, TRANSFERS["load"], all_cells, env.pointer(start, torch.int32), seen[turn], keep, me)

    with env.acting():
        steps()  # compiles, and allocates the flags
        env.device.synchronize()
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                steps()
        finally:
            torch.cuda.set_stream(stream)
        for replay in range(1, REPLAYS + 1):
            env.settle()  # no rank reads cells any more
            source.fill_(replay)
            env.late((case.late + replay) % env.world_size, case.late_ms)
            graph.replay()
            env.device.synchronize()
            findings.equal(f"cells of replay {replay}", seen.tolist(), [[replay] * env.world_size] * TURNS)
    env.settle()
    release(iris)
    return findings.first


def cases(ranks):
    groups = ("world", "stride", "halves") if ranks > 1 else ("world",)
    return [
        HostCase("device_barrier", (group, wraps), late=late, late_ms=15)
        for group in groups
        for wraps in (False, True)
        for late in range(min(2, ranks))
    ]


@requirement(
    "HOST-DEVICE-BARRIER-001",
    cases=cases,
    one_process_on_gpus="it tests the order of work that a process has enqueued",
)
def test_device_barrier(check, case):
    check(run, case)


def lateness(ranks):
    return [HostCase("device_barrier", (), late=late, late_ms=15) for late in range(min(2, ranks))]


@requirement("HOST-DEVICE-BARRIER-002", cases=lateness, ranks=3)
def test_overlapping(check, case):
    check(run_overlapping, case)


@requirement(
    "HOST-DEVICE-BARRIER-003", cases=lateness, device="gpu", because="the emulated device has no device graphs"
)
def test_captured(check, case):
    check(run_captured, case)


@requirement(
    "HOST-DEVICE-BARRIER-005",
    cases=lambda ranks: [HostCase("device_barrier", (group,)) for group in ("world", "stride")],
    ranks=2,
    device="emulated",
    because="only there can a rank stop inside a kernel",
    weak=False,
)
def test_stopping(check, case):
    for stopping in range(check.ranks):
        check(run_stopping, case, stopping=stopping)
