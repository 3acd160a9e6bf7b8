"""Hypothesis strategies for calls through an adapter."""

from __future__ import annotations

from hypothesis import strategies as st

from conformance.calls.cases import CallCase


def calls(ranks: int, dtype: str) -> st.SearchStrategy[CallCase]:
    """Draw calls that shrink towards one call with one element."""
    return st.builds(
        CallCase,
        n=st.one_of(st.integers(1, 40), st.integers(1, 2000)),
        dtype=st.just(dtype),
        calls=st.integers(1, 3),
        distance=st.integers(1, max(ranks - 1, 1)),
        late=st.integers(0, ranks - 1),
        data=st.integers(0, 1000),
    )


def signals(ranks: int) -> st.SearchStrategy[CallCase]:
    """Draw messages of which one rank's come last: a wait that does not wait then reads too early."""
    return st.builds(
        CallCase,
        n=st.integers(1, 40),
        dtype=st.just("int32"),
        calls=st.integers(2, 3),
        distance=st.integers(1, max(ranks - 1, 1)),
        late=st.integers(0, ranks - 1),
        data=st.integers(0, 1000),
    )
