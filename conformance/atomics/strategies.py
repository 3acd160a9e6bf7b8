"""Hypothesis strategies for atomics. They shrink towards one operation, rank 0 on rank 1."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from conformance.atomics.cases import AtomicCase
from conformance.atomics.operations import ATOMICS
from conformance.support.masks import LANES
from harness.cases.covering import covering
from harness.cases.strategies import counts, rank_patterns

ORDERS = ((None, None), ("relaxed", "gpu"), ("acq_rel", "sys"), ("release", "sys"), ("acquire", "cta"))
_SAFE_SUM = {"fp16": 2048, "bf16": 256}
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
def kernels(op: str, dtypes: tuple[str, ...]) -> tuple[Mapping[str, Any], ...]:
    """Return the compiled values of one atomic, for these element types: every pair of them occurs.

    A shape is (elements per thread, wavefronts). Triton 3.6 cannot compile a compare-and-swap of several elements per
    thread.
    """
    shapes = ((1, 1), (0, 1), (1 if op == "cas" else 2, 4))
    parameters = {"dtype": dtypes, "shape": shapes, "order": ORDERS, "returned": (True, False)}
    return covering(parameters)


@st.composite
def atomics(draw: st.DrawFn, ranks: int, op: str, dtype: str, form: str = "gluon") -> AtomicCase:
    """Draw a case of one atomic in one ``form``. No cell gets more than ``contributions_per_cell`` operations."""
    dtypes = ATOMICS[op].dtypes if form == "gluon" else ATOMICS[op].some
    row = draw(st.sampled_from([row for row in kernels(op, dtypes) if row["dtype"] == dtype]))
    (spt, warps), (sem, scope) = row["shape"], row["order"]
    targets = draw(rank_patterns(ranks))
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
        sem=sem,
        scope=scope,
        offset=draw(st.integers(0, 32)),
        high=draw(st.booleans()) if dtype.startswith("int") else False,
        form=form,
    )
