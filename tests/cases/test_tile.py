"""Cases of tile-level collectives: as functions of any matrix, and as methods of an aligned one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.x.cases import TileCase
from conformance.x.operations import TILES
from conformance.x.strategies import tile_collectives


@pytest.mark.parametrize("op", TILES)
def test_functions_have_any_matrix_and_methods_an_aligned_one(op: str) -> None:
    drawn: list[TileCase] = []

    @settings(max_examples=40, deadline=None, database=None, derandomize=True)
    @given(st.one_of(tile_collectives(4, op)))
    def draw(case: TileCase) -> None:
        drawn.append(case)

    draw()
    assert {(case.methods, case.aligned) for case in drawn} == {(False, False), (True, True)}
    for case in drawn:
        assert not case.aligned or (case.n % 16, case.in_pad % 16, case.out_pad % 16, case.turned) == (0, 0, 0, False)
