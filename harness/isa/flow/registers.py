"""State of an AMD wavefront in the abstract: words of registers, lanes and memories, and the saved execution masks."""

from __future__ import annotations

from typing import Any

from harness.isa.flow import words
from harness.isa.flow.shared import Shared
from harness.isa.flow.words import PLAIN, Token, Word

_DEEPEST = 8


class Registers:
    """Words by name: ``"v0"``, ``"s0"``, ``"vcc_lo"``; ``("scratch", 16)``, ``("lane", "v40", 3)``, ``"lds"``.

    A region with fewer lanes enabled writes only these lanes. So where it begins the vector registers are kept, and
    where it ends both are possible. ``saved`` has those of each region that is open, outermost first. ``block``: where
    this is the state of; ``shared`` belongs to all states.
    """

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.block: Any = None
        self.words: dict[Any, Word] = {}
        self.saved: list[dict[Any, Word]] = []

    def copy(self) -> Registers:
        twin = Registers(self.shared)
        twin.words = dict(self.words)
        twin.saved = [dict(one) for one in self.saved]
        return twin

    def merge(self, other: Registers) -> bool:
        """Add what ``other`` knows; return whether that is new."""
        changed = False
        if len(self.saved) > len(other.saved):
            self.leave(len(other.saved))
            changed = True
        elif len(other.saved) > len(self.saved):
            other = other.copy()
            other.leave(len(self.saved))
        changed |= _merged(self.words, other.words)
        for own, theirs in zip(self.saved, other.saved, strict=True):
            changed |= _merged(own, theirs)
        return changed

    def __getitem__(self, name: Any) -> Word:
        return self.words.get(name, PLAIN)

    def __setitem__(self, name: Any, word: Word) -> None:
        self.words[name] = word
        if ("lanes", name) in self.words:
            for key in [key for key in self.words if key[:2] in (("lane", name), ("lanes", name))]:
                del self.words[key]

    def set_lane(self, name: str, lane: int, word: Word) -> None:
        """Write one lane of a vector register, in which the compiler keeps a scalar."""
        self.words[name] = words.join(self[name], word)
        self.words["lanes", name] = PLAIN
        self.words["lane", name, lane] = word

    def store_shared(self, *stored: Word) -> None:
        """Write words to shared memory, anywhere."""
        for word in stored:
            self.words["lds"] = words.join(self.words.get("lds", word), word)
            self.shared.store(self.block, word)

    def load_shared(self) -> Word:
        """Return what shared memory may hold, anywhere."""
        known = [word for word in (self.words.get("lds"), self.shared.load(self.block)) if word is not None]
        return words.join(*known) if known else PLAIN

    def enter(self) -> None:
        """Begin a region with fewer lanes."""
        if len(self.saved) < _DEEPEST:
            self.saved.append({name: word for name, word in self.words.items() if name[0] in "va"})

    def leave(self, level: int) -> None:
        """End the regions inside level ``level``."""
        while len(self.saved) > level:
            for name, word in self.saved.pop().items():
                self.words[name] = words.join(word, self.words[name])

    def mask(self) -> Word:
        """Return the word of the present execution mask."""
        return words.of_token(Token(f"mask {len(self.saved)}"))

    def level(self, mask: Word) -> int | None:
        """Return the level of the region whose execution mask, or a part of it, is ``mask``."""
        levels = [int(t.root.split()[1]) for t in words.tokens(mask) if t.root.startswith("mask ")]
        return min(levels, default=None)


def _merged(own: dict[Any, Word], other: dict[Any, Word]) -> bool:
    changed = False
    for name, word in other.items():
        known = own.get(name)
        if known is word or known == word:
            continue
        joined = word if known is None else words.join(known, word)
        if joined != known:
            own[name] = joined
            changed = True
    return changed
