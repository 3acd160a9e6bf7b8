"""Sources of the open decisions: a seed, or a test that draws each choice and shrinks a failing run."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

import numpy as np

MOVES, EVICTS, AGE = "how often memory moves by itself", "whether caches evict", "age of a line"
"""Decisions of mode ``weak``."""
HOW_OFTEN, SWITCHES = "how often wavefronts are switched", "switch wavefronts"
WHICH_WAVEFRONT, ORDER = "next wavefront", "order in which work-groups start"
"""Decisions of the scheduler."""
_WORDS = 1 << 12


class Choices(Protocol):
    """Picks one of ``n`` possibilities.

    0 is always the default: continue with the same wavefront, see the newest value.
    """

    def pick(self, n: int, decision: str) -> int:
        """Return a number from 0 to n - 1; ``decision`` names the decision. The same choices give the same run."""
        ...


class Seeded:
    """Derives every choice from ``seed``; ``decisions`` counts them.

    The choices are those of ``random.Random(seed).randrange``. Its random words are drawn in advance, so that native
    functions can take them too: ``words`` uint32[n], and ``place`` int64[2], the next of them and the decisions so far.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.words = np.zeros(_WORDS, np.uint32)
        self.place = np.array([_WORDS, 0], np.int64)
        # The generator of ``random.Random``, whose words NumPy draws faster.
        self._random = np.random.RandomState()
        _, state, _ = random.Random(seed).getstate()
        self._random.set_state(("MT19937", np.array(state[:-1], np.uint32), state[-1], 0, 0.0))
        # The same words, as Python reads them fastest; empty if it has not read any of them.
        self._list: list[int] = []
        self._place = memoryview(self.place)  # type: ignore[arg-type]

    @property
    def decisions(self) -> int:
        return int(self.place[1])

    def pick(self, n: int, decision: str) -> int:
        place, words = self._place, self._list or self.words.tolist()
        self._list = words
        at, shift = place[0], 32 - n.bit_length()
        place[1] += 1
        while True:
            if at == _WORDS:
                place[0] = at
                self.draw()
                words = self._list = self.words.tolist()
                at = 0
            choice = words[at] >> shift
            at += 1
            if choice < n:
                place[0] = at
                return choice

    def draw(self) -> None:
        """Replace the words that have been used; those that are left come first."""
        at = self._place[0]
        self.words[: _WORDS - at] = self.words[at:]
        self.words[_WORDS - at :] = self._random.randint(0, 1 << 32, at, np.uint32)
        self._place[0] = 0
        self._list = []

    def __repr__(self) -> str:
        return f"seed {self.seed}"


class Lazy(Seeded):
    """The adversary that withholds: memory moves only when an instruction or the end of a kernel demands it, and three
    loads of four see the oldest value that they may see. All other choices are those of ``seed``."""

    def pick(self, n: int, decision: str) -> int:
        if decision in (MOVES, EVICTS):
            return 0
        choice = super().pick(n, decision)
        return n - 1 if decision == AGE and super().pick(4, "withhold") else choice

    def __repr__(self) -> str:
        return f"lazy, seed {self.seed}"


class Drawn:
    """Draws every choice by ``draw(n)``, for example Hypothesis's ``data.draw(st.integers(0, n - 1))``.

    After ``limit`` choices it returns 0, so that a long run stays within the number of values that Hypothesis can draw.
    """

    def __init__(self, draw: Callable[[int], int], limit: int = 2000) -> None:
        self._draw = draw
        self._left = limit
        self.deviations: list[tuple[int, str, int]] = []
        self.decisions = 0

    def pick(self, n: int, decision: str) -> int:
        self.decisions += 1
        if n < 2 or self._left <= 0:
            return 0
        self._left -= 1
        choice = self._draw(n)
        if choice:
            self.deviations.append((self.decisions, decision, choice))
        return choice

    def __repr__(self) -> str:
        return f"drawn, {len(self.deviations)} of {self.decisions} not the default"
