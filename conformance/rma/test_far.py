"""Offsets are 64-bit: an access far from the heap's start reaches the same offset of the other heap.

A heap of more than 5 GiB is cheap as long as few of its pages are touched. Blocks are just below and above 2 GiB and
4 GiB, and beyond. For each block, the addresses that a 31- or 32-bit offset would reach are checked too.

001  in Gluon. 002  in Triton, with ``DeviceContext``, of which the ranks take the operations by turns, since each rank
has kernels of its own, and with the functions.
"""

import torch

from conformance.atomics.cases import AtomicCase
from conformance.atomics.history import launch_atomic
from conformance.rma.cases import TransferCase
from conformance.rma.kernels import launch
from conformance.rma.operations import TRANSFERS
from conformance.support.cases import HostCase
from conformance.support.instances import OtherInstance, release
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import payload
from harness.oracles import exchange

GIB = 1 << 30
HEAP = 5 * GIB + (64 << 20)
COUNT = 64
SOURCE, CELL, RESULTS = 0, 512, 1024
"""Offsets in bytes from a case's place: of the source, of the atomic's cell, and of the first result."""


def run(env, case):
    place, form = case.arguments
    me, ranks = env.rank, env.world_size
    left, right = (me - 1) % ranks, (me + 1) % ranks

    def acts(rank):
        """Return whether a rank makes the operations: a kernel with ``DeviceContext`` is compiled for one rank."""
        return form != "context" or rank == 0

    findings = Findings(me)
    iris = env.under_test.iris(heap_size=HEAP)
    heap = iris.empty(HEAP - (1 << 20), dtype=torch.uint8)
    # The addresses in the same heap that a truncated offset would reach.
    aliases = sorted({place % GIB, place % (2 * GIB), place % (4 * GIB), GIB // 2} - {place})
    windows = {alias: heap[alias : alias + 4096] for alias in aliases}
    for alias, window in windows.items():
        window.fill_(alias % 251)
    heap[place : place + 4096].fill_(0xEE)

    shape = TransferCase(dtype="int32", n=COUNT, spt=1, warps=1, form=form)
    here = env.device.torch_device
    source, cell = (heap[place + distance :].view(torch.int32) for distance in (SOURCE, CELL))
    mine = payload("int32", COUNT, rank=me, ranks=ranks)
    source[:COUNT].copy_(mine)
    cell[:2].zero_()
    pushed = exchange(mine, {(rank, (rank + 1) % ranks) for rank in range(ranks)}, rank=me, ranks=ranks)
    pulled = exchange(mine, {((rank + 1) % ranks, rank) for rank in range(ranks)}, rank=me, ranks=ranks)
    wanted = heap[place : place + 4096].clone()
    for name, start in results().items():
        writer, received = (left, pushed) if TRANSFERS[name].pushes(shape) else (me, pulled)
        if acts(writer):
            wanted[start : start + 4 * COUNT] = next(iter(received.values())).view(torch.uint8)
    if acts(left):
        wanted[CELL : CELL + 4].view(torch.int32)[0] = 7

    keep = torch.ones(COUNT, dtype=torch.uint8, device=here)
    local = OtherInstance(env, iris)
    with env.acting():
        for name, start in results().items():
            if acts(me):
                launch(local, TRANSFERS[name], shape, source, heap[place + start :].view(torch.int32), keep, right)
        zero, seven = (torch.full((1,), value, dtype=torch.int32, device=here) for value in (0, 7))
        one_add = AtomicCase(op="add", scope="sys", spt=0, returned=False, form=form)
        if acts(me):
            launch_atomic(local, one_add, cell, zero, seven, zero, keep, keep, right)
    env.settle()
    findings.same(f"the 4096 bytes at {place:#x}", heap[place : place + 4096], wanted)
    for alias, window in windows.items():
        findings.same(
            f"the 4096 bytes at {alias:#x}, which must stay unchanged", window, torch.full_like(window, alias % 251)
        )
    env.settle()
    release(iris)
    return findings.first


def results():
    """Return the offset in bytes of each transfer's result from the case's place."""
    return {name: RESULTS + 4 * COUNT * number for number, name in enumerate(TRANSFERS)}


def cases(ranks):
    return [
        HostCase("far", (place, "gluon"))
        for place in (2 * GIB - 4096, 2 * GIB + 8192, 4 * GIB - 4096, 4 * GIB + 12288, 5 * GIB)
    ]


def triton_cases(ranks):
    return [HostCase("far", (4 * GIB + 12288, form)) for form in ("context", "function")]


@requirement("RMA-FAR-001", cases=cases, weak=False)
def test_far(check, case):
    check(run, case)


@requirement("RMA-FAR-002", cases=triton_cases, weak=False)
def test_far_by_triton(check, case):
    check(run, case)
