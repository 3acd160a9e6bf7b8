"""The objects ``instance.heap`` and ``heap.allocator``: their queries and their allocations."""

import torch

from conformance.host.checks import offset_in_heap
from conformance.rma.words import read_address, write_address
from conformance.support.cases import HostCase
from fixtures.addresses import address_of
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.oracles import gathered

HEAP = 32 << 20
ALLOCATORS = ("torch", "vmem")
BLOCK = (3 << 19) + 1024
"""Bytes that end within a granule of vmem, of 64 KiB on the emulated device and 2 MiB on GPUs."""
DTYPES = (
    "bool", "int8", "uint8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
    "complex128", "float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64",
)  # fmt: skip


def run(env, case):
    (kind,) = case.arguments
    findings = Findings(env.rank)
    iris = env.under_test.iris(HEAP, kind)
    try:
        with env.acting():
            _queries(env, findings, iris)
            _allocations(env, findings, iris)
            _alignments(env, findings, iris)
            _holes(env, findings, iris)
            _dtypes(env, findings, iris)
            _barriers(env, findings, iris)
            _first_write(env, findings, iris)
            _close(env, findings, iris)
        env.settle()
    finally:
        iris.close()
    return findings.first


def _queries(env, findings, iris):
    heap, allocator = iris.heap, iris.heap.allocator
    bases = iris.get_heap_bases().tolist()
    findings.equal("heap.get_heap_bases()", list(heap.get_heap_bases()), bases)
    findings.equal("allocator.get_base_address()", allocator.get_base_address(), bases[env.rank])
    findings.equal("heap.get_device()", heap.get_device(), iris.get_device())
    findings.equal("allocator.get_device()", allocator.get_device(), iris.get_device())
    findings.true("get_minimum_allocation_size() is not negative", allocator.get_minimum_allocation_size() >= 0)
    findings.equal("heap_offset of an empty heap", allocator.heap_offset, 0)
    findings.equal("free_bytes() of an empty heap", allocator.free_bytes(), HEAP)


def _allocations(env, findings, iris):
    heap, allocator = iris.heap, iris.heap.allocator
    small = heap.allocate(3, torch.int64)
    aligned = heap.allocate(100, torch.bfloat16, alignment=4096)
    none = heap.allocate(0, torch.float32)
    taken = max(24, allocator.get_minimum_allocation_size()) + max(200, allocator.get_minimum_allocation_size())
    for label, tensor, size, dtype, alignment in (
        ("3 int64", small, 3, torch.int64, 1024),
        ("100 bfloat16", aligned, 100, torch.bfloat16, 4096),
        ("nothing", none, 0, torch.float32, 1024),
    ):
        findings.equal(f"shape of {label}", tuple(tensor.shape), (size,))
        findings.equal(f"dtype of {label}", tensor.dtype, dtype)
        offset = offset_in_heap(iris, tensor) if size else 0
        findings.equal(f"alignment of {label}, {alignment}", offset % alignment, 0)
        for name, predicate in (
            ("owns_tensor", allocator.owns_tensor),
            ("is_symmetric", heap.is_symmetric),
            ("on_symmetric_heap", heap.on_symmetric_heap),
        ):
            findings.equal(f"{name} of {label}", predicate(tensor), True)
            findings.equal(f"{name} of another tensor", predicate(torch.ones(size + 1, device=tensor.device)), False)
    for label, tensor in (("3 int64", small), ("100 bfloat16", aligned)):
        offsets = gathered(torch.tensor([offset_in_heap(iris, tensor)])).tolist()
        findings.equal(f"different offsets of {label} on all ranks", len(set(offsets)), 1)
    findings.true("heap_offset is after the allocations", allocator.heap_offset >= offset_in_heap(iris, aligned) + 200)
    findings.true(f"free_bytes() is {taken} less", allocator.free_bytes() <= HEAP - taken)

    aligned.fill_(0.5)
    heap.refresh_peer_access()
    findings.equal("bases after refresh_peer_access()", list(heap.get_heap_bases()), iris.get_heap_bases().tolist())
    findings.true("values after refresh_peer_access()", bool((aligned == 0.5).all()))
    copied = heap.as_symmetric(aligned.clone())
    findings.same("heap.as_symmetric", copied, aligned)
    for tensor in (copied, none, aligned, small):
        heap.free(tensor)
    findings.equal("free_bytes() after all was freed", allocator.free_bytes(), HEAP)
    findings.equal("heap_offset after all was freed", allocator.heap_offset, 0)
    full = (MemoryError, RuntimeError)
    findings.raises("more than the heap", full, lambda: heap.allocate(HEAP + 1, torch.uint8), says="out of memory")


def _alignments(env, findings, iris):
    """Check that each offset is a multiple of the alignment, any multiple of the element size, in an empty heap and
    after other allocations."""
    made = []
    for alignment in (12, 1536, 4, 3000, 20, 1 << 16, 1028, 8):
        made.append(iris.heap.allocate(5, torch.float32, alignment=alignment))
        offset = offset_in_heap(iris, made[-1])
        findings.equal(f"offset {offset} modulo the alignment {alignment}", offset % alignment, 0)
    for turn, tensor in enumerate(made):
        tensor.fill_(turn + 10 * env.rank)
    for turn, tensor in enumerate(made):
        findings.same(
            f"values of allocation {turn} of some alignment", tensor, torch.full((5,), turn + 10.0 * env.rank)
        )
        iris.heap.free(tensor)


def _holes(env, findings, iris):
    """Free two adjacent blocks, and fill the hole with a small allocation and one of the rest: no other block changes.

    With vmem, the second one covers memory that was unmapped and mapped again, and memory that the next block has kept.
    """
    heap = iris.heap
    blocks = {number: _filled(env, heap, BLOCK, number) for number in range(6)}
    for first in (0, 3):
        hole = f"the hole of blocks {first} and {first + 1}"
        for number in (first, first + 1):
            heap.free(blocks.pop(number))
        blocks[10 + first] = _filled(env, heap, 1024, 10 + first)
        try:
            blocks[20 + first] = _filled(env, heap, 2 * BLOCK - 1024, 20 + first)
        except (MemoryError, RuntimeError, ValueError) as error:
            findings.note(f"an allocation that fits into the rest of {hole}", str(error), "a tensor")
            break
        for number, tensor in blocks.items():
            unchanged = bool((tensor == _pattern(env, number)).all())
            findings.true(f"block {number} is unchanged after {hole} was filled", unchanged)
    for tensor in blocks.values():
        heap.free(tensor)


def _filled(env, heap, size, number):
    return heap.allocate(size, torch.uint8).fill_(_pattern(env, number))


def _pattern(env, number):
    return (number + 32 * env.rank) % 256


def _dtypes(env, findings, iris):
    """Check allocations of seven elements of each dtype: each keeps its bytes while the others are written."""
    made = [(name, iris.heap.allocate(7, getattr(torch, name))) for name in DTYPES]
    for turn, (_, tensor) in enumerate(made):
        tensor.view(torch.uint8).fill_(turn + 10 * env.rank)
    for turn, (name, tensor) in enumerate(made):
        findings.equal(f"dtype and shape of 7 {name}", (str(tensor.dtype), len(tensor)), (f"torch.{name}", 7))
        findings.equal(f"alignment of 7 {name}", address_of(tensor) % 1024, 0)
        wanted = torch.full((7 * tensor.element_size(),), turn + 10 * env.rank, dtype=torch.uint8)
        findings.same(f"bytes of 7 {name}", tensor.view(torch.uint8), wanted)
        iris.heap.free(tensor)


def _barriers(env, findings, iris):
    """Check that each collective call is a barrier: a late rank's writes before its call are visible to all ranks after
    theirs."""
    heap, made = iris.heap, []
    mark = heap.allocate(1, torch.int32)
    place = offset_in_heap(iris, mark)
    for turn, (label, call) in enumerate(
        {
            "allocate": lambda: made.append(heap.allocate(5, torch.float32)),
            "as_symmetric": lambda: made.append(heap.as_symmetric(torch.ones(5, device=mark.device))),
            "refresh_peer_access": heap.refresh_peer_access,
            "free": lambda: heap.free(made.pop()),
        }.items(),
        start=1,
    ):
        env.settle()
        env.late(turn % env.world_size, 25)
        mark.fill_(turn)
        call()
        for rank, base in enumerate(heap.get_heap_bases()):
            findings.equal(f"mark of rank {rank} after {label}", read_address(env, base + place), turn)
    env.settle()
    for tensor in (*made, mark):
        heap.free(tensor)


def _first_write(env, findings, iris):
    """Write to rank 1's allocation as soon as rank 0's call returns: rank 1 must have filled it by then, which takes
    time."""
    peer = min(1, env.world_size - 1)
    tensor = iris.empty(4 << 20) if env.rank == 0 else iris.randn(4 << 20)
    last = offset_in_heap(iris, tensor) + tensor.nbytes - 16
    if env.rank == 0:
        write_address(env, iris.heap.get_heap_bases()[peer] + last, 77)
    env.settle()
    if env.rank == peer:
        findings.equal("value that rank 0 wrote directly after its call", int(tensor[-4:].view(torch.int32)[0]), 77)
    iris.free(tensor)


def _close(env, findings, iris):
    env.settle()
    iris.heap.close()
    iris.heap.close()
    findings.raises("an allocation on a closed heap", RuntimeError, lambda: iris.heap.allocate(1, torch.uint8))


@requirement("MEMORY-HEAP-001", cases=lambda ranks: [HostCase("heap", (kind,)) for kind in ALLOCATORS], weak=False)
def test_heap(check, case):
    check(run, case)
