"""Filters of a report's case groups, and the matrix of operation, form and type of element."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.evidence import Requirement, Verdict
from harness.evidence.verdict import merge
from reports.spread import parameters_of

FACETS = ("area", "op", "form", "dtype", "ranks", "device")
"""Names of the filters besides the verdict and the text, in the order of the page."""
NONE = "\N{EN DASH}"
_ONE = re.compile(r"^an? (\w+)")
"""A form in the singular: ``a function``, which is the same filter as ``functions``."""


@dataclass(frozen=True)
class Facets:
    """Values of one case group; an en dash stands for a group without such a parameter."""

    area: str
    op: str
    form: str
    dtype: str = NONE
    ranks: str = NONE
    device: str = NONE


@dataclass(frozen=True)
class Cell:
    """Case groups of one operation, form and type of element. ``anchor`` is the first group with the worst verdict."""

    facets: Facets
    verdict: Verdict
    anchor: str
    groups: int
    passed: int


@dataclass(frozen=True)
class MatrixRow:
    """One operation in one form; ``cells`` has None where no group was planned."""

    op: str
    form: str
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class Matrix:
    """The part of the matrix that belongs to one area. ``dtypes`` are its columns."""

    area: str
    verdict: Verdict
    groups: int
    passed: int
    dtypes: tuple[str, ...]
    rows: tuple[MatrixRow, ...]


def facets_of(requirement: str, group: str, known: Requirement | None, device: str) -> Facets:
    """Return the values of a group, from the id of its requirement, its form, and the parameters in its name."""
    area, _, rest = requirement.partition("-")
    parameters = parameters_of(group)
    word = rest.rpartition("-")[0].lower() or rest.lower() or requirement.lower()
    op = parameters.get("op") or _covered(word, known) or word
    return Facets(
        area=area,
        op=op,
        form=_form(known),
        dtype=parameters.get("dtype", NONE),
        ranks=parameters.get("ranks", NONE),
        device=device,
    )


def _covered(word: str, known: Requirement | None) -> str | None:
    """Return the covered name that ``word`` of an id stands for: ``all_reduce`` for ``allreduce``."""
    names = (name.rpartition(".")[2] for name in (known.covers if known else ()))
    return next((name for name in names if name.replace("_", "") == word.replace("-", "")), None)


def anchor_of(group: str) -> str:
    """Return the id of a group's element on the page, the same in every report. A name may have any character."""
    return f"group-{hashlib.sha256(group.encode(errors='surrogatepass')).hexdigest()[:12]}"


def options_of(every: Iterable[Facets]) -> dict[str, list[str]]:
    """Return the values of each filter. A filter with one value only is left out."""
    values: dict[str, set[str]] = {name: set() for name in FACETS}
    for facets in every:
        for name in FACETS:
            values[name].add(getattr(facets, name))
    return {name: sorted(listed, key=_order) for name, listed in values.items() if len(listed) > 1}


def matrices_of(groups: Sequence[tuple[Facets, Verdict, str]]) -> tuple[Matrix, ...]:
    """Return the matrix of each area, from the facets, verdict and anchor of each group."""
    areas: dict[str, dict[tuple[str, str, str], list[tuple[Facets, Verdict, str]]]] = defaultdict(dict)
    for group in groups:
        facets = group[0]
        areas[facets.area].setdefault((facets.op, facets.form, facets.dtype), []).append(group)
    return tuple(_matrix(area, cells) for area, cells in sorted(areas.items()))


def _matrix(area: str, listed: dict[tuple[str, str, str], list[tuple[Facets, Verdict, str]]]) -> Matrix:
    dtypes = tuple(sorted({dtype for _, _, dtype in listed}, key=_order))
    keys = sorted({(op, form) for op, form, _ in listed})
    rows = tuple(
        MatrixRow(op, form, tuple(_cell(listed.get((op, form, dtype), [])) for dtype in dtypes)) for op, form in keys
    )
    verdicts = Counter(verdict for groups in listed.values() for _, verdict, _ in groups)
    return Matrix(area, merge(verdicts), verdicts.total(), verdicts[Verdict.PASS], dtypes, rows)


def _cell(groups: list[tuple[Facets, Verdict, str]]) -> Cell | None:
    if not groups:
        return None
    worst = merge(verdict for _, verdict, _ in groups)
    first = next((anchor for _, verdict, anchor in groups if verdict is worst), groups[0][2])
    return Cell(groups[0][0], worst, first, len(groups), sum(verdict is Verdict.PASS for _, verdict, _ in groups))


def _form(known: Requirement | None) -> str:
    """Return the form of a requirement, else the class or module of the first name that it covers."""
    if known is None:
        return NONE
    if known.form:
        return _ONE.sub(r"\1s", known.form)
    owner, dot, _ = known.covers[0].partition(".") if known.covers else ("", "", "")
    return owner if dot else NONE


def _order(value: str) -> tuple[bool, str, int, str]:
    """Order numbers by their value, types of elements by kind and width, and the dash last."""
    letters = value.rstrip("0123456789")
    digits = value[len(letters) :]
    return value == NONE, letters, int(digits) if digits.isascii() and digits and len(digits) < 10 else 0, value
