"""Origin of an element: the rank and the place whose payload it is, or memory that the case never wrote.

    {"kind": "payload", "rank": 2, "element": 5}      rank 2's element 5; with "round", "call" where they are not 0
    {"kind": "unwritten", "rank": 1, "byte": 4711}    poison of rank 1's arena
    {"kind": "reduction", "without": 1}               the result without member 1's part; "twice": with it twice
    {"kind": "zero"}                                  all bits are 0
    {"kind": "ambiguous"}                             too few bits, or too long payloads, to state whose it is
    {"kind": "unknown"}                               none of these

A narrow element has few bits, so the elements after it are compared too. ``candidates`` counts the places that fit
equally well, if there are several.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from harness.cases.contribution import REDUCTIONS, Reduction
from harness.cases.dtypes import of_name
from harness.cases.payload import SCHEMES, Scheme
from harness.oracles.folds import FOLDS

_AFTER = 64
"""Elements after the first that are compared."""

_BITS_MORE = 5
"""Bits of an element by which a match must exceed the number of possible places, so that it is not by chance."""

_SEARCHED, _MATCHES = 1 << 22, 256
"""Elements of payloads that are searched in all, those of the last calls first, and equal elements of one rank."""

_RESULTS = 16
"""Places of a result that are compared with partial ones."""

_ARENA = 1 << 20
"""Bytes of each rank's poison that are searched."""

_RUNS = 16
"""Runs of wrong elements that a difference lists."""

_WINDOW, _LEAST_WINDOW = 8, 4
"""Bytes of poison that are compared."""


@functools.lru_cache(maxsize=32)
def poison(rank: int, size: int) -> NDArray[np.uint8]:
    """Return the pattern that a rank's heap holds before a case writes it. It is shared: do not write to it."""
    return np.random.default_rng(0x1815 + rank).integers(0, 256, size, dtype=np.uint8)


def origin(values: torch.Tensor, *, rank: int, near: int | None = None) -> dict[str, Any]:
    """Return the origin of ``values[0]``, an element on ``rank``; the values after it decide between equal ones.

    ``values`` has one dimension and is on the CPU. ``near``: the element that is preferred among equal ones.
    """
    memory = values[: _AFTER + 1].contiguous().view(torch.uint8).numpy()
    zero = not memory[: values.itemsize].any()
    place = _of_payload(values, near)
    # Payloads of floats start with a zero: only in its own place it is more likely than memory full of zeros.
    if place is not None and not (zero and place.get("element") != near):
        return place
    if zero:
        return {"kind": "zero"}
    complete = sum(scheme.count * scheme.ranks for scheme in SCHEMES.latest_first()) <= _SEARCHED
    return _of_poison(memory, rank) or {"kind": "unknown" if complete else "ambiguous"}


Origins = tuple[dict[str, Any], dict[str, Any]]
"""Origins of the actual and the expected value of an element."""


def of_reduction(got: torch.Tensor, wanted: torch.Tensor) -> Origins | None:
    """Return the origins of an element, each a tensor of one element, if ``wanted`` is the result of a reduction of
    which ``got`` lacks a member's part or has it twice; else None. Elements of one byte have too few bits."""
    if wanted.itemsize == 1:
        return None
    for reduction in REDUCTIONS.latest_first():
        if of_name(reduction.dtype) != wanted.dtype or reduction.count * reduction.members > _SEARCHED:
            continue
        parts = torch.stack([reduction.of_member(member) for member in range(reduction.members)])
        whole = _folded(reduction, parts)
        for place in torch.nonzero(whole == wanted).flatten()[:_RESULTS].tolist():
            for member in range(reduction.members):
                column = parts[:, place]
                others = torch.cat([column[:member], column[member + 1 :]])
                for word, values in (("without", others), ("twice", torch.cat([column, column[member : member + 1]]))):
                    if len(values) and bool(_folded(reduction, values.unsqueeze(1)) == got):
                        return {"kind": "reduction", word: member}, {"kind": "reduction"}
    return None


def _folded(reduction: Reduction, parts: torch.Tensor) -> torch.Tensor:
    """Return the reduction over the first dimension; sums and products of 16-bit floats are rounded once."""
    narrow = parts.dtype in (torch.float16, torch.bfloat16) and reduction.op in ("sum", "product")
    values = parts.float() if narrow else parts
    return functools.reduce(FOLDS[reduction.op], values.unbind()).to(parts.dtype)


def detail(
    place: str,
    region: str,
    wrong: NDArray[np.intp],
    origins: Origins,
    *,
    total: int,
    outside: int | None = None,
    byte: int | None = None,
) -> dict[str, Any]:
    """Return the details of a difference as plain data; see ``harness.evidence.Difference``.

    ``wrong`` are the indices of all wrong elements in the region, of ``total``. ``outside``: the elements are not in
    the region, and ``outside`` bytes have changed there. ``origins``: of the first element, actual and expected.
    ``byte``: its first wrong byte in the arena.
    """
    ends = np.flatnonzero(np.diff(wrong) != 1)
    firsts, lasts = wrong[np.r_[0, ends + 1]], wrong[np.r_[ends, len(wrong) - 1]]
    runs = [[int(first), int(last) + 1] for first, last in zip(firsts[:_RUNS], lasts[:_RUNS], strict=True)]
    return {
        "place": place,
        "region": region,
        "element": int(wrong[0]),
        "runs": runs,
        "wrong": len(wrong) if outside is None else outside,
        "of": total,
        "bytes": outside is not None,
        "got": origins[0],
        "wanted": origins[1],
        **({} if byte is None else {"byte": byte}),
    }


def _of_payload(values: torch.Tensor, near: int | None) -> dict[str, Any] | None:
    best: tuple[int, bool, bool] | None = None
    chosen: dict[str, Any] = {}
    candidates = places = 0
    for number, scheme in enumerate(_searched()):
        for rank in range(scheme.ranks):
            sent = _bits(_as_type(scheme, rank, values.dtype))
            got = _bits(values[: _AFTER + 1])
            if sent is None or got is None or sent.dtype != got.dtype:
                continue
            places += len(sent)
            for element in _places(sent, got[0], near):
                alike = _alike(sent[element:], got)
                rating = alike, element == near, number == 0
                if best is None or rating[0] > best[0]:
                    candidates = 0
                candidates += best is None or rating[0] >= best[0]
                if best is None or rating > best:
                    best, chosen = rating, _place(scheme, rank, element)
    if best is None:
        return None
    bits = 1 if values.dtype == torch.bool else 8 * values.itemsize
    expected_place = best[1] and bits > 1
    if best[0] * bits < places.bit_length() - 1 + _BITS_MORE and not expected_place:
        return {"kind": "ambiguous"}
    return chosen | ({"candidates": candidates} if candidates > 1 else {})


def _searched() -> Iterator[Scheme]:
    """Yield the schemes of the last payloads, until they have too many elements to search."""
    left = _SEARCHED
    for scheme in SCHEMES.latest_first():
        left -= scheme.count * scheme.ranks
        if left < 0:
            return
        yield scheme


def _places(sent: NDArray[Any], value: Any, near: int | None) -> list[int]:
    """Return the places of ``value`` in a payload, ``near`` included if it is one; few of those in a long payload."""
    places: list[int] = np.flatnonzero(sent == value)[:_MATCHES].tolist()
    if near is not None and near not in places and 0 <= near < len(sent) and sent[near] == value:
        places.append(near)
    return places


def _place(scheme: Scheme, rank: int, element: int) -> dict[str, Any]:
    more = {name: value for name, value in (("round", scheme.round_), ("call", scheme.repetition)) if value}
    return {"kind": "payload", "rank": rank, "element": element, **more}


def _as_type(scheme: Scheme, rank: int, dtype: torch.dtype) -> torch.Tensor:
    """Return the payload as elements of ``dtype``: its bits, or its values where the operation converts them."""
    sent = scheme.of_rank(rank)
    return sent.to(dtype) if scheme.converted and dtype.is_floating_point else sent


def _bits(values: torch.Tensor) -> NDArray[Any] | None:
    """Return the elements as unsigned integers; None if the type has a size that no payload has."""
    kinds = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
    if values.itemsize not in kinds or not values.numel():
        return None
    return values.contiguous().view(torch.uint8).numpy().view(kinds[values.itemsize])


def _alike(sent: NDArray[Any], got: NDArray[Any]) -> int:
    """Return the number of leading elements that are equal."""
    size = min(len(sent), len(got))
    differing = np.flatnonzero(sent[:size] != got[:size])
    return int(differing[0]) if len(differing) else size


def _of_poison(memory: NDArray[np.uint8], rank: int) -> dict[str, Any] | None:
    window = memory[:_WINDOW].tobytes()
    if len(window) < _LEAST_WINDOW:
        return None
    ranks = max((scheme.ranks for scheme in SCHEMES.latest_first()), default=rank + 1)
    for one in (rank, *(other for other in range(ranks) if other != rank)):
        if (byte := poison(one, _ARENA).tobytes().find(window)) >= 0:
            return {"kind": "unwritten", "rank": one, "byte": byte}
    return None
