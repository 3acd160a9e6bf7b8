"""The history oracle accepts every order of atomics, and rejects each planted fault."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.atomics.cases import AtomicCase
from conformance.atomics.inputs import contribution, final_values, initial_values, inputs_of
from conformance.atomics.operations import ATOMICS
from conformance.atomics.strategies import atomics
from harness.cases import of_name
from harness.oracles import AtomicHistory, explain

RANKS = 4
DTYPES = {
    "add": ("int32", "int64", "fp32", "fp64", "fp16", "bf16"),
    "sub": ("int32", "int64", "fp32", "fp64", "fp16", "bf16"),
    "xchg": ("int32", "int64", "fp32", "fp64"), "xor": ("int32", "int64"),
    "and": ("int32", "int64"), "or": ("int32", "int64"),
    "min": ("int32", "int64", "fp32", "fp64"), "max": ("int32", "int64", "fp32", "fp64"), "cas": ("int32", "int64"),
}  # fmt: skip


def perform(case: AtomicCase, owner: int, order: np.random.Generator) -> tuple[np.ndarray, np.ndarray, AtomicHistory]:
    """Run all operations on ``owner``'s cells one after the other, in torch scalars of the dtype under test."""
    parts = []
    for actor in (rank for rank, targets in enumerate(case.targets) if owner in targets):
        mine = inputs_of(case, actor, owner)
        lanes = np.flatnonzero(mine.acts)
        parts.append((mine.cell[lanes], mine.value[lanes], mine.compare[lanes], np.full(len(lanes), actor), lanes))
    start = initial_values(case, owner)
    if not parts:
        none, blank = np.zeros(0, dtype=np.int64), start[:0]
        return start, start.copy(), AtomicHistory(none, blank, blank, blank, none, none)
    cell, value, compare, actor, lane = (np.concatenate(column) for column in zip(*parts, strict=True))
    dtype = of_name(case.dtype)
    cells = torch.from_numpy(start.copy()).to(dtype)
    values, compares = torch.from_numpy(value).to(dtype), torch.from_numpy(compare).to(dtype)
    olds = torch.zeros(len(cell), dtype=dtype)
    for i in order.permutation(len(cell)):
        c = int(cell[i])
        olds[i] = cells[c]
        cells[c] = _step(case.op, cells[c], values[i], compares[i])
    wide = torch.float64 if value.dtype == np.float64 else torch.int64
    return start, cells.to(wide).numpy(), AtomicHistory(cell, value, compare, olds.to(wide).numpy(), actor, lane)


def _step(op: str, old: torch.Tensor, value: torch.Tensor, compare: torch.Tensor) -> torch.Tensor:
    return {
        "add": lambda: old + value, "sub": lambda: old - value, "xchg": lambda: value, "xor": lambda: old ^ value,
        "and": lambda: old & value,
        "or": lambda: old | value, "min": lambda: torch.minimum(old, value), "max": lambda: torch.maximum(old, value),
        "cas": lambda: value if old == compare else old,
    }[op]()  # fmt: skip


@pytest.mark.parametrize(("op", "dtype"), [(op, dtype) for op, dtypes in DTYPES.items() for dtype in dtypes])
def test_every_order_is_accepted(op: str, dtype: str) -> None:
    @settings(max_examples=12, deadline=None, database=None, derandomize=True)
    @given(st.one_of(atomics(RANKS, op, dtype)), st.integers(0, 2**32))
    def accepted(case: AtomicCase, order: int) -> None:
        for owner in range(RANKS):
            start, final, history = perform(case, owner, np.random.default_rng(order))
            difference = explain(op, dtype, start, final, history, rank=owner)
            assert difference is None, f"{case}: {difference}"
            if ATOMICS[op].reduction:
                combine = {"sum": torch.add, "min": torch.minimum, "max": torch.maximum, "band": torch.bitwise_and,
                           "bor": torch.bitwise_or, "bxor": torch.bitwise_xor}[ATOMICS[op].reduction]  # fmt: skip
                table = contribution(case, 0, RANKS)
                for actor in range(1, RANKS):
                    table = combine(table, contribution(case, actor, RANKS))
                wanted = final_values(case, owner, table[owner])
                got = torch.from_numpy(final).to(of_name(dtype))
                assert torch.equal(got, wanted), f"{case}: the all_reduce gives {wanted}, any order gives {got}"

    accepted()


def contended(op: str, dtype: str = "int32") -> tuple[np.ndarray, np.ndarray, AtomicHistory]:
    """Four ranks, three cells, twelve operations each on rank 0."""
    case = AtomicCase(op=op, dtype=dtype, n=12, cells=3, targets=((0,),) * RANKS, spt=1)
    if op in ("and", "or", "xor"):
        case = dataclasses.replace(case, n=9)
    return perform(case, 0, np.random.default_rng(5))


@pytest.mark.parametrize("op", list(DTYPES))
def test_a_wrong_old_value_is_rejected(op: str) -> None:
    start, final, history = contended(op)
    for lane in range(len(history.old)):
        old = history.old.copy()
        old[lane] += 1_000_003
        assert explain(op, "int32", start, final, dataclasses.replace(history, old=old), rank=0), (
            f"{op}: old value of operation {lane}"
        )


@pytest.mark.parametrize("op", list(DTYPES))
def test_a_wrong_final_value_is_rejected(op: str) -> None:
    start, final, history = contended(op)
    for cell in range(3):
        wrong = final.copy()
        wrong[cell] ^= 1 << 20
        assert explain(op, "int32", start, wrong, history, rank=0), f"{op}: cell {cell}"


@pytest.mark.parametrize("op", ["add", "sub", "xchg", "xor", "and", "or"])
def test_a_lost_update_is_rejected(op: str) -> None:
    """Two operations got the same old value, as a load and a store instead of an atomic would give."""
    start, final, history = contended(op)
    first, second = np.flatnonzero(history.cell == 0)[:2]
    old = history.old.copy()
    old[second] = old[first]
    assert explain(op, "int32", start, final, dataclasses.replace(history, old=old), rank=0), op


def test_swapped_old_values_of_an_exchange_are_rejected() -> None:
    """Each value still appears once, so only the chain shows the error."""
    start, final, history = contended("xchg")
    first, second = np.flatnonzero(history.cell == 0)[:2]
    old = history.old.copy()
    old[[first, second]] = old[[second, first]]
    assert explain("xchg", "int32", start, final, dataclasses.replace(history, old=old), rank=0), (
        "a cycle next to the chain"
    )


def test_a_second_winner_is_rejected() -> None:
    start, final, history = contended("cas")
    loser = next(
        i for i in np.flatnonzero(history.cell == 0) if history.old[i] != start[0] and history.compare[i] == start[0]
    )
    old = history.old.copy()
    old[loser] = start[0]
    assert explain("cas", "int32", start, final, dataclasses.replace(history, old=old), rank=0), (
        "two operations found the initial value"
    )


@pytest.mark.parametrize(
    ("op", "other"), [("add", "sub"), ("sub", "add"), ("min", "max"), ("max", "min"), ("and", "or"), ("or", "and")]
)
def test_another_operation_is_rejected(op: str, other: str) -> None:
    case = AtomicCase(op=op, dtype="int32", n=6, cells=1, targets=((0,), (), (), ()), spt=1)
    inputs = inputs_of(case, 0, 0)
    cells = torch.from_numpy(initial_values(case, 0).copy())
    olds = []
    for value in inputs.value:
        olds.append(int(cells[0]))
        cells[0] = _step(other, cells[0], torch.tensor(int(value)), torch.tensor(0))
    history = AtomicHistory(
        inputs.cell, inputs.value, inputs.compare, np.array(olds), np.zeros(6, dtype=np.int64), np.arange(6)
    )
    assert explain(op, "int32", initial_values(case, 0), cells.numpy(), history, rank=0), f"{other} instead of {op}"


def test_a_cell_that_nobody_named_must_not_change() -> None:
    start, final, history = contended("add")
    start, final = np.append(start, 5), np.append(final, 6)
    assert explain("add", "int32", start, final, history, rank=0), "cell 3 changed"


def test_sums_are_exact_in_every_order() -> None:
    """Bit equality is a valid check, because no partial sum in any order is rounded."""
    for dtype in ("fp16", "bf16"):
        case = AtomicCase(op="add", dtype=dtype, n=16, cells=1, targets=((0,),) * RANKS, spt=1)
        values = np.concatenate([inputs_of(case, rank, 0).value for rank in range(RANKS)])
        total = initial_values(case, 0)[0] + values.sum()
        largest = torch.tensor(total).to(of_name(dtype))
        assert float(largest) == total and float(largest - 1) == total - 1, (
            f"{dtype}: {total} and its neighbour are exact"
        )


def added(*operations: tuple[int, int, int], start: tuple[int, ...] = (10, 50), final: tuple[int, ...]) -> dict | None:
    """Explain int32 additions (cell, value, old value) to cells of rank 3: operation i is lane 4 * i of rank i."""
    cell, value, old = (np.array(column, dtype=np.int64) for column in zip(*operations, strict=True))
    number = np.arange(len(operations))
    history = AtomicHistory(cell, value, value, old, number, 4 * number)
    return explain("add", "int32", np.array(start), np.array(final), history, rank=3)


def test_the_second_operation_with_an_old_value_is_named() -> None:
    assert added((0, 1, 10), (1, 5, 50), (0, 2, 11), final=(13, 55)) is None
    difference = added((0, 1, 10), (1, 5, 50), (0, 2, 10), final=(12, 55))
    assert difference is not None and (difference["rank"], difference["index"], difference["got"]) == (2, 8, 10)
    assert difference["what"] == "old value returned to rank 2 for cell 0 of rank 3"
    assert difference["wanted"] == "an old value that no other operation on this cell returned"
    assert difference["more"] == "its operand was 2"


def test_an_operation_that_no_other_one_leads_to_is_named() -> None:
    difference = added((0, 1, 10), (1, 5, 50), (0, 2, 12), final=(14, 55))
    assert difference is not None and (difference["rank"], difference["index"], difference["got"]) == (2, 8, 12)
    assert difference["wanted"] == "the initial value, or the result of another operation"


def test_a_wrong_final_value_is_named_with_the_chain_that_should_lead_to_it() -> None:
    difference = added((0, 1, 10), (1, 5, 50), (0, 2, 11), final=(13, 56))
    assert difference is not None and (difference["rank"], difference["index"], difference["got"]) == (3, 1, 56)
    assert difference["what"] == "cell 1 of rank 3 after 1 operations that changed it"
    assert difference["more"] == "it started at 50; old values returned: [50]"


def test_a_wrong_final_value_is_reported_with_at_most_16_old_values() -> None:
    difference = added(*((0, 1, 10 + i) for i in range(17)), final=(28, 50))
    assert difference is not None
    assert difference["more"] == f"it started at 10; old values returned: {list(range(10, 26))}"


def test_an_operation_that_changed_nothing_returned_a_value_of_its_own_cell() -> None:
    assert added((0, 1, 10), (1, 0, 50), (0, 0, 11), final=(11, 50)) is None, "the result of another operation"
    for old in (12, 50):
        difference = added((0, 1, 10), (1, 0, 50), (0, 0, old), final=(11, 50))
        assert difference is not None and (difference["rank"], difference["got"]) == (2, old)
        assert difference["wanted"] == "a value that the cell held at some time"


def test_equal_values_of_different_cells_are_different_states() -> None:
    assert added((0, 1, 10), (1, 1, 10), start=(10, 10), final=(11, 11)) is None
    assert added((0, 1, 10), (1, 1, 11), start=(10, 10), final=(11, 12)), "cell 1 never held 11"


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33])
def test_chains_of_every_length_are_followed_to_their_end(count: int) -> None:
    chain = [(0, 1, 10 + i) for i in range(count)]
    assert added(*reversed(chain), final=(10 + count, 50)) is None
    assert added(*reversed(chain), final=(9 + count, 50)), "the last addition is lost"


def test_sums_wrap_as_the_type_does() -> None:
    largest = 2**31 - 1
    assert added((0, 1, largest), (0, 1, -(2**31)), start=(largest, 0), final=(1 - 2**31, 0)) is None
    assert added((0, 1, largest), start=(largest, 0), final=(largest + 1, 0))
