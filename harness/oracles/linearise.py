"""Linearisation of atomics: check that some order of the operations explains the old values that they returned.

Terms: a *state* is a value that a cell holds at some time; an operation *moves* its cell if its result differs from the
old value that it returned, else it *stays*. Inputs must be chosen so that no state of a cell occurs twice and every sum
is exact. Then an order exists if and only if the moves of each cell form one path from its initial value to its final
value that uses every move once, and each stay returned a state of that path. All cells are checked at once.

Values are kept in a wide dtype (int64, or float64, which holds every narrower value exactly).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.oracles.differences import difference


@dataclass(frozen=True)
class AtomicHistory:
    """The operations on one rank's cells: arrays of equal length, one entry per operation; ``place`` names it."""

    cell: NDArray[Any]
    value: NDArray[Any]
    compare: NDArray[Any]
    old: NDArray[Any]
    actor: NDArray[Any]
    lane: NDArray[Any]


def explain(
    op: str, dtype: str, initial: NDArray[Any], final: NDArray[Any], history: AtomicHistory, *, rank: int
) -> dict[str, Any] | None:
    """Return None if some order of ``history`` explains all old and final values; else the first value that does not
    fit.

    ``initial`` and ``final`` are the cells of ``rank`` as wide values. Cells that no operation names must not change.
    """
    result = _result(op, dtype, history)
    count, cells = len(history.cell), len(initial)
    # Number the states: equal values in the same cell have the same number.
    values = np.concatenate([initial, final, history.old, result])
    owner = np.concatenate([np.arange(cells), np.arange(cells), history.cell, history.cell])
    number = np.unique(values.view(np.int64), return_inverse=True)[1]
    state = np.unique(owner * len(values) + number, return_inverse=True)[1]
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
    for _ in range(count.bit_length()):
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
    """Return a difference for the cell's first operation to which no other one leads, or for the cell's final value."""
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
