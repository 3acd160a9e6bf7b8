"""Choices by a seed: the same numbers whether Python or native code takes them."""

import random

import pytest

from harness.emulator.watch.choices import Lazy, Seeded
from tests.emulator.watch.executing import execute


@pytest.mark.parametrize("seed", range(4))
def test_choices_are_those_of_pythons_generator(seed):
    choices, wanted, sizes = Seeded(seed), random.Random(seed), random.Random(99)
    for _ in range(10_000):
        n = sizes.choice([1, 2, 3, 4, 5, 16, 100, 1000])
        assert choices.pick(n, "") == wanted.randrange(n)
    assert choices.decisions == 10_000


class InPython(Seeded):
    """Native code calls Python for each choice, since it does not know this class."""


class LazyInPython(Lazy):
    pass


class OneWordLate(Seeded):
    def pick(self, n, decision):
        if self.place[1] == 20:
            super().pick(2, decision)
            self.place[1] -= 1
        return super().pick(n, decision)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("native", "in_python"), [(Seeded, InPython), (Lazy, LazyInPython)])
def test_native_code_takes_the_choices_that_python_takes(native, in_python, seed):
    assert execute("weak", True, choices=native(seed)) == execute("weak", True, choices=in_python(seed))


def test_another_choice_is_seen():
    seeds = range(6)
    assert any(execute("weak", True, choices=OneWordLate(s)) != execute("weak", True, choices=Seeded(s)) for s in seeds)


def test_an_exception_of_a_choice_is_raised():
    class Fails(InPython):
        def pick(self, n, decision):
            if decision == "which access completes":
                raise KeyboardInterrupt("planted")
            return super().pick(n, decision)

    with pytest.raises(KeyboardInterrupt, match="planted"):
        execute("weak", True, choices=Fails(0))
