"""Hypothesis strategies for atomics. They shrink towards one operation, rank 0 on rank 1.

What selects a compiled kernel is a row of a covering array for all ops, element types and forms. Counts, cells,
ranks, masks, offsets and values are drawn freely, many times for each row.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from conformance.atomics.cases import AtomicCase
from conformance.atomics.inputs import RUNS
from conformance.atomics.operations import ATOMICS, SCOPES, SEMS
from conformance.support.forms import FORMS, neighbours
from conformance.support.masks import LANES
from harness.cases.covering import covering
from harness.cases.strategies import counts, only, rank_patterns

SHAPES = ((0, 1), (1, 1), (1, 4), (2, 4))
"""(elements per thread, wavefronts) of the blocks; 0 elements stand for the scalar form."""

Row = Mapping[str, Any]
_SAFE_SUM = {"fp16": 2048, "bf16": 256}
_WITH_RUNS = ("add", "sub", "min", "max")
_ONE_BIT = {"int32": 31, "int64": 63}


def contributions_per_cell(op: str, dtype: str) -> int:
    """Return the maximum of operations on one cell for which every intermediate value is exact and identifies the
    operations before it."""
    if op in ("and", "or", "xor"):
        return _ONE_BIT[dtype]
    if op in ("add", "sub"):
        return _SAFE_SUM.get(dtype, 4096) // 4
    return 4096


def with_one_actor(targets: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """Return the targets of each rank, where each rank is the target of one rank only: the nearest after it.

    Atomics of several GPUs on one cell are atomic at system scope only. Example: ((0, 1), (0, 1)) gives ((1,), (0,)).
    """
    ranks = len(targets)
    chosen = {
        peer: min(actors, key=lambda rank: (rank - peer - 1) % ranks)
        for peer in range(ranks)
        if (actors := [rank for rank in range(ranks) if peer in targets[rank]])
    }
    return tuple(tuple(peer for peer in peers if chosen[peer] == rank) for rank, peers in enumerate(targets))


@functools.cache
def kernels(ranks: int) -> tuple[Row, ...]:
    """Return the compiled values of all atomics in all forms: every pair of them occurs.

    Each op has in each form every element type of the form, every shape, sem and scope, and an order of which neither
    part is the default: a form that drops an argument of one op is found. ``actor`` is the only rank that acts: a
    kernel with ``DeviceContext`` is compiled for one rank. None is any ranks. Triton 3.6 cannot compile a
    compare-and-swap of several elements per thread. Each op has in each form a block of integers whose old values are
    unused: Triton combines such lanes of one cell.
    """

    def valid(row: Row) -> bool:
        op = ATOMICS[row["op"]]
        several = row["shape"][0] > 1
        return (
            row["dtype"] in _dtypes(op.name, row["form"])
            and several <= op.masked
            and row["explicit"] == _explicit(row)
            and row["combined"] == _combined(row)
        )

    parameters = {
        "op": tuple(ATOMICS), "form": FORMS, "dtype": tuple(dict.fromkeys(name for op in ATOMICS.values() for name in
        op.dtypes)), "shape": SHAPES, "sem": SEMS, "scope": SCOPES, "returned": (True, False),
        "explicit": (False, True), "combined": (False, True),
    }  # fmt: skip
    also = [("form", "op", other) for other in ("dtype", "shape", "sem", "scope", "explicit", "combined")]
    numbers = {op: itertools.count(number) for number, op in enumerate(ATOMICS)}
    return tuple(
        {**row, "actor": next(numbers[row["op"]]) % ranks if row["form"] == "context" else None}
        for row in covering(parameters, also=also, valid=valid)
    )


def _explicit(row: Row) -> bool:
    """Return whether the compiled order differs if sem or scope is dropped: None is acq_rel at gpu scope."""
    return row["sem"] not in (None, "acq_rel") and row["scope"] == "sys"


def _combined(row: Row) -> bool:
    """Return whether the compiler may combine the lanes of one cell."""
    return row["dtype"].startswith("int") and row["shape"][0] > 0 and not row["returned"]


def _dtypes(op: str, form: str) -> tuple[str, ...]:
    return ATOMICS[op].dtypes if form == "gluon" else ATOMICS[op].some


def fixed(ranks: int, op: str, form: str) -> list[AtomicCase]:
    """Return a case for each kernel of one atomic in one form: each lane of one block has a cell of the next rank."""
    cases = []
    for row in kernels(ranks):
        if (row["op"], row["form"]) == (op, form):
            spt, warps = row["shape"]
            n = max(1, spt * LANES * warps)
            given = {name: row[name] for name in ("op", "dtype", "returned", "sem", "scope", "form")}
            targets = neighbours(ranks, form, row["actor"] or 0)
            cases.append(AtomicCase(**given, n=n, cells=n, targets=targets, spt=spt, warps=warps))
    return cases


def atomics(ranks: int, op: str, dtype: str, form: str = "gluon") -> list[st.SearchStrategy[AtomicCase]]:
    """Return a strategy for each kernel of one atomic with one element type in one form."""
    rows = [row for row in kernels(ranks) if (row["op"], row["dtype"], row["form"]) == (op, dtype, form)]
    return [_of_kernel(ranks, row) for row in rows]


@st.composite
def _of_kernel(draw: st.DrawFn, ranks: int, row: Row) -> AtomicCase:
    """Draw a case that runs the kernel of ``row``. No cell gets more than ``contributions_per_cell`` operations."""
    op, dtype, (spt, warps), scope = row["op"], row["dtype"], row["shape"], row["scope"]
    targets = draw(rank_patterns(ranks))
    targets = targets if row["actor"] is None else only(targets, row["actor"])
    targets = targets if scope == "sys" else with_one_actor(targets)
    mask = draw(st.sampled_from(["range", "holes", "even", "all_false"]))
    mask = mask if spt and ATOMICS[op].masked else "range"
    block = max(1, spt * LANES * warps)
    n = draw(counts(block, 2 * block))
    if not ATOMICS[op].masked and spt:
        n = block * max(1, n // block)  # without a mask, only whole blocks are possible
    elif not spt:
        n = 1 + n % 6
    actors = max((sum(peer in peers for peers in targets) for peer in range(ranks)), default=1)
    fewest = -(-n // max(1, contributions_per_cell(op, dtype) // max(1, actors)))
    cells = max(fewest, draw(st.sampled_from([1, 2, 3, 7, 64, max(1, n)])))
    runs = row["combined"] and op in _WITH_RUNS and draw(st.sampled_from([True, True, True, False]))
    if runs:
        n, cells, mask = max(n, block), len(RUNS), "range"
    return AtomicCase(
        op=op,
        dtype=dtype,
        n=n,
        cells=cells,
        targets=targets,
        spt=spt,
        warps=warps,
        mask=mask,
        returned=row["returned"],
        sem=row["sem"],
        scope=scope,
        offset=draw(st.integers(0, 32)),
        high=draw(st.booleans()) if dtype.startswith("int") else False,
        form=row["form"],
        runs=runs,
    )
