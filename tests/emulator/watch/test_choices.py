"""Choices by a seed are those of Python's generator."""

import random

import pytest

from harness.emulator.watch.choices import Seeded


@pytest.mark.parametrize("seed", range(4))
def test_choices_are_those_of_pythons_generator(seed):
    choices, wanted, sizes = Seeded(seed), random.Random(seed), random.Random(99)
    for _ in range(10_000):
        n = sizes.choice([1, 2, 3, 4, 5, 16, 100, 1000])
        assert choices.pick(n, "") == wanted.randrange(n)
    assert choices.decisions == 10_000
