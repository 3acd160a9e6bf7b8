"""Who decides what is left open: a seed, or a test that draws each choice and shrinks a failing run."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol


class Choices(Protocol):
    """Picks one of ``n`` possibilities. 0 is always the plain one: go on with the same wavefront, see the newest
    value."""

    def pick(self, n: int, what: str) -> int:
        """A number from 0 to n - 1; ``what`` names the decision. The same choices give the same run."""
        ...


class Seeded:
    """Every choice flows from ``seed``; ``decisions`` counts them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.decisions = 0
        self._random = random.Random(seed)

    def pick(self, n: int, what: str) -> int:
        self.decisions += 1
        return self._random.randrange(n)

    def __repr__(self) -> str:
        return f"seed {self.seed}"


class Drawn:
    """Every choice is drawn by ``draw(n)``, for example Hypothesis's ``data.draw(st.integers(0, n - 1))``.

    After ``limit`` choices the plain possibility is taken, so that a long run stays within what Hypothesis can draw.
    """

    def __init__(self, draw: Callable[[int], int], limit: int = 2000) -> None:
        self._draw = draw
        self._left = limit
        self.deviations: list[tuple[int, str, int]] = []
        self.decisions = 0

    def pick(self, n: int, what: str) -> int:
        self.decisions += 1
        if n < 2 or self._left <= 0:
            return 0
        self._left -= 1
        choice = self._draw(n)
        if choice:
            self.deviations.append((self.decisions, what, choice))
        return choice

    def __repr__(self) -> str:
        return f"drawn, {len(self.deviations)} of {self.decisions} not the plain one"
