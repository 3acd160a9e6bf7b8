"""Whether the old values that atomics returned can be explained by some order of the operations.

Legend: a *state* is a value that a cell holds at some time; an operation *moves* its cell when its result differs
from the old value it returned, else it *stays*. Inputs (``inputs_of``) are made so that no state of a cell occurs
twice and every sum is exact. Then an order exists if and only if the moves of each cell form one path from its
initial value to its final value that uses every move once, and each stay returned a state of that path. All cells
are checked at once.

Values are kept in a wide dtype of their own (int64, or float64, which holds every narrower value exactly).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from harness.cases.atomic import AtomicCase
from harness.cases.dtypes import of_name, size_of
from harness.cases.transfer import kept_lanes
from harness.oracles.differences import difference

REDUCTIONS = {"add": "sum", "sub": "sum", "and": "band", "or": "bor", "xor": "bxor", "min": "min", "max": "max"}
"""The all_reduce that gives an op's final value; exchanges have none, only the chain of old values."""


@dataclass(frozen=True)
class Inputs:
    """What one actor does to one target: per lane its cell, value, compare value (cas only), and whether it acts."""

    cell: NDArray[Any]
    value: NDArray[Any]
    compare: NDArray[Any]
    acts: NDArray[Any]


@dataclass(frozen=True)
class AtomicHistory:
    """The operations on one rank's cells: arrays of equal length, one entry per operation; ``place`` names it."""

    cell: NDArray[Any]
    value: NDArray[Any]
    compare: NDArray[Any]
    old: NDArray[Any]
    actor: NDArray[Any]
    lane: NDArray[Any]


def initial_values(case: AtomicCase, owner: int) -> NDArray[Any]:
    """What ``owner``'s cells hold before the case, as wide values."""
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
    """The operations of ``actor`` on ``target``'s cells; every rank can compute every other rank's."""
    lane = np.arange(case.n, dtype=np.int64)
    cell = lane % case.cells
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
    """(ranks, cells) in the dtype under test: what ``actor`` alone adds to, or combines with, each target's cells."""
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
    """``owner``'s cells after the case, from the all_reduce of all contributions (its row), in the dtype under test."""
    start = torch.from_numpy(initial_values(case, owner)).to(of_name(case.dtype))
    if case.op in ("add", "sub"):
        return start + combined
    if case.op in ("and", "or", "xor"):
        return {"and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor}[case.op](start, combined)
    return (torch.minimum if case.op == "min" else torch.maximum)(start, combined)


def explain(
    op: str, dtype: str, initial: NDArray[Any], final: NDArray[Any], history: AtomicHistory, *, rank: int
) -> dict[str, Any] | None:
    """None when an order of ``history`` explains all old values and the final ones; else the first that does not fit.

    ``initial`` and ``final`` are the cells of ``rank`` as wide values. Cells that no operation names must not change.
    """
    result = _result(op, dtype, history)
    count, cells = len(history.cell), len(initial)
    # States get numbers: equal value in the same cell, same number.
    values = np.concatenate([initial, final, history.old, result])
    owner = np.concatenate([np.arange(cells), np.arange(cells), history.cell, history.cell])
    number = np.unique(values.view(np.int64), return_inverse=True)[1].reshape(-1)
    state = np.unique(owner * (len(values) + 1) + number, return_inverse=True)[1].reshape(-1)
    start, end = state[:cells], state[cells : 2 * cells]
    before, after = state[2 * cells : 2 * cells + count], state[2 * cells + count :]
    moves = before != after

    leaving = np.bincount(before[moves], minlength=len(values))
    if (leaving > 1).any():
        twice = np.flatnonzero(moves & (leaving[before] > 1))
        return _wrong(history, int(twice[1]), rank, "an old value that no other operation on this cell returned")
    step = np.arange(len(values))
    step[before[moves]] = after[moves]
    length = (step != np.arange(len(values))).astype(np.int64)
    for _ in range(max(1, count).bit_length()):
        length = length + length[step]
        step = step[step]
    wanted = np.bincount(history.cell[moves], minlength=cells)
    broken = np.flatnonzero((step[start] != end) | (length[start] != wanted))
    if len(broken):
        return _broken_chain(history, int(broken[0]), moves, before, after, start, initial, final, rank)
    known = np.zeros(len(values), dtype=bool)
    known[start] = known[after[moves]] = True
    strange = np.flatnonzero(~moves & ~known[before])
    if len(strange):
        return _wrong(history, int(strange[0]), rank, "a value that the cell held at some time")
    return None


def _broken_chain(
    history: AtomicHistory, cell: int, moves: NDArray[Any], before: NDArray[Any], after: NDArray[Any],
    start: NDArray[Any], initial: NDArray[Any], final: NDArray[Any], rank: int,
) -> dict[str, Any]:  # fmt: skip
    """Name the first operation of the cell that no other one leads to, or the cell's final value."""
    mine = np.flatnonzero((history.cell == cell) & moves)
    reached = {int(start[cell]), *(int(after[i]) for i in mine)}
    for i in mine:
        if int(before[i]) not in reached:
            return _wrong(history, int(i), rank, "the initial value, or the result of another operation")
    return difference(
        f"cell {cell} of rank {rank} after {len(mine)} operations that changed it",
        rank=rank,
        index=cell,
        got=final[cell],
        wanted="the end of one chain of all old values",
        more=f"it started at {initial[cell]}; old values returned: {sorted(history.old[mine].tolist())[:16]}",
    )


def _wrong(history: AtomicHistory, i: int, rank: int, wanted: str) -> dict[str, Any]:
    return difference(
        f"old value returned to rank {history.actor[i]} for cell {history.cell[i]} of rank {rank}",
        rank=int(history.actor[i]),
        index=int(history.lane[i]),
        got=history.old[i],
        wanted=wanted,
        more=f"its operand was {history.value[i]}",
    )


def _result(op: str, dtype: str, history: AtomicHistory) -> NDArray[Any]:
    old, value = history.old, history.value
    if op == "xchg":
        return value
    if op == "cas":
        return np.where(old == history.compare, value, old)
    if op in ("min", "max"):
        return np.asarray(np.minimum(old, value) if op == "min" else np.maximum(old, value))
    if op in ("and", "or", "xor"):
        return np.asarray({"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[op](old, value))
    with np.errstate(over="ignore"):
        result: NDArray[Any] = old + value if op == "add" else old - value
    return result.astype(np.int32).astype(np.int64) if dtype == "int32" else result


def _wide(dtype: str, values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.float64) if dtype in ("fp16", "bf16", "fp32", "fp64") else values.astype(np.int64)


def _limits(dtype: str) -> tuple[int, int]:
    """Range from which values are taken: the whole range of integers, exact integers for floats."""
    if dtype.startswith("int"):
        info = torch.iinfo(of_name(dtype))
        return info.min, info.max
    return -4096, 4096
