"""Cases of tile-level collectives: methods and alignment vary apart, and an aligned case is aligned."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from conformance.x.cases import TileCase
from conformance.x.operations import TILES
from conformance.x.strategies import tile_collectives


@pytest.mark.parametrize("op", TILES)
def test_methods_and_functions_meet_aligned_and_unaligned_matrices(op: str) -> None:
    drawn: list[TileCase] = []

    @settings(max_examples=40, deadline=None, database=None, derandomize=True)
    @given(tile_collectives(4, op))
    def draw(case: TileCase) -> None:
        drawn.append(case)

    draw()
    assert {(case.methods, case.aligned) for case in drawn} == {(one, two) for one in (0, 1) for two in (0, 1)}
    for case in drawn:
        assert not case.aligned or (case.n % 16, case.in_pad % 16, case.out_pad % 16, case.turned) == (0, 0, 0, False)
