"""Abstract values of registers: sums of kernel arguments and loaded values, each with what it was multiplied by.

A *token* is a 64-bit value that may be an address: a kernel argument (depth 0), or a value loaded through it (depth 1),
or through that (depth 2). A *form* is a sum of terms: a token, its factor, and how often it was added and subtracted,
so that the difference of two entries of one table does not vanish, and neither does an entry if an index from the same
table is added. A *word* is the set of the forms that a register may hold at one place of the code.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import NamedTuple

MANY = math.inf
"""Factor of an index: a value multiplied by a number that the code computes. As a count: above ``_MOST_COUNTED``."""
OPAQUE = -1.0
"""Factor of a value that an operation has changed in a way that is not followed."""
_WIDENED = -2.0
"""Factor of a value in a word of too many forms, of which no more is known than the tokens."""
_MOST_FORMS = 24
_MOST_COUNTED = 4
_SCALES = 2.0**-40, 2.0**40


class Token(NamedTuple):
    """``root``: what it comes from: ``"p3"`` (pointer argument 3), ``"i3"`` (8-byte integer argument 3), ``"kernarg"``
    (their address), ``"host"`` (an argument of the runtime's own), ``"mask 2"`` (saved lanes), ``"code name"``, ``"?"``
    (read through an unknown address).

    ``half``: 1 for the upper 32 bits, which a 32-bit register may hold.
    """

    root: str
    depth: int = 0
    half: int = 0


class Term(NamedTuple):
    """``token`` times ``factor``, ``added`` times and subtracted ``subtracted`` times."""

    token: Token
    factor: float
    added: float
    subtracted: float

    @property
    def is_lost(self) -> bool:
        """True if it is not known what became of the token."""
        return self.factor in (OPAQUE, _WIDENED)


Form = tuple[Term, ...]


class Word(NamedTuple):
    """The forms that a register may hold; ``const`` is its value where that is known."""

    forms: frozenset[Form]
    const: int | None = None


PLAIN = Word(frozenset({()}))


@functools.lru_cache(maxsize=4096)
def constant(value: int) -> Word:
    """Return the word of a known number."""
    return Word(PLAIN.forms, value)


def of_token(token: Token) -> Word:
    """Return the word of a value that is followed from here on."""
    return Word(frozenset({(Term(token, 1.0, 1, 0),)}))


def join(*words: Word) -> Word:
    """Return a word that may be any of ``words``."""
    return functools.reduce(_either, words)


@functools.lru_cache(maxsize=65536)
def _either(a: Word, b: Word) -> Word:
    return a if a == b else Word(_limited(a.forms | b.forms))


@functools.lru_cache(maxsize=65536)
def add(a: Word, b: Word) -> Word:
    """Return the word of a sum."""
    const = None if a.const is None or b.const is None else a.const + b.const
    if b.forms == PLAIN.forms:
        return Word(a.forms, const)
    if a.forms == PLAIN.forms:
        return Word(b.forms, const)
    return Word(_limited(frozenset(_sum(one, other) for one in a.forms for other in b.forms)), const)


@functools.lru_cache(maxsize=65536)
def scale(word: Word, factor: float) -> Word:
    """Return the word multiplied by a known number, or by MANY for one that is not known."""
    if factor < 0:
        return negative(scale(word, -factor))
    const = math.floor(word.const * factor) if word.const is not None and math.isfinite(factor) else None
    if not factor or word.forms == PLAIN.forms:
        return Word(PLAIN.forms, const)
    return Word(_limited(frozenset(_sum((), _scaled(form, factor)) for form in word.forms)), const)


def subtract(a: Word, b: Word) -> Word:
    """Return the word of ``a - b``."""
    return add(a, negative(b))


def negative(word: Word) -> Word:
    """Return the word of ``-word``."""
    forms = frozenset(tuple(Term(t, factor, neg, pos) for t, factor, pos, neg in form) for form in word.forms)
    return Word(forms, None if word.const is None else -word.const)


def index(*words: Word) -> Word:
    """Return the word of a number that is made of ``words`` and too narrow to be an address."""
    return functools.reduce(add, (scale(word, MANY) for word in words), PLAIN)


def opaque(*words: Word) -> Word:
    """Return the word of an operation that is not followed."""
    if all(word.forms == PLAIN.forms for word in words):
        return PLAIN
    return Word(frozenset({_lost({term.token for word in words for form in word.forms for term in form}, OPAQUE)}))


def product(a: Word, b: Word) -> Word:
    """Return the word of ``a * b``."""
    if a.const is not None and b.const is not None:
        return constant(a.const * b.const)
    if b.const is not None:
        return scale(a, b.const)
    if a.const is not None:
        return scale(b, a.const)
    return add(scale(a, MANY), scale(b, MANY))


def masked(word: Word, mask: Word) -> Word:
    """Return the word of a bitwise and: a mask that keeps the upper bits aligns an address, another takes a part."""
    if mask.const is None and word.const is None:
        return add(word, mask) if PLAIN.forms in (word.forms, mask.forms) else opaque(word, mask)
    if mask.const is None:
        word, mask = mask, word
    assert mask.const is not None  # sanity check
    if word.const is not None:
        return constant(word.const & mask.const)
    return word if mask.const < 0 or mask.const >> 16 else PLAIN


def shifted(word: Word, places: Word, right: bool = False) -> Word:
    """Return the word shifted left, or right, by ``places``."""
    if places.const is None:
        return scale(word, MANY)
    places_in_range = places.const & 63
    if right and word.const is not None:
        return constant(word.const >> places_in_range)
    return scale(word, 2.0**-places_in_range if right else 2**places_in_range)


def upper(word: Word) -> Word:
    """Return the upper 32 bits of a 64-bit word."""
    const = None if word.const is None else word.const >> 32
    forms = (tuple(term._replace(token=term.token._replace(half=1)) for term in form) for form in word.forms)
    return Word(frozenset(forms), const)


def tokens(word: Word) -> Iterable[Token]:
    """Return the tokens of all forms."""
    return {term.token for form in word.forms for term in form}


def _sum(a: Form, b: Form) -> Form:
    if not a and len(b) < 2:
        return b
    table: dict[tuple[Token, float], tuple[float, float]] = {}
    for token, factor, added, subtracted in (*a, *b):
        before = table.get((token, factor), (0, 0))
        table[token, factor] = _counted(before[0] + added), _counted(before[1] + subtracted)
        if factor == MANY:  # how often an index is added makes no difference
            table[token, factor] = (1, 0)
    widened = {token for token, factor in table if factor == _WIDENED}
    if widened:
        table = {key: counts for key, counts in table.items() if key[1] == _WIDENED or key[0] not in widened}
        table |= {(token, _WIDENED): (1, 0) for token in widened}
    return tuple(sorted(Term(token, factor, *counts) for (token, factor), counts in table.items()))


def _scaled(form: Form, by: float) -> Form:
    return tuple(term if term.is_lost else term._replace(factor=_times(term.factor, by)) for term in form)


def _times(factor: float, by: float) -> float:
    result = factor * by
    return result if _SCALES[0] <= result <= _SCALES[1] else MANY


def _counted(times: float) -> float:
    return times if times <= _MOST_COUNTED else MANY


def _lost(seen: Iterable[Token], factor: float) -> Form:
    return tuple(sorted(Term(token, factor, 1, 0) for token in seen))


def _limited(forms: frozenset[Form]) -> frozenset[Form]:
    """Return the forms, or one of all their tokens if they are too many. It contains what is added to it later: without
    this a loop would have no fixed point."""
    if len(forms) == 1:
        return forms
    if len(forms) > _MOST_FORMS:
        return frozenset({_lost({term.token for form in forms for term in form}, _WIDENED)})
    widened = [form for form in forms if form and all(term.factor == _WIDENED for term in form)]
    if not widened:
        return forms
    covered = {term.token for form in widened for term in form}
    beyond = {form for form in forms if not covered.issuperset(term.token for term in form)}
    return frozenset({_lost(covered, _WIDENED), *beyond})
