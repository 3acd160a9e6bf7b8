"""Allocations whose owners end while they are read: a finalizer may run at any allocation of a Python object."""

import pytest

from harness.emulator.execution.allocations import Allocation, Allocations

SEGMENT = 0x1000


@pytest.fixture
def known():
    """Return four registered segments."""
    allocations = Allocations(red_zones=True)
    for number in range(1, 5):
        allocations.register(number * SEGMENT, SEGMENT, f"segment {number}")
    return allocations


@pytest.fixture
def at_contains(monkeypatch):
    """Return a function that has its argument called once, by the next search of a segment."""

    def plant(finalizer):
        contains = Allocation.contains

        def ended(self, address, size):
            monkeypatch.setattr(Allocation, "contains", contains)
            finalizer()
            return contains(self, address, size)

        monkeypatch.setattr(Allocation, "contains", ended)

    return plant


def test_a_segment_may_end_during_a_search(known, at_contains):
    at_contains(lambda: known.unregister(2 * SEGMENT))
    assert known.contains(4 * SEGMENT)
    assert not known.contains(2 * SEGMENT)


@pytest.mark.parametrize("end", ["segment", "part"])
def test_what_ends_while_a_table_is_made_is_not_in_the_next_table(known, at_contains, end):
    known.carve(2 * SEGMENT, 64, "part")
    at_contains(lambda: known.unregister(2 * SEGMENT) if end == "segment" else known.uncarve(2 * SEGMENT))
    extra = [(9 * SEGMENT, 8, "argument")]
    known.table(extra)
    assert [a.label for a in known.table(extra).allocations] == ["segment 1", "segment 3", "segment 4", "argument"]
