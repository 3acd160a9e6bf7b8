"""Hypothesis strategies for transfers. They shrink towards one element, rank 0 to rank 1, no mask pattern.

A compile costs as much as ten cases. So the values that select a compiled kernel (block shape, mask form, modifiers,
alignment) are drawn from small sets; counts, offsets, ranks and mask patterns are run-time values and drawn freely.
"""

from __future__ import annotations

from hypothesis import strategies as st

from conformance.rma.cases import REGION, TransferCase
from conformance.support.masks import LANES, MASKS
from harness.cases import size_of, vector_of
from harness.cases.strategies import counts, rank_patterns

SHAPES = ((1, 1), (0, 4), (2, 2))
"""(elements per thread, wavefronts) of the blocks; 0 elements stand for 16 bytes per thread."""


@st.composite
def transfers(
    draw: st.DrawFn,
    ranks: int,
    dtype: str,
    *,
    other: bool = False,
    volatile: bool = False,
    direction: bool = False,
    form: str = "gluon",
) -> TransferCase:
    """Draw a case of put, store, get, load or copy in one ``form``.

    ``other`` and ``volatile`` are True if the op has an argument of that name, ``direction`` if it is a copy.
    """
    targets = draw(rank_patterns(ranks))
    spt, warps = draw(st.sampled_from(SHAPES))
    mask = draw(st.sampled_from(["range", "none", *MASKS[2:]]))
    aligned = draw(st.booleans()) or mask == "none"
    block = (spt or vector_of(dtype)) * LANES * warps
    limit = min(5 * block, REGION // size_of(dtype) - block - 64)
    n = draw(counts(block, limit, 16 if aligned else 1))
    if mask == "none":
        n = block * min(max(1, limit // block), max(1, -(-n // block)))
    step = vector_of(dtype) if aligned else 1
    return TransferCase(
        dtype=dtype,
        n=n,
        targets=targets,
        spt=spt,
        warps=warps,
        mask=mask,
        other=other and draw(st.booleans()) and mask != "none",
        src_offset=step * draw(st.integers(0, 64 // step)),
        dst_offset=step * draw(st.integers(0, 64 // step)),
        aligned=aligned,
        volatile=volatile and draw(st.sampled_from([False, False, False, True])),
        direction=draw(st.sampled_from(["to", "from"])) if direction else "to",
        retyped=direction and draw(st.sampled_from([False, False, True])),
        form=form,
        hinted=form != "gluon" and aligned and draw(st.booleans()),
    )
