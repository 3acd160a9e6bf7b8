"""Cases of collectives fit the heap and vary what they should; contributions have exact reductions in any order."""

from __future__ import annotations

import functools
import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import find, given, settings

from conformance.collectives.calls import _counts, opposite
from conformance.collectives.cases import CollectiveCase
from conformance.collectives.operations import COLLECTIVES
from conformance.collectives.strategies import ACCUMULATING, accumulations, collectives, neighbour, ragged
from fixtures.worker import arena_bytes
from harness.cases import (
    ALL,
    FLOATS,
    GROUPS,
    REDUCE_OPS,
    chunks_of,
    contribution,
    from_json,
    members_of,
    of_name,
    reduce_ops,
    rough,
    to_json,
)
from harness.oracles.heap import starts

SETTINGS = settings(max_examples=60, deadline=None, database=None, derandomize=True)
FOLDS = {
    "sum": torch.add, "product": torch.mul, "min": torch.minimum, "max": torch.maximum,
    "band": torch.bitwise_and, "bor": torch.bitwise_or, "bxor": torch.bitwise_xor,
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("op", COLLECTIVES)
@pytest.mark.parametrize("ranks", [1, 4, 8, 16, 32])
def test_cases_fit_the_heap_and_survive_json(op: str, ranks: int) -> None:
    @SETTINGS
    @given(collectives(ranks, op, "fp64"))
    def fits(case: CollectiveCase) -> None:
        assert from_json(json.loads(json.dumps(to_json(case)))) == case, "the JSON form loses part of the case"
        largest = max(map(len, chunks_of(case.group, ranks)))
        sizes = [8 * count for count in _counts(case, largest)] * (1 if case.reuse else case.calls)
        assert starts(1024, [*sizes, 0])[-1] + 8 * case.shift < arena_bytes(ranks) - 1024, f"{case} needs {sizes}"

    fits()


def test_cases_vary() -> None:
    wanted = {
        "a row of nothing": lambda case: case.m == 0,
        "one element": lambda case: case.m == case.n == 1,
        "tall": lambda case: case.m > 8 and case.n == 1,
        "flat": lambda case: case.m == 1 and case.n > 128,
        "columns apart": lambda case: case.turned == "both" and case.in_pad > 0,
        "off alignment": lambda case: case.shift == 1,
        "in place": lambda case: case.in_place and case.group == "uneven",
        "the same tensors again": lambda case: case.reuse and case.skewed >= 0,
        "each reduction": lambda case: case.reduce == "bxor",
        "a share by striding": lambda case: case.distribution == 0 and not case.default,
        "another root's language": lambda case: case.gluon,
    }
    drawn: list[CollectiveCase] = []

    # Hypothesis also draws constants of the project's modules, so other draws come after any change of them: the rarest
    # kind is in one of 150 cases.
    @settings(max_examples=1000, deadline=None, database=None, derandomize=True)
    @given(collectives(4, "reduce_scatter", "int8"))
    def draw(case: CollectiveCase) -> None:
        drawn.append(case)

    draw()
    missing = [name for name, condition in wanted.items() if not any(map(condition, drawn))]
    assert not missing, f"none of {len(drawn)} cases has {missing}"


def test_the_simplest_case_is_one_call_of_one_element_among_all() -> None:
    simplest = find(collectives(4, "all_reduce", "fp16"), lambda case: True, settings=settings(database=None))
    assert simplest == CollectiveCase(op="all_reduce", dtype="fp16", variant="two_shot"), simplest


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("ranks", [1, 2, 4, 5, 8])
def test_groups_are_disjoint_and_known_to_all(group: str, ranks: int) -> None:
    chunks = chunks_of(group, ranks)
    ranks_in_one = [rank for chunk in chunks for rank in chunk]
    assert len(set(ranks_in_one)) == len(ranks_in_one), f"{chunks} share a rank"
    for rank in range(ranks):
        members = members_of(group, rank, ranks)
        assert (rank in members and members in chunks) or (members == () and rank not in ranks_in_one), (rank, members)


def test_an_uneven_group_is_neither_in_order_nor_uniformly_spaced() -> None:
    assert chunks_of("uneven", 4) == ((3, 0, 1),)
    assert chunks_of("uneven", 8) == ((6, 0, 1, 3, 4),)


@pytest.mark.parametrize(("dtype", "op"), [(dtype, op) for dtype in ALL for op in reduce_ops(dtype)])
def test_reductions_are_exact_in_any_order(dtype: str, op: str) -> None:
    """One after the other from either end, in pairs, and in float64 or with Python's integers."""
    for members in (1, 2, 3, 8):
        parts = [contribution(op, dtype, 300, member=member, members=members) for member in range(members)]
        fold = FOLDS[op]
        results = [functools.reduce(fold, parts), functools.reduce(fold, parts[::-1]), _in_pairs(fold, parts)]
        if dtype in FLOATS:
            results.append(functools.reduce(fold, [part.double() for part in parts]).to(of_name(dtype)))
            assert torch.isfinite(results[0]).all(), f"{op} of {members} overflows"
        for result in results[1:]:
            assert torch.equal(result, results[0]), f"{op} of {members} members depends on the order"
        if members > 1:
            for left_out in range(members):
                rest = functools.reduce(fold, parts[:left_out] + parts[left_out + 1 :])
                assert not torch.equal(rest, results[0]), f"{op} has the same result without member {left_out}"


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("op", ["sum", "product"])
def test_wide_reductions_show_in_which_type_they_were_computed(dtype: str, op: str) -> None:
    fold, narrow = FOLDS[op], of_name(dtype)
    for members in (1, 2, 3, 4, 8, 32):
        parts = [contribution(op, dtype, 300, member=member, members=members, wide=True) for member in range(members)]
        exact = functools.reduce(fold, [part.double() for part in parts])
        assert torch.isfinite(exact.to(narrow)).all(), f"{op} of {members} overflows"
        wide = [part.float() for part in parts]
        for result in (functools.reduce(fold, wide), functools.reduce(fold, wide[::-1]), _in_pairs(fold, wide)):
            assert torch.equal(result.double(), exact), f"{op} of {members} is not exact in float32"
        if members > 2:
            for order in (parts, parts[::-1]):
                rounded = functools.reduce(fold, order)
                assert (rounded != exact.to(narrow)).double().mean() > 0.1, f"{op} of {members} hides the type"
            for left_out in range(members):
                rest = functools.reduce(fold, wide[:left_out] + wide[left_out + 1 :])
                assert not torch.equal(rest.to(narrow), exact.to(narrow)), f"{op} without member {left_out}"


def _in_pairs(fold, parts):  # type: ignore[no-untyped-def]
    while len(parts) > 1:
        parts = [
            one if other is None else fold(one, other) for one, other in itertools.zip_longest(parts[::2], parts[1::2])
        ]
    return parts[0]


@pytest.mark.parametrize("op", REDUCE_OPS)
def test_contributions_differ_by_member_call_and_place(op: str) -> None:
    drawn = [
        contribution(op, "int64", 200, member=member, members=3, repetition=call)
        for member in range(3)
        for call in range(4)
    ]
    different = len(np.unique(torch.stack(drawn).numpy()))
    assert different >= 12 * 200 - 2, f"only {different} of 2400 values differ for {op}"  # Most bits are set in band.


@pytest.mark.parametrize("dtype", FLOATS)
def test_rough_values_depend_on_the_order(dtype: str) -> None:
    parts = [rough(dtype, 400, member=member) for member in range(4)]
    one, other = functools.reduce(torch.add, parts), functools.reduce(torch.add, parts[::-1])
    assert not torch.equal(one, other), "a sum in another order must show"


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.bfloat16, torch.float64])
def test_what_an_output_holds_before_a_call_differs_from_the_result(dtype: torch.dtype) -> None:
    values = torch.tensor([[0, 1, 0], [1, 1, 0]]).to(dtype)
    before = opposite(values)
    assert before.shape == values.shape and before.dtype == dtype
    bits = values.view(torch.uint8) ^ before.view(torch.uint8)
    assert (bits == (1 if dtype == torch.bool else 255)).all(), bits  # only bytes 0 and 1 are booleans


def test_shapes() -> None:
    same = dict.fromkeys(("all_reduce", "reduce", "reduce_scatter", "broadcast"), ((2, 3), (2, 3)))
    expected = {
        "all_gather": ((2, 3), (8, 3)),
        "gather": ((2, 3), (8, 3)),
        "scatter": ((8, 3), (2, 3)),
        "all_to_all": ((2, 12), (2, 12)),
        **same,
    }
    assert {name: COLLECTIVES[name].shapes(2, 3, 4) for name in expected} == expected


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_ragged_tiles_end_at_every_row_and_element(ranks: int) -> None:
    """Of the ring's kernels that are compiled for any shape; a lane has up to eight elements in succession."""
    kernels = [cases for cases in ragged(ranks, "all_reduce") if cases[0].variant == "ring" and cases[0].rings == 2]
    assert kernels
    for cases in kernels:
        block_m = cases[0].block_m
        assert {case.m % block_m for case in cases} >= set(range(1, block_m)), cases
        assert {case.n % 8 for case in cases} >= {1, 2, 3, 5, 6, 7}, cases
        assert {case.m * case.n % 4 for case in cases} == set(range(4)), cases
        assert max(case.m for case in cases) > block_m * cases[0].swizzle, "a second group of rows of tiles"


@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize("op", COLLECTIVES)
def test_ragged_cases_fit_the_heap(op: str, ranks: int) -> None:
    for case in itertools.chain(*ragged(ranks, op)):
        largest = max(map(len, chunks_of(case.group, ranks)))
        sizes = [of_name(case.dtype).itemsize * count for count in _counts(case, largest)]
        assert starts(1024, [*sizes, 0])[-1] + 8 < arena_bytes(ranks) - 1024, f"{case} needs {sizes}"


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("variant", ACCUMULATING)
def test_the_neighbour_of_a_case_has_another_size_and_fits_next_to_it(ranks: int, variant: str) -> None:
    for cases in accumulations(ranks, variant):

        @settings(SETTINGS, max_examples=5)
        @given(cases)
        def fits(case: CollectiveCase) -> None:
            other = neighbour(ranks, case)
            assert (other.variant, other.group, other.async_op, other.calls) == (variant, case.group, True, 2)
            largest = max(map(len, chunks_of(case.group, ranks)))
            sizes = [
                of_name(one.dtype).itemsize * count
                for one in (case, other)
                for count in _counts(replace(one, in_pad=16, out_pad=16), largest) * (1 if one.reuse else one.calls)
            ]
            assert starts(1024, [*sizes, 0])[-1] + 8 < arena_bytes(ranks) - 1024, f"{case} and {other} need {sizes}"
            if variant == "ring":
                assert of_name(other.dtype).itemsize != of_name(case.dtype).itemsize

        fits()
