"""Which tensors share memory, compared with the elements themselves."""

from __future__ import annotations

import itertools

import pytest
import torch

from iris_under_test.ccl.overlap import lies_on_itself, same_memory, shares_memory

MEMORY = torch.zeros(64, dtype=torch.int16)
SHAPES = ((1, 1), (1, 4), (4, 1), (2, 3), (3, 2), (0, 3))
STRIDES = ((0, 1), (1, 0), (1, 1), (2, 1), (3, 1), (4, 1), (1, 2), (1, 3), (6, 2), (5, 3))


def _places(tensor: torch.Tensor) -> list[int]:
    rows, columns = tensor.shape
    start = tensor.storage_offset()
    return [start + i * tensor.stride(0) + j * tensor.stride(1) for i in range(rows) for j in range(columns)]


@pytest.mark.parametrize("strides", STRIDES)
def test_elements_that_lie_on_each_other(strides: tuple[int, int]) -> None:
    for shape in SHAPES:
        tensor = MEMORY.as_strided(shape, strides)
        places = _places(tensor)
        assert lies_on_itself(tensor) == (len(set(places)) < len(places)), f"{shape} with strides {strides}"


def test_tensors_that_share_memory() -> None:
    """Of rows that are whole, the answer is exact; where elements are apart in both directions it may report an
    overlap that does not exist.
    """
    both = 0
    for (one, two), (left, right), shift in itertools.product(
        itertools.product(SHAPES, SHAPES), itertools.product(STRIDES, STRIDES), (0, 1, 2, 3, 5, 11)
    ):
        a, b = MEMORY.as_strided(one, left), MEMORY.as_strided(two, right, shift)
        if lies_on_itself(a) or lies_on_itself(b):
            continue
        wanted = bool(set(_places(a)) & set(_places(b)))
        exact = all(min(t.stride()) == 1 or 1 in t.shape or not t.numel() for t in (a, b))
        for x, y in ((a, b), (b, a)):
            got = shares_memory(x, y)
            assert got == wanted if exact else got >= wanted, f"{one} {left} and {two} {right} {shift} further on"
        both += wanted
    assert both > 100, "cases of both kinds"


def test_strides_that_lead_nowhere_do_not_count():
    padded = torch.zeros(4, 12)[:, :8]
    row, column = padded[1:2], padded[:, 1:2]
    assert same_memory(row, padded[1][None])
    assert same_memory(column, padded.as_strided((4, 1), (12, 7), 1))
    assert not same_memory(row, padded[2:3])
    assert not same_memory(padded, padded.as_strided((4, 8), (8, 1)))


def test_halves_of_a_matrix_share_nothing() -> None:
    whole = torch.zeros(8, 128)
    assert not shares_memory(whole[:, :64], whole[:, 64:])
    assert shares_memory(whole[:, :65], whole[:, 64:])
    assert not shares_memory(whole.t()[:64], whole.t()[64:])
