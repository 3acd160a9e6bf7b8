"""Hypothesis strategies for message passing. They shrink towards one message of one block."""

from __future__ import annotations

from hypothesis import strategies as st

from conformance.ordering.cases import MessageCase


@st.composite
def messages(draw: st.DrawFn, dtype: str, shape: str, form: str = "gluon") -> MessageCase:
    """Draw a case of message passing in one ``form``."""
    spt, warps = draw(st.sampled_from([(1, 1), (1, 4), (4, 4)]))
    late = draw(st.sampled_from(["nobody", "producer", "consumer"]))
    return MessageCase(
        dtype=dtype,
        blocks=draw(st.integers(1, 6)),
        spt=spt,
        warps=warps,
        tail=draw(st.integers(0, 63)),
        rounds=draw(st.integers(1, 3)),
        flag=draw(st.sampled_from(["cas", "xchg", "add"])),
        shape=shape,
        late=late,
        late_ms=draw(st.integers(1, 20)) if late != "nobody" else 0,
        form=form,
    )
