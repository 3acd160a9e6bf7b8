"""Drawn histories of a heap: live allocations never overlap, after any sequence of allocations and frees.

Each live allocation holds a pattern of its rank and turn. After every step the pattern is unchanged, the allocation has
the same offset on all ranks and can be reached by the base table, and the base table is unchanged. An allocation that
fits into a gap between live allocations succeeds; one that does not fit is refused on every rank. A second mapping,
whose addresses lie after the heap's, takes the bytes of its tensor and no gap.
"""

import torch

from conformance.host.checks import offset_in_heap
from conformance.memory.cases import HeapCase
from conformance.rma.words import read_address
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.oracles import gathered

ALIGNMENT = 1024


def run(env, case: HeapCase):
    findings = Findings(env.rank)
    iris = env.under_test.iris(heap_size=case.heap, allocator_type=case.allocator)
    bases = iris.get_heap_bases().tolist()
    live: list[tuple[int, torch.Tensor]] = []
    for turn, (step, number) in enumerate(case.steps):
        label = f"step {turn}, {step} {number}"
        if step == "free" and live:
            iris.free(live.pop(number % len(live))[1])
        elif step == "share":
            share(env, findings, iris, case.heap, label, live, turn, number)
        elif step == "allocate":
            allocate(findings, iris, case.heap, label, live, turn, number)
        env.settle()
        check_live(env, findings, iris, label, live, bases)
        env.settle()
    iris.close()
    return findings.first


def allocate(findings, iris, heap, label, live, turn, number):
    """Allocate, and check that it succeeds if and only if it fits into a gap."""
    fits = fits_into(iris, live, heap, number)
    try:
        tensor = iris.empty(number, dtype=torch.int32)
    except MemoryError:
        findings.true(f"{label} is refused only if it fits into no gap", not fits)
        return
    findings.true(f"{label} succeeds only if it fits into a gap", fits)
    live.append((turn, fill(tensor, turn, iris.get_rank())))


def share(env, findings, iris, heap, label, live, turn, number):
    """Call as_symmetric with an ordinary tensor, and check the values of the result. It may be a copy, so it is
    refused only if it fits into no gap."""
    original = torch.zeros(number, dtype=torch.int32, device=env.device.torch_device)
    fill(original, turn, iris.get_rank())
    fits = fits_into(iris, live, heap, number)
    try:
        tensor = iris.as_symmetric(original)
    except MemoryError:
        findings.true(f"{label} is refused only if it fits into no gap", not fits)
        return
    findings.same(label, tensor, original.cpu())
    live.append((turn, tensor))


def check_live(env, findings, iris, label, live, bases):
    findings.equal(f"base table after {label}", iris.get_heap_bases().tolist(), bases)
    findings.equal(
        f"base table of the kernels after {label}", iris.get_device_context()[2 : 2 + len(bases)].tolist(), bases
    )
    offsets = [offset_in_heap(iris, tensor) for _, tensor in live if tensor.numel()]
    everywhere = gathered(torch.tensor([0, *offsets])).view(env.world_size, -1).tolist()
    findings.true(
        f"offsets after {label} are the same on all ranks: {everywhere}", all(r == everywhere[0] for r in everywhere)
    )
    for turn, tensor in live:
        findings.true(f"allocation of step {turn} is on the heap", iris.is_symmetric(tensor))
        findings.same(
            f"allocation of step {turn} after {label}",
            tensor,
            fill(torch.empty_like(tensor, device="cpu"), turn, env.rank),
        )
    peer = (env.rank + 1) % env.world_size
    for turn, tensor in [entry for entry in live if entry[1].numel()][-2:]:
        last = offset_in_heap(iris, tensor) + 4 * (tensor.numel() - 1)
        wanted = int(fill(torch.empty(tensor.numel(), dtype=torch.int32), turn, peer)[-1])
        findings.equal(
            f"last element of step {turn} on rank {peer}, after {label}", read_address(env, bases[peer] + last), wanted
        )


def fits_into(iris, live, heap, number):
    """Return whether a gap between live allocations has room for ``number`` int32, and the heap has that many bytes."""
    needed = max(number, 1) * 4
    taken = sorted((offset_in_heap(iris, tensor), max(tensor.numel(), 1) * 4) for _, tensor in live)
    start, fits = 0, False
    for offset, size in [*taken, (heap, 0)]:
        fits = fits or -(-start // ALIGNMENT) * ALIGNMENT + needed <= min(offset, heap)
        start = offset + size
    return fits and needed <= heap - sum(size for _, size in taken)


def fill(tensor, turn, rank):
    """Fill a tensor with values that are distinct by rank, turn and element."""
    count = tensor.numel()
    return tensor.copy_(torch.arange(count, dtype=torch.int32) + 1_000_000 * (turn + 1) + 100_000_000 * rank)


def cases(ranks, allocator):
    from conformance.memory import strategies

    return strategies.histories(allocator)


@requirement("MEMORY-HISTORY-001", cases=cases, allocator=("torch", "vmem"))
def test_histories(check, case):
    check(run, case)
