"""Hypothesis strategies for histories of heaps. They shrink towards one allocation of one element."""

from __future__ import annotations

from hypothesis import strategies as st

from conformance.memory.cases import HeapCase

GRANULE = 64 << 10
"""Granularity in bytes of the emulated device's mappings; it divides that of GPUs."""


@st.composite
def histories(draw: st.DrawFn, allocator: str) -> HeapCase:
    """Draw a history of up to twelve steps. Sizes are small, near a whole number of granules, or near the heap's
    size."""
    heap = draw(st.sampled_from([4 * GRANULE, 3 * GRANULE + 1024]))
    near = st.builds(lambda n, d: max(n * GRANULE // 4 + d, 0), st.integers(0, 3), st.sampled_from([0, 1, -1]))
    large = st.sampled_from([heap // 8, heap // 4, heap // 4 + 1])
    sizes = st.one_of(st.integers(0, 2000), near, large)
    allocate = st.tuples(st.just("allocate"), sizes)
    free = st.tuples(st.just("free"), st.integers(0, 11))
    share = st.tuples(st.just("share"), st.integers(1, 3000))
    steps = draw(st.lists(st.one_of(allocate, allocate, free, free, share), min_size=1, max_size=12))
    return HeapCase(allocator, heap, tuple(steps))
