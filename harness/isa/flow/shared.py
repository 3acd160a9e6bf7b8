"""Shared memory of a work-group: what one wavefront may load because another one stored it."""

from __future__ import annotations

from collections.abc import Hashable

from harness.isa.flow import words
from harness.isa.flow.words import PLAIN, Word


class Shared:
    """Contents of shared memory, which are kept as one word, by blocks of the code.

    A store is followed to the loads behind it like a write to a register. Wavefronts that specialise take different
    ways through the code, and no way leads from the store of one to the load of another: ``others`` has, for each
    block, what is stored in blocks from which it cannot be reached, and which cannot be reached from it.
    """

    def __init__(self) -> None:
        self.others: dict[Hashable, Word] = {}
        self._stores: dict[Hashable, Word] = {}
        self._loads: set[Hashable] = set()
        self._edges: dict[Hashable, set[Hashable]] = {}

    def edge(self, block: Hashable, successor: Hashable) -> None:
        """Record that ``successor`` may be executed after ``block``."""
        self._edges.setdefault(block, set()).add(successor)

    def store(self, block: Hashable, word: Word) -> None:
        """Record a store in ``block``."""
        if word.forms != PLAIN.forms:
            self._stores[block] = words.join(self._stores.get(block, word), word)

    def load(self, block: Hashable) -> Word | None:
        """Return what wavefronts that are elsewhere store, as far as it is known; record a load in ``block``."""
        self._loads.add(block)
        return self.others.get(block)

    def is_complete(self) -> bool:
        """Update ``others``, once the code has been followed; return whether nothing new was found."""
        behind = {block: self._reached(block) for block in self._loads | self._stores.keys()} if self._stores else {}
        others = {}
        for block in self._loads if behind else ():
            apart = [
                word
                for other, word in self._stores.items()
                if other != block and other not in behind[block] and block not in behind[other]
            ]
            if apart:
                others[block] = words.join(*apart)
        is_known, self.others = others == self.others, others
        return is_known

    def _reached(self, block: Hashable) -> set[Hashable]:
        reached: set[Hashable] = set()
        waiting = [block]
        while waiting:
            for successor in self._edges.get(waiting.pop(), ()):
                if successor not in reached:
                    reached.add(successor)
                    waiting.append(successor)
        return reached
