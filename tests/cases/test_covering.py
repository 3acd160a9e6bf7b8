"""Covering arrays: every pair of values that may occur together does, and few combinations are enough."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cases.covering import covering

THREE = {"op": ("put", "get"), "dtype": ("fp16", "int8"), "mask": ("none", "range")}


def tuples_of(rows: Sequence[Mapping[str, Any]], strength: int) -> set[frozenset[tuple[str, Any]]]:
    return {frozenset(each) for row in rows for each in itertools.combinations(row.items(), strength)}


def product(parameters: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(parameters, values, strict=True)) for values in itertools.product(*parameters.values())]


def test_the_example() -> None:
    rows = covering(THREE)
    assert len(rows) == 4 and rows[0] == {"op": "put", "dtype": "fp16", "mask": "none"}
    assert tuples_of(rows, 2) == tuples_of(product(THREE), 2)
    assert covering(THREE) == rows, "the same every time"


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=5),
    st.integers(1, 3),
    st.sets(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 4), st.integers(0, 3)), max_size=6),
)
def test_every_tuple_of_a_valid_combination_occurs(
    sizes: list[int], strength: int, forbidden: set[tuple[int, int, int, int]]
) -> None:
    parameters = {f"p{number}": tuple(range(size)) for number, size in enumerate(sizes)}
    strength = min(strength, len(sizes))

    def valid(row: Mapping[str, Any]) -> bool:
        return not any(row.get(f"p{one}") == a and row.get(f"p{other}") == b for one, a, other, b in forbidden)

    rows = covering(parameters, strength=strength, valid=valid)
    assert all(map(valid, rows)) and len(set(map(str, rows))) == len(rows)
    assert tuples_of(rows, strength) == tuples_of(list(filter(valid, product(parameters))), strength)


def test_derived_values_occur_together_with_others() -> None:
    parameters = {"op": ("put", "get"), "bits": (8, 16, 32, 64)}
    wide = {"wide": lambda row: row["bits"] > 16}
    rows = covering(parameters, strength=1, also=[("op", "wide")], derived=wide)
    assert len(rows) == 4 and all(set(row) == set(parameters) for row in rows)
    assert {(row["op"], row["bits"] > 16) for row in rows} == set(itertools.product(("put", "get"), (False, True)))
    assert {row["bits"] for row in rows} == {8, 16, 32, 64}
    without = covering(parameters, strength=1)
    assert len({(row["op"], row["bits"] > 16) for row in without}) < 4
    with pytest.raises(ValueError, match="got both"):
        covering(parameters, having=rows, derived=wide)


def test_it_is_small() -> None:
    """The least number of rows is the product of the two largest parameters: 8 x 7 here, and 60,480 combinations."""
    rows = covering(
        {"a": range(8), "b": range(7), "c": range(5), "d": range(6), "e": range(4), "f": range(3), "g": range(3)}
    )
    assert 56 <= len(rows) <= 66


def test_a_missing_pair_is_noticed() -> None:
    """Planted: one combination less, each of which covers a pair alone."""
    rows = covering(THREE)
    for left_out in rows:
        assert tuples_of([row for row in rows if row is not left_out], 2) < tuples_of(product(THREE), 2)


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match=r"from 1 to the number of parameters, 3; got 4"):
        covering(THREE, strength=4)
    with pytest.raises(ValueError, match="at most 200000 combinations, got 1000000"):
        covering({str(number): range(10) for number in range(6)})
    assert covering(THREE, valid=lambda row: False) == ()
