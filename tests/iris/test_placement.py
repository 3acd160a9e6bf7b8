"""Placement of allocations: drawn histories against a byte map."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from iris_under_test.host.memory.placement import Placement

SIZE = 200


def first_fit(taken: set[int], num_bytes: int, alignment: int, avoided: set[int]) -> int | None:
    """The lowest place, by looking at each."""
    for place in range(0, SIZE - num_bytes + 1, alignment):
        if not any(byte in taken or byte in avoided for byte in range(place, place + num_bytes)):
            return place
    return None


def test_the_example_of_the_docstring() -> None:
    placement = Placement(100)
    placement.take(0, 30)
    placement.take(32, 20)
    placement.release(0)
    assert placement.find(40, 4) == 52
    assert (placement.end, placement.free, placement.largest_hole()) == (52, 80, 48)
    assert (placement.largest_hole(60), placement.find(9, 1, below=40), placement.find(9, 1, below=60)) == (32, 0, 0)
    assert (placement.find(33, 1, below=60), placement.find(33, 1)) == (None, 52)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 80), st.sampled_from([1, 8, 64]), st.booleans(), st.integers(0, 20))), st.data()
)
def test_places_are_the_lowest_that_fit(steps: list[tuple[int, int, bool, int]], data: st.DataObject) -> None:
    placement, live = Placement(SIZE), {}
    for num_bytes, alignment, free, low in steps:
        if free and live:
            offset = data.draw(st.sampled_from(sorted(live)))
            assert placement.release(offset) == live.pop(offset)
            continue
        taken = {byte for offset, size in live.items() for byte in range(offset, offset + size)}
        avoid = [(low, low + 10), (low + 50, low + 55)]
        avoided = {byte for start, stop in avoid for byte in range(start, stop)}
        assert placement.find(num_bytes, alignment, avoid) == first_fit(taken, num_bytes, alignment, avoided)
        place = placement.find(num_bytes, alignment)
        assert place == first_fit(taken, num_bytes, alignment, set())
        if place is not None:
            placement.take(place, num_bytes)
            live[place] = num_bytes
            taken |= set(range(place, place + num_bytes))
        assert placement.free == SIZE - len(taken)
        assert placement.end == max(taken, default=-1) + 1
        for start, stop in ((low, low + 10), (0, SIZE), (199, 200)):
            assert placement.overlaps(start, stop) == any(start <= byte < stop for byte in taken)
