"""The tests that killed earlier mutants of the same place: they are tried first on the next one.

A change of a function is mostly noticed by the test that noticed another change of it. A trial that begins with that
test ends after one group of cases instead of after all that come before it in the nearest files.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from mutants.matrix import KILLED, Result
from mutants.mutant import HARNESS, Mutant
from mutants.selection import Stage

FIRST_TRIED = 3
"""Most tests that are tried first at one level: each takes time from a mutant that none of them kills."""

_Item = TypeVar("_Item")


class Killers:
    """Tests that killed: those of earlier runs, in ``earlier``, and those of this run, which ``add`` adds.

    ``mutants`` are all that exist now, by their ids. An earlier result whose id is none of them, since its line has
    moved, counts for its file alone.
    """

    def __init__(self, earlier: Iterable[Result], mutants: Mapping[str, Mutant]) -> None:
        self._functions = {identity: mutant.function for identity, mutant in mutants.items()}
        self._own: dict[str, tuple[str, str]] = {}
        self._of_operator: dict[tuple[str, str], Counter[tuple[str, str]]] = defaultdict(Counter)
        self._of_function: dict[tuple[str, str], Counter[tuple[str, str]]] = defaultdict(Counter)
        self._of_file: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        for result in earlier:
            self.add(result)

    def add(self, result: Result) -> None:
        """Take a result; only one that was killed by a test counts, and one of the library only with its level."""
        if result.verdict != KILLED or not result.nodeid or not (result.level or result.kind == HARNESS):
            return
        killer = (result.level, result.nodeid)
        self._own[result.id] = killer
        self._of_file[result.file][killer] += 1
        self._of_operator[result.file, result.operator][killer] += 1
        if result.id in self._functions:
            self._of_function[result.file, self._functions[result.id]][killer] += 1

    def knows(self, mutant: Mutant) -> bool:
        """Return whether a test is known that killed this very mutant, in an earlier run or in this one."""
        return mutant.id in self._own

    def before(self, mutant: Mutant, stages: Sequence[Stage]) -> tuple[Stage, ...]:
        """Return ``stages`` with the likely killers before those of their level.

        The mutant's own killer of an earlier run comes first, then the most frequent one of its operator in the file,
        which often is the only test with such data, then those of its function, then those of its file. A listed
        mutant, whose list names its tests, has its own killer only. The tests of the harness have no level or ranks.
        """
        tried = [self._own[mutant.id]] if mutant.id in self._own else []
        if not mutant.chosen:
            tried += _ranked(self._of_operator[mutant.file, mutant.operator])[:1]
            tried += _ranked(self._of_function[mutant.file, mutant.function])
            tried += _ranked(self._of_file[mutant.file])
        tried = list(dict.fromkeys(tried))
        if mutant.kind == HARNESS:
            first = tuple(nodeid for _, nodeid in tried[:FIRST_TRIED])
            return (Stage(first, optional=True), *stages) if first else tuple(stages)
        result: list[Stage] = []
        for level in dict.fromkeys(stage.level for stage in stages):
            chosen = [nodeid for at, nodeid in tried if at == level][:FIRST_TRIED]
            for ranks in dict.fromkeys(map(ranks_of, chosen)):
                targets = tuple(nodeid for nodeid in chosen if ranks_of(nodeid) == ranks)
                result.append(Stage(targets, ranks=ranks, level=level, optional=True))
            result += [stage for stage in stages if stage.level == level]
        return tuple(result)


def _ranked(killers: Counter[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the killers, the most frequent first, in an order that does not depend on which one came first."""
    return [killer for killer, _ in sorted(killers.items(), key=lambda item: (-item[1], item[0]))]


def in_turns(items: Iterable[_Item], mutant_of: Callable[[_Item], Mutant]) -> list[_Item]:
    """Return the items so that the functions of the library take turns: what killed the first mutant of a function is
    then known before most of the others are started, however many run at a time."""
    queues: dict[tuple[str, str], list[_Item]] = defaultdict(list)
    for item in items:
        queues[mutant_of(item).file, mutant_of(item).function].append(item)
    rounds = itertools.zip_longest(*queues.values())
    return [item for round_ in rounds for item in round_ if item is not None]


def ranks_of(nodeid: str) -> int:
    """Return the number of ranks of a test, which is in its id."""
    match = re.search(r"\branks=(\d+)", nodeid)
    assert match is not None, nodeid  # sanity check: the plugin adds it to every test with ranks
    return int(match[1])
