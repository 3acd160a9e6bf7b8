"""Hypothesis strategies for transfers. They shrink towards one element, rank 0 to rank 1, no mask pattern.

A compile costs as much as several cases. So the values that select a compiled kernel (block shape, mask form,
alignment) are drawn from the rows of a covering array for all element types; counts, offsets, ranks and mask patterns
are run-time values and drawn freely.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from conformance.rma.cases import REGION, TransferCase
from conformance.support.masks import LANES, MASKS
from harness.cases import ALL, SOME, size_of, vector_of
from harness.cases.covering import covering
from harness.cases.strategies import counts, rank_patterns

SHAPES = ((1, 1), (0, 4), (2, 2))
"""(elements per thread, wavefronts) of the blocks; 0 elements stand for 16 bytes per thread."""


@functools.cache
def kernels(gluon: bool, other: bool, volatile: bool, retyped: bool) -> tuple[Mapping[str, Any], ...]:
    """Return the compiled values of an op with these choices, for the element types of a form: every pair occurs."""

    def valid(row: Mapping[str, Any]) -> bool:
        return (row["mask"] != "none" or (row["aligned"] and not row["other"])) and (
            row["aligned"] or not row["hinted"]
        )

    parameters = {
        "dtype": ALL if gluon else SOME, "shape": SHAPES, "mask": ("range", "none", "pattern"),
        "aligned": (False, True),
        "other": (False, True) if other else (False,), "volatile": (False, True) if volatile else (False,),
        "retyped": (False, True) if retyped else (False,), "hinted": (False,) if gluon else (False, True),
    }  # fmt: skip
    return covering(parameters, valid=valid)


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
    compiled = kernels(form == "gluon", other, volatile, direction)
    row = draw(st.sampled_from([row for row in compiled if row["dtype"] == dtype]))
    (spt, warps), mask, aligned = row["shape"], row["mask"], row["aligned"]
    pattern = draw(st.sampled_from(MASKS[2:]))
    mask = pattern if mask == "pattern" else mask
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
        other=row["other"],
        src_offset=step * draw(st.integers(0, 64 // step)),
        dst_offset=step * draw(st.integers(0, 64 // step)),
        aligned=aligned,
        volatile=row["volatile"],
        direction=draw(st.sampled_from(["to", "from"])) if direction else "to",
        retyped=row["retyped"],
        form=form,
        hinted=row["hinted"],
    )
