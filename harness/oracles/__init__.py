"""Exact oracles: results of torch.distributed, comparison of the whole heap, linearisation of atomics.

    image = HeapImage(arena, rank)              # once per rank: a uint8 tensor over (almost) the whole symmetric heap
    image.reset()                               # each case: poison everything
    region = image.claim("destination", start, count, dtype)
    image.expect(region, values)                # from exchange(...), reduced(...), ...
    difference = image.difference()             # None, or the first wrong element of the whole heap

All comparisons are of bits, except for sums that an operation may round, whose error ``sum_error`` measures. A
difference is plain data here: what, rank, index, got, wanted.
"""

from harness.oracles.differences import difference, first_difference
from harness.oracles.heap import GUARD, HeapImage, Region
from harness.oracles.linearise import AtomicHistory, explain
from harness.oracles.reference import barrier, bool_all, broadcast, exchange, gathered, reduced, scattered, swapped
from harness.oracles.rounding import sum_error

__all__ = [
    "GUARD", "AtomicHistory", "HeapImage", "Region", "barrier", "bool_all", "broadcast", "difference", "exchange",
    "explain", "first_difference", "gathered", "reduced", "scattered", "sum_error", "swapped",
]  # fmt: skip
