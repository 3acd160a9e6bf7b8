"""All mutants of source text: the listed defects, the reported ones, and the generated ones, as one list."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

from mutants import planting
from mutants.generated.harness import harness_mutants
from mutants.generated.operators import library_mutants
from mutants.generated.places import Source
from mutants.listed import DEFECTS, REPORTED
from mutants.mutant import HARNESS, LISTED, SOURCE, Mutant, position
from mutants.mutant import REPORTED as REPORTED_KIND
from mutants.planting import Defect


def all_of(kind: str) -> list[Mutant]:
    """Return all mutants of a kind other than binary. LookupError if a listed one no longer applies."""
    return _MAKERS[kind]()


def of_defect(kind: str, defect: Defect) -> Mutant:
    """Return a listed or reported defect as a mutant. LookupError if it no longer applies."""
    text = planting.original(defect.file)
    start = defect.start(text)
    line, column = position(text, start)
    content = start + len(defect.old) - len(defect.old.lstrip())
    area = defect.name.partition(":")[0] if ":" in defect.name else "device"
    return Mutant(
        f"{kind}:{defect.name}",
        kind,
        kind if kind == REPORTED_KIND else f"listed {area.split()[0]}",
        defect.file,
        line,
        column,
        start,
        defect.old,
        defect.new,
        function=Source(text).around(content),
        report=defect.source,
        chosen=defect.chosen,
        ranks=defect.ranks,
    )


def is_wanted(identity: str, texts: Sequence[str]) -> bool:
    """Return whether an id contains one of ``texts``; without any, every id is wanted."""
    return not texts or any(text in identity for text in texts)


def sample(mutants: Sequence[Mutant], count: int | None, seed: int) -> list[Mutant]:
    """Return ``count`` of the mutants (None: all), the same for the same seed, spread over the operators.

    The operators take turns, so that one with many places does not crowd out the others.
    """
    if count is None or count >= len(mutants):
        return list(mutants)
    chosen: list[Mutant] = []
    queues = list(_shuffled(mutants, seed).values())
    while len(chosen) < count:
        queues = [queue for queue in queues if queue]
        chosen += [queue.pop() for queue in queues][: count - len(chosen)]
    order = {mutant.id: number for number, mutant in enumerate(mutants)}
    return sorted(chosen, key=lambda mutant: order[mutant.id])


def _shuffled(mutants: Iterable[Mutant], seed: int) -> dict[str, list[Mutant]]:
    queues: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        queues.setdefault(mutant.operator, []).append(mutant)
    for operator, queue in queues.items():
        random.Random(f"{seed} {operator}").shuffle(queue)
    return queues


def _listed() -> list[Mutant]:
    return [of_defect(LISTED, defect) for defect in DEFECTS]


def _reported() -> list[Mutant]:
    return [of_defect(REPORTED_KIND, defect) for defect in REPORTED]


_MAKERS: Mapping[str, Callable[[], list[Mutant]]] = {
    LISTED: _listed,
    REPORTED_KIND: _reported,
    SOURCE: library_mutants,
    HARNESS: harness_mutants,
}
