"""Values loaded from memory: their tokens, from the address that they were loaded from."""

from __future__ import annotations

import functools

from harness.isa.flow import words
from harness.isa.flow.origin import bases
from harness.isa.flow.words import Token, Word

_DEEPEST = 4


@functools.lru_cache(maxsize=65536)
def loaded(address: Word, count: int) -> tuple[Word, ...]:
    """Return the words of ``count`` 32-bit registers loaded from ``address``, which is 8-byte aligned."""
    return tuple(_value(address, number % 2) for number in range(count))


def _value(address: Word, half: int) -> Word:
    # A form without a base is a register of lanes that are switched off, if there are others.
    sources = {source for form in address.forms for source in bases(form)}
    values = set() if sources else {Token("?", 1, half)}
    for source in sources:
        if source.depth >= _DEEPEST or source.root == "kernarg":
            values.add(Token("?", 1, half))
        else:
            values.add(Token(source.root, source.depth + 1, half))
    return words.join(*(words.of_token(token) for token in sorted(values)))
