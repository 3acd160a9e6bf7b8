"""Hypothesis strategies for transfers. They shrink towards one element, rank 0 to rank 1, no mask pattern.

A compile costs as much as many cases. So the values that select a compiled kernel (block shape, mask form, alignment,
and the rank of a ``DeviceContext``) are rows of a covering array for all ops and element types of a form; counts,
offsets, ranks and mask patterns are run-time values and drawn freely, many times for each row.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from conformance.rma.cases import REGION, TransferCase
from conformance.rma.operations import TRANSFERS, wide
from conformance.support.masks import LANES, MASKS
from harness.cases import ALL, SOME, size_of, vector_of
from harness.cases.covering import covering
from harness.cases.strategies import counts, only, rank_patterns

SHAPES = ((1, 1), (0, 1), (0, 4), (2, 2))
"""(elements per thread, wavefronts) of the blocks; 0 elements stand for 16 bytes per thread."""

Row = Mapping[str, Any]


@functools.cache
def kernels(form: str, ranks: int) -> tuple[Row, ...]:
    """Return the compiled values of all transfers in one form: every pair occurs, each op and element type is aligned
    and not, and in Gluon each op has every shape with every form of mask.

    The kernels of ``wide`` are among them, since ISA-WIDTH needs them anyway. ``actor`` is the only rank that acts: a
    kernel with ``DeviceContext`` is compiled for one rank. None is any ranks.
    """

    def valid(row: Row) -> bool:
        op = TRANSFERS[row["op"]]
        if (row["other"] and not op.other) or (row["volatile"] and not op.volatile):
            return False
        if row["retyped"] and not op.two_ranks:
            return False
        if row["mask"] == "none" and (row["other"] or not row["aligned"]):
            return False
        return row["aligned"] or not row["hinted"]

    either, gluon = (False, True), form == "gluon"
    actors = range(ranks) if form == "context" else (None,)
    plain = {"shape": (0, 1), "aligned": True, "other": False, "volatile": False, "retyped": False}
    known = [
        {**plain, **row, "op": op, "actor": actors[number % len(actors)]}
        for op in TRANSFERS
        for number, row in enumerate(wide(op, form))
    ]
    known = list({str(row): row for row in known}.values())  # two directions of a copy are one kernel
    parameters = {
        "op": tuple(TRANSFERS), "dtype": ALL if gluon else SOME, "shape": SHAPES, "mask": ("range", "none", "pattern"),
        "aligned": either, "other": either, "volatile": either, "retyped": either,
        "hinted": (False,) if gluon else either, "actor": actors,
    }  # fmt: skip
    also = [("op", "dtype", "aligned"), ("op", "shape", "mask")][: 1 + gluon]
    return (*known, *covering(parameters, also=also, having=known, valid=valid))


def transfers(ranks: int, op: str, dtype: str, form: str = "gluon") -> list[st.SearchStrategy[TransferCase]]:
    """Return a strategy for each kernel of put, store, get, load or copy with one element type in one form."""
    rows = [row for row in kernels(form, ranks) if (row["op"], row["dtype"]) == (op, dtype)]
    return [_of_kernel(ranks, row, form) for row in rows]


@st.composite
def _of_kernel(draw: st.DrawFn, ranks: int, row: Row, form: str) -> TransferCase:
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
        form=form,
        hinted=row["hinted"],
    )
