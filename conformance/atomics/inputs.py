"""Operands of an atomic case and the final cells that follow from them, chosen for ``harness.oracles.explain``.

No cell has the same value twice, and every sum is exact. Values are kept in a wide dtype: int64, or float64 for
floating-point types, which holds every narrower value exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from conformance.atomics.cases import AtomicCase
from conformance.support.masks import kept_lanes
from harness.cases import of_name, size_of

RUNS = (33, 49, 57, 61, 63, 64)
"""Of 64 lanes in some order, the first one after those that use cell 0, 1, ... in a case with ``runs``."""


@dataclass(frozen=True)
class Inputs:
    """The operations of one actor on one target: per lane its cell, value, compare value (cas only), and True in
    ``acts`` if the mask keeps it."""

    cell: NDArray[Any]
    value: NDArray[Any]
    compare: NDArray[Any]
    acts: NDArray[Any]


def initial_values(case: AtomicCase, owner: int) -> NDArray[Any]:
    """Return the initial values of ``owner``'s cells, as wide values."""
    cells = np.arange(case.cells, dtype=np.int64)
    low, high = _limits(case.dtype)
    if case.op == "and":
        return np.full(case.cells, -1, dtype=np.int64)
    if case.op == "or":
        return np.zeros(case.cells, dtype=np.int64)
    if case.op == "xor":
        return (cells * 0x01010101 + owner) & 0x7FFFFFFF
    if case.op == "min":
        return _wide(case.dtype, np.full(case.cells, high - 1 if case.high else 3000) - cells % 7)
    if case.op == "max":
        return _wide(case.dtype, np.full(case.cells, low + 1 if case.high else -3000) + cells % 7)
    if case.op in ("xchg", "cas"):
        return _wide(case.dtype, -1 - cells - owner * 1000)
    if case.high:
        return _wide(case.dtype, (high - 5 if case.op == "add" else low + 5) - cells % 3)
    return _wide(case.dtype, (cells + owner) % 8)


def inputs_of(case: AtomicCase, actor: int, target: int) -> Inputs:
    """Return the operations of ``actor`` on ``target``'s cells. Every rank can compute them for any two ranks."""
    lane = np.arange(case.n, dtype=np.int64)
    cell = np.searchsorted(RUNS, 37 * lane % 64, side="right") if case.runs else lane % case.cells
    actors = [rank for rank, peers in enumerate(case.targets) if target in peers]
    index = actors.index(actor)
    depth = -(-case.n // case.cells)
    ordinal = index * depth + lane // case.cells
    code = index * case.n + lane
    compare = np.zeros(case.n, dtype=np.int64)
    if case.op in ("and", "or", "xor"):
        bits = 8 * size_of(case.dtype)
        bit = bits - 1 - ordinal if case.high else ordinal
        value = np.left_shift(np.int64(1), bit)
        value = ~value if case.op == "and" else value
        value = value.astype(np.int32).astype(np.int64) if case.dtype == "int32" else value
    elif case.op in ("min", "max"):
        value = (code * 617 + target * 31) % 4001 - 2000
    elif case.op in ("xchg", "cas"):
        value = 1000 + code
        previous = np.where(
            (ordinal % 4 == 3) & (lane >= case.cells),
            value - case.cells,
            initial_values(case, target)[cell].astype(np.int64),
        )
        compare = np.where(ordinal % 4 == 2, -999_999, previous) if case.op == "cas" else compare
    elif case.dtype in ("fp16", "bf16", "fp32", "fp64"):
        value = 1 + (code + actor) % 3
    else:
        value = 3 + 2 * (code % 1000)
    acts = kept_lanes(case.mask, case.n, actor)
    return Inputs(cell, _wide(case.dtype, value), _wide(case.dtype, compare), acts)


def contribution(case: AtomicCase, actor: int, ranks: int) -> torch.Tensor:
    """Return a table (ranks, cells) in the dtype under test: the combined operands of ``actor`` for each target's
    cells."""
    wide = np.float64 if case.dtype in ("fp16", "bf16", "fp32", "fp64") else np.int64
    low, high = _limits(case.dtype)
    identity = {"and": -1, "min": high, "max": low}.get(case.op, 0)
    table = np.full((ranks, case.cells), identity, dtype=wide)
    ufunc = {
        "add": np.add,
        "sub": np.add,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
        "min": np.minimum,
        "max": np.maximum,
    }[case.op]
    for target in case.targets[actor]:
        mine = inputs_of(case, actor, target)
        values = -mine.value if case.op == "sub" else mine.value
        ufunc.at(table[target], mine.cell[mine.acts], values[mine.acts])
    return torch.from_numpy(table).to(of_name(case.dtype))


def final_values(case: AtomicCase, owner: int, combined: torch.Tensor) -> torch.Tensor:
    """Return ``owner``'s final cells in the dtype under test.

    ``combined`` is the owner's row of the all_reduce of all contributions.
    """
    start = torch.from_numpy(initial_values(case, owner)).to(of_name(case.dtype))
    if case.op in ("add", "sub"):
        return start + combined
    if case.op in ("and", "or", "xor"):
        return {"and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor}[case.op](start, combined)
    return (torch.minimum if case.op == "min" else torch.maximum)(start, combined)


def _wide(dtype: str, values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.float64) if dtype in ("fp16", "bf16", "fp32", "fp64") else values.astype(np.int64)


def _limits(dtype: str) -> tuple[int, int]:
    """Return the range of values: the whole range of an integer type, exact integers for a floating-point type."""
    if dtype.startswith("int"):
        info = torch.iinfo(of_name(dtype))
        return info.min, info.max
    return -4096, 4096
