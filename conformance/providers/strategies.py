"""Hypothesis strategies for cases of heap providers."""

from __future__ import annotations

from hypothesis import strategies as st

from conformance.providers.cases import BarrierCase, BlockCase

LONGEST = 600


def blocks(ranks: int, dtype: str) -> st.SearchStrategy[BlockCase]:
    """Draw blocks that shrink towards one element of the right neighbour, at the start of its slot."""
    return st.builds(
        BlockCase,
        n=st.one_of(st.integers(1, 80), st.integers(1, LONGEST)),
        dtype=st.just(dtype),
        offset=st.one_of(st.just(0), st.integers(0, 9)),
        distance=st.integers(1, max(ranks - 1, 1)),
        late=st.integers(0, ranks - 1),
        late_ms=st.sampled_from([0, 0, 5]),
    )


def barriers(ranks: int) -> st.SearchStrategy[BarrierCase]:
    """Draw barriers with any rank late; they shrink towards rank 0 and one barrier."""
    return st.builds(BarrierCase, late=st.integers(0, ranks - 1), rounds=st.integers(1, 2))
