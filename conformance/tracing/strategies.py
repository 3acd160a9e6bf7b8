"""Hypothesis strategies for traced kernels. They shrink towards one launch of one program."""

from __future__ import annotations

from hypothesis import strategies as st

from conformance.tracing.cases import TraceCase
from fixtures import judged
from harness.cases.strategies import counts

TRACED = {
    "put": ((3,), "int32", 1, 1, True, True),
    "first": (tuple(range(7)), "fp16", 4, 4, True, True),
    "last": (tuple(range(13, 6, -1)), "fp64", 1, 4, False, False),
}
"""Compiled forms of traced kernels: kinds, dtype, elements per thread, wavefronts, masked, ended. The kernels "first"
and "last" together have every kind of event."""


@st.composite
def traces(draw: st.DrawFn, ranks: int, form: str, kernel: str) -> TraceCase:
    """Draw a case of tracing; ``kernel`` is a key of ``TRACED``."""
    kinds, dtype, spt, warps, masked, ended = TRACED[kernel]
    grid = draw(st.integers(1, 6))
    launches = draw(st.integers(1, 3))
    count = grid * launches * len(kinds)
    return TraceCase(
        form=form,
        kinds=kinds,
        dtype=dtype,
        step=draw(st.integers(0, ranks - 1)),
        grid=grid,
        n=draw(counts(spt * 64 * warps, grid * spt * 64 * warps)),
        masked=masked,
        ended=ended,
        launches=launches,
        room=draw(st.sampled_from([count, count + 1, max(1, count - 1), max(1, count // 2), 1, 4096])),
        wrapped=judged.extended(),
        spt=spt,
        warps=warps,
    )
