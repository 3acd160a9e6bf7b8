"""Drawn histories of a heap: whatever was allocated and freed before, live allocations keep to themselves.

Each live allocation holds a pattern of its rank and turn. After every step it is still there, at one offset on all
ranks, reachable by the base table, and the base table is what it was. An allocation that fits into a hole between live
ones is given; one that fits into none is refused on every rank.
"""

import torch

from conformance.host.checks import offset_in_heap
from conformance.rma.test_load import read_address
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases.heap import HeapCase
from harness.oracles import gathered

ALIGNMENT = 1024


def run(env, case: HeapCase):
    found = Findings(env.rank)
    iris = env.under_test.iris(heap_size=case.heap, allocator_type=case.allocator)
    bases = iris.get_heap_bases().tolist()
    live: list[tuple[int, torch.Tensor]] = []
    for turn, (step, number) in enumerate(case.steps):
        what = f"step {turn}, {step} {number}"
        if step == "free" and live:
            iris.free(live.pop(number % len(live))[1])
        elif step == "share":
            share(env, found, iris, what, live, turn, number)
        elif step == "allocate":
            allocate(found, iris, case, what, live, turn, number)
        env.settle()
        check_live(env, found, iris, what, live, bases)
        env.settle()
    iris.close()
    return found.first


def allocate(found, iris, case, what, live, turn, number):
    """Given if it fits into a hole."""
    bytes_needed = max(number, 1) * 4
    fits = any(
        -(-start // ALIGNMENT) * ALIGNMENT + bytes_needed <= stop for start, stop in holes(iris, live, case.heap)
    )
    try:
        tensor = iris.empty(number, dtype=torch.int32)
    except MemoryError:
        # How much room a second mapping takes is the device's affair.
        shared = any(case.steps[turn][0] == "share" for turn, _ in live)
        found.true(f"{what} is refused only where it fits nowhere", shared or not fits)
        return
    found.true(f"{what} is given only where it fits", fits)
    live.append((turn, fill(tensor, turn, iris.get_rank())))


def share(env, found, iris, what, live, turn, number):
    """The same values, on the heap; what is written later is seen through both with vmem, where the device can."""
    original = torch.zeros(number, dtype=torch.int32, device=env.device.torch_device)
    fill(original, turn, iris.get_rank())
    try:
        tensor = iris.as_symmetric(original)
    except MemoryError:
        return
    found.same(what, tensor, original.cpu())
    live.append((turn, tensor))


def check_live(env, found, iris, what, live, bases):
    found.equal(f"base table after {what}", iris.get_heap_bases().tolist(), bases)
    found.equal(
        f"base table of the kernels after {what}", iris.get_device_context()[2 : 2 + len(bases)].tolist(), bases
    )
    offsets = [offset_in_heap(iris, tensor) for _, tensor in live if tensor.numel()]
    everywhere = gathered(torch.tensor([0, *offsets])).view(env.world_size, -1).tolist()
    found.true(
        f"offsets after {what} are the same on all ranks: {everywhere}", all(r == everywhere[0] for r in everywhere)
    )
    for turn, tensor in live:
        found.true(f"allocation of step {turn} is on the heap", iris.is_symmetric(tensor))
        found.same(
            f"allocation of step {turn} after {what}",
            tensor,
            fill(torch.empty_like(tensor, device="cpu"), turn, env.rank),
        )
    peer = (env.rank + 1) % env.world_size
    for turn, tensor in [entry for entry in live if entry[1].numel()][-2:]:
        last = offset_in_heap(iris, tensor) + 4 * (tensor.numel() - 1)
        wanted = int(fill(torch.empty(tensor.numel(), dtype=torch.int32), turn, peer)[-1])
        found.equal(
            f"last element of step {turn} on rank {peer}, after {what}", read_address(env, bases[peer] + last), wanted
        )


def holes(iris, live, heap):
    """What lies between live allocations, as [start, stop) in bytes. An empty one takes the room of an element."""
    taken = sorted((offset_of_any(iris, tensor), max(tensor.numel(), 1) * 4) for _, tensor in live)
    start, found = 0, []
    for offset, size in taken:
        found.append((start, offset))
        start = offset + size
    return [*found, (start, heap)]


def offset_of_any(iris, tensor):
    address = tensor.untyped_storage().data_ptr() + tensor.storage_offset() * tensor.element_size()
    return address - int(iris.get_heap_bases()[iris.get_rank()])


def fill(tensor, turn, rank):
    """Distinct by rank, turn and element."""
    count = tensor.numel()
    return tensor.copy_(torch.arange(count, dtype=torch.int32) + 1_000_000 * (turn + 1) + 100_000_000 * rank)


def cases(ranks, allocator):
    from harness.cases import heap_strategies

    return heap_strategies.histories(allocator)


@requirement("MEMORY-HISTORY-001", cases=cases, allocator=("torch", "vmem"))
def test_histories(check, case):
    check(run, case)
