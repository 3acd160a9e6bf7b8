"""Sources of the open decisions: a seed, or a test that draws each choice and shrinks a failing run."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

import numpy as np

MOVES, EVICTS, AGE = "how often memory moves by itself", "whether caches evict", "age of a line"
"""Decisions of mode ``weak``."""
_WORDS = 1 << 10


class Choices(Protocol):
    """Picks one of ``n`` possibilities.

    0 is always the default: continue with the same wavefront, see the newest value.
    """

    def pick(self, n: int, decision: str) -> int:
        """Return a number from 0 to n - 1; ``decision`` names the decision. The same choices give the same run."""
        ...


class Seeded:
    """Derives every choice from ``seed``; ``decisions`` counts them.

    The choices are those of ``random.Random(seed).randrange``, whose random words are drawn many at once.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.decisions = 0
        self._random = random.Random(seed)
        self._words: list[int] = []
        self._at = 0

    def pick(self, n: int, decision: str) -> int:
        self.decisions += 1
        words, at, shift = self._words, self._at, 32 - n.bit_length()
        while True:
            if at == len(words):
                # ``getrandbits`` of a multiple of 32 bits is the next words, the first one lowest.
                drawn = self._random.getrandbits(32 * _WORDS).to_bytes(4 * _WORDS, "little")
                words, at = np.frombuffer(drawn, "<u4").tolist(), 0
                self._words = words
            choice = words[at] >> shift
            at += 1
            if choice < n:
                self._at = at
                return choice

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
