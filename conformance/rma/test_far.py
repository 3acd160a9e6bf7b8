"""Offsets are 64-bit: far from the heap's start an access reaches the same far offset of the other heap.

A heap of more than 5 GiB costs nothing as long as few of its pages are touched. Blocks lie just below and above 2
GiB and 4 GiB, and beyond; for each, the places that a 31- or 32-bit offset would reach are watched too.

001  in Gluon. 002  in Triton, with ``DeviceContext`` and with the functions.
"""

import torch

from conformance.atomics import test_add
from conformance.atomics.history import launch_atomic
from conformance.rma import test_get, test_put
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import AtomicCase, HostCase, TransferCase, payload
from harness.oracles import exchange

GIB = 1 << 30
HEAP = 5 * GIB + (64 << 20)
COUNT = 64
SOURCE, RESULT, CELL = 0, 1024, 2048
"""Byte distances of three small regions from a place."""


def run(env, case):
    place, form = case.arguments
    me, ranks = env.rank, env.world_size
    right = (me + 1) % ranks
    found = Findings(me)
    iris = env.under_test.iris(heap_size=HEAP)
    heap = iris.empty(HEAP - (1 << 20), dtype=torch.uint8)
    # What a truncated offset would reach instead, in the same heap.
    aliases = sorted({place % GIB, place % (2 * GIB), place % (4 * GIB), GIB // 2} - {place})
    windows = {alias: heap[alias : alias + 4096] for alias in aliases}
    for alias, window in windows.items():
        window.fill_(alias % 251)
    heap[place : place + 4096].fill_(0xEE)

    at = {
        name: heap[place + distance :].view(torch.int32)
        for name, distance in (("source", SOURCE), ("result", RESULT), ("cell", CELL))
    }
    mine = payload("int32", COUNT, rank=me, ranks=ranks)
    at["source"][:COUNT].copy_(mine)
    at["cell"][:2].zero_()
    pushed = exchange(mine, {(rank, (rank + 1) % ranks) for rank in range(ranks)}, rank=me, ranks=ranks)
    pulled = exchange(mine, {((rank + 1) % ranks, rank) for rank in range(ranks)}, rank=me, ranks=ranks)
    wanted = heap[place : place + 4096].clone()
    wanted[RESULT : RESULT + 4 * COUNT] = next(iter(pushed.values())).view(torch.uint8)
    wanted[RESULT + 512 : RESULT + 512 + 4 * COUNT] = next(iter(pulled.values())).view(torch.uint8)
    wanted[CELL : CELL + 4].view(torch.int32)[0] = 7

    shape = TransferCase(dtype="int32", n=COUNT, spt=1, warps=1, form=form)
    here = env.device.torch_device
    keep = torch.ones(COUNT, dtype=torch.uint8, device=here)
    local = OtherInstance(env, iris)
    with env.acting():
        test_put.launch(local, shape, at["source"], at["result"], keep, right)
        test_get.launch(local, shape, at["source"], heap[place + RESULT + 512 :].view(torch.int32), keep, right)
        zero, seven = (torch.full((1,), value, dtype=torch.int32, device=here) for value in (0, 7))
        one_add = AtomicCase(op="add", scope="sys", spt=0, returned=False, form=form)
        launch_atomic(local, one_add, test_add.APPLIES[form], at["cell"], zero, seven, zero, keep, keep, right)
    env.settle()
    found.same(f"the 4096 bytes at {place:#x}", heap[place : place + 4096], wanted)
    for alias, window in windows.items():
        found.same(
            f"the 4096 bytes at {alias:#x}, which nothing may touch", window, torch.full_like(window, alias % 251)
        )
    env.settle()
    iris.close()
    return found.first


class OtherInstance:
    """The environment of a rank with another instance of the library."""

    def __init__(self, env, iris):
        self.iris, self.under_test = iris, env.under_test
        self.device_context, self.context = env.device_context, iris.get_device_context()
        self.device, self.warps, self.rank, self.world_size = env.device, env.warps, env.rank, env.world_size


def cases(ranks):
    return [
        HostCase("far", (place, "gluon"))
        for place in (2 * GIB - 4096, 2 * GIB + 8192, 4 * GIB - 4096, 4 * GIB + 12288, 5 * GIB)
    ]


def triton_cases(ranks):
    return [HostCase("far", (4 * GIB + 12288, form)) for form in ("context", "function")]


@requirement("RMA-FAR-001", cases=cases)
def test_far(check, case):
    check(run, case)


@requirement("RMA-FAR-002", cases=triton_cases)
def test_far_by_triton(check, case):
    check(run, case)
