"""Exact oracles: torch.distributed references, whole-heap comparison, linearisation of atomics.

    image = HeapImage(arena, rank)              # once per rank: a uint8 tensor over (almost) the whole symmetric heap
    image.reset()                               # each case: poison everything
    region = image.claim("destination", start, count, dtype)
    image.expect(region, reference)             # from exchange(...), all_reduce, ...
    difference = image.difference()             # None, or the first wrong element of the whole heap

Everything compares bits, but for sums that an operation may round, of which ``sum_error`` says by how much. A
``Difference`` here is plain data: what, rank, index, got, wanted.
"""

from harness.oracles.differences import difference, first_difference
from harness.oracles.heap import GUARD, HeapImage, Region
from harness.oracles.linearise import AtomicHistory, explain, inputs_of
from harness.oracles.reference import bool_all, broadcast, exchange, gathered, meet, reduced, scattered, swapped
from harness.oracles.rounding import sum_error

__all__ = [
    "GUARD", "AtomicHistory", "HeapImage", "Region", "bool_all", "broadcast", "difference", "exchange", "explain",
    "first_difference", "gathered", "inputs_of", "meet", "reduced", "scattered", "sum_error", "swapped",
]  # fmt: skip
