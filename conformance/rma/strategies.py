"""Hypothesis strategies for transfers. They shrink towards one element, rank 0 to rank 1, no mask pattern.

A compile costs as much as many cases. So the values that select a compiled kernel (block shape, mask form, alignment,
and the rank of a ``DeviceContext``) are rows of a covering array for all ops, element types and forms; counts,
offsets, ranks and mask patterns are run-time values and drawn freely, many times for each row.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from conformance.rma.cases import REGION, TransferCase
from conformance.rma.operations import TRANSFERS, wide
from conformance.support.forms import FORMS
from conformance.support.masks import LANES, MASKS
from harness.cases import ALL, SOME, size_of, vector_of
from harness.cases.covering import covering
from harness.cases.strategies import counts, only, rank_patterns

SHAPES = ((1, 1), (0, 1), (0, 4), (2, 2))
"""(elements per thread, wavefronts) of the blocks; 0 elements stand for 16 bytes per thread."""

Row = Mapping[str, Any]


@functools.cache
def kernels(ranks: int) -> tuple[Row, ...]:
    """Return the compiled values of all transfers in all forms: every pair occurs.

    Each op has in each form every element type, shape and mask, is aligned and not, and has and lacks each option; each
    op has every shape with every form of mask, and each form every element type aligned and not. The kernels of
    ``wide`` are among the rows, since ISA-WIDTH needs them anyway. ``actor`` is the only rank that acts: a kernel with
    ``DeviceContext`` is compiled for one rank. None is any ranks.
    """

    def valid(row: Row) -> bool:
        op, gluon = TRANSFERS[row["op"]], row["form"] == "gluon"
        if (row["other"] and not op.other) or (row["volatile"] and not op.volatile):
            return False
        if row["retyped"] and not op.two_ranks:
            return False
        if row["mask"] == "none" and (row["other"] or not row["aligned"]):
            return False
        if row["hinted"] and (gluon or not row["aligned"]):
            return False
        return gluon or row["dtype"] in SOME

    plain = {"shape": (0, 1), "aligned": True, "other": False, "volatile": False, "retyped": False}
    known = [
        {**plain, **row, "op": op, "form": form, "actor": number % ranks if form == "context" else None}
        for form in FORMS
        for op in TRANSFERS
        for number, row in enumerate(wide(op, form))
    ]
    known = list({str(row): row for row in known}.values())  # two directions of a copy are one kernel
    either = (False, True)
    parameters = {
        "op": tuple(TRANSFERS), "form": FORMS, "dtype": ALL, "shape": SHAPES, "mask": ("range", "none", "pattern"),
        "aligned": either, "other": either, "volatile": either, "retyped": either, "hinted": either,
    }  # fmt: skip
    options = ("dtype", "shape", "mask", "aligned", "other", "volatile", "retyped", "hinted")
    also = [*(("form", "op", other) for other in options), ("op", "shape", "mask"), ("form", "dtype", "aligned")]
    numbers = {op: itertools.count(len(wide(op, "context"))) for op in TRANSFERS}
    others = [
        {**row, "actor": next(numbers[row["op"]]) % ranks if row["form"] == "context" else None}
        for row in covering(parameters, also=also, having=known, valid=valid)
    ]
    return (*known, *others)


def transfers(ranks: int, op: str, dtype: str, form: str = "gluon") -> list[st.SearchStrategy[TransferCase]]:
    """Return a strategy for each kernel of put, store, get, load or copy with one element type in one form."""
    rows = [row for row in kernels(ranks) if (row["op"], row["dtype"], row["form"]) == (op, dtype, form)]
    return [_of_kernel(ranks, row) for row in rows]


@st.composite
def _of_kernel(draw: st.DrawFn, ranks: int, row: Row) -> TransferCase:
    """Draw a case that runs the kernel of ``row``."""
    targets = draw(rank_patterns(ranks))
    targets = targets if row["actor"] is None else only(targets, row["actor"])
    dtype, (spt, warps), mask, aligned = row["dtype"], row["shape"], row["mask"], row["aligned"]
    pattern = draw(st.sampled_from(MASKS[2:]))
    mask = pattern if mask == "pattern" else mask
    block = (spt or vector_of(dtype)) * LANES * warps
    limit = min(5 * block, REGION // size_of(dtype) - block - 64)
    n = draw(counts(block, limit, 16 if aligned else 1))
    if mask == "none":
        n = block * min(max(1, limit // block), max(1, -(-n // block)))
    step = vector_of(dtype) if aligned else 1
    two_ranks = TRANSFERS[row["op"]].two_ranks
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
        direction=draw(st.sampled_from(["to", "from"])) if two_ranks else "to",
        retyped=row["retyped"],
        form=row["form"],
        hinted=row["hinted"],
    )
