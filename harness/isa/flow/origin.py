"""Verdict on an address: whether it is another rank's memory, from the forms that it may have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from harness.isa.flow.words import Form, Token, Word
from harness.isa.sources import Where


@dataclass(frozen=True)
class Roots:
    """Knowledge of a kernel's arguments, by their positions among those that the compiled kernel has.

    ``tables``: the arguments through which the heap bases are reached: the table itself, or memory that holds it or
    its address. None if that is not known. ``peers``: arguments that point to another rank's memory themselves.
    """

    tables: frozenset[int] | None = None
    peers: frozenset[int] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """Return plain data for an evidence record."""
        tables = {} if self.tables is None else {"tables": sorted(self.tables)}
        return {**tables, **({"peers": sorted(self.peers)} if self.peers else {})}

    @classmethod
    def from_json(cls, plain: Mapping[str, Iterable[int]]) -> Roots:
        tables = plain.get("tables")
        return cls(None if tables is None else frozenset(tables), frozenset(plain.get("peers", ())))


UNKNOWN = Roots()


def origins(addresses: Mapping[int, Iterable[Word]], writes: Set[int], roots: Roots) -> dict[int, Where]:
    """Return the verdict on each access, given the words that its address may be. ``writes``: the stores and atomics.

    Unless ``roots`` names the tables, every argument is one whose loaded values become addresses. If addresses are
    reached through an argument in several steps, the table's entries are the values by whose difference addresses are
    moved; without such an address, they are the last step. A kernel does not write to the table: so the addresses of
    what it writes to are entries too.
    """
    forms = {index: {form for word in words for form in word.forms} for index, words in addresses.items()}
    heap = _heap(forms, writes, roots)
    return {index: _verdict(listed, heap, roots) for index, listed in forms.items()}


def bases(form: Form) -> list[Token]:
    """Return the tokens of which one makes ``form`` an address, none if it is not one. Others in it are offsets."""
    whole = _whole(form)
    arguments = [t for t in whole if not t.depth and t.root[0] == "p"]
    if not arguments:
        loaded = [t for t in whole if t.depth and not t.half]
        if loaded:
            return loaded
        # An integer argument may be a pointer, moved by the difference of two bases.
        arguments = [t for t in whole if not t.depth and t.root[0] in "ickh"]
    return (arguments and moved(form)) or arguments


def moved(form: Form) -> list[Token]:
    """Return the kinds of values of which ``form`` contains a difference."""
    return [
        t for t, factor, added, subtracted in form if factor == 1 and added and subtracted and t.depth and not t.half
    ]


def _whole(form: Form) -> list[Token]:
    return [term.token for term in form if term.factor == 1 and term.added - term.subtracted == 1]


def _heap(accesses: Mapping[int, Set[Form]], writes: Set[int], roots: Roots) -> set[tuple[str, int]]:
    """Return the kinds of values, as (root, depth), that are heap bases."""
    used: dict[str, set[int]] = {}
    differences: dict[str, set[int]] = {}
    written: set[tuple[str, int]] = set()
    for index, forms in accesses.items():
        for form in forms:
            for token in bases(form):
                if not token.depth or token.root[0] not in "pi":
                    continue
                used.setdefault(token.root, set()).add(token.depth)
                if token in moved(form):
                    differences.setdefault(token.root, set()).add(token.depth)
                elif index in writes:
                    written.add((token.root, token.depth))
    named = None if roots.tables is None else {f"{kind}{number}" for number in roots.tables for kind in "pi"}
    entries = {(root, min(differences[root]) if root in differences else max(used[root])) for root in used}
    return {(root, depth) for root, depth in entries | written if named is None or root in named}


def _verdict(forms: Iterable[Form], heap: set[tuple[str, int]], roots: Roots) -> Where:
    return _worst({_of_form(form, heap, roots) for form in forms})


def _of_form(form: Form, heap: set[tuple[str, int]], roots: Roots) -> Where | None:
    """Return the verdict on one form; None if it is a number: a register that was not written yet, or is masked."""
    lost = [term.token for term in form if term.is_lost and not term.token.half]
    arguments = [token for token in _whole(form) if not token.depth and token.root[0] in "pi"]
    verdicts: set[Where | None] = {_of_base(token, heap, roots) for token in (*bases(form), *arguments)}
    if not verdicts:
        return "unattributed" if lost else None
    if any((t.root, t.depth) in heap for t in lost):
        verdicts.add("unattributed")
    return _worst(verdicts)


def _of_base(token: Token, heap: set[tuple[str, int]], roots: Roots) -> Where:
    if not token.depth:
        return "remote" if token.root[0] in "pi" and int(token.root[1:]) in roots.peers else "local"
    if (token.root, token.depth) in heap:
        return "remote"
    if any(root == token.root and token.depth < depth for root, depth in heap):
        return "local"  # the table itself, reached through a pointer to it
    is_beyond = token.root == "?" or any(root == token.root for root, _ in heap)
    return "unattributed" if is_beyond else "local"


def _worst(verdicts: set[Where | None]) -> Where:
    if "remote" in verdicts:
        return "remote"
    return "local" if "local" in verdicts and "unattributed" not in verdicts else "unattributed"
