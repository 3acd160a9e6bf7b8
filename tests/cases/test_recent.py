"""The short memory of values."""

from harness.cases.recent import Recent


def test_it_holds_the_last_different_values():
    recent = Recent(2)
    for value in (1, 2, 1, 3):
        recent.add(value)
    assert recent.latest_first() == (3, 1)
    recent.clear()
    assert recent.latest_first() == ()
