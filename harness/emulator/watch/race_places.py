"""Memory in the records of mode ``race``: the judge's addresses, which are the same for all ranks.

Each shared file has an address space of its own, and so has the other memory of each process; see ``race_record``.
"""

from __future__ import annotations

import bisect
import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

LINE_BITS = 7
"""Accesses of hosts are judged in the lines, of 128 bytes, that kernels access."""

_PRIVATE_BITS = 48
"""A process's own addresses, and offsets in a file, have fewer bits."""


class Places:
    """Address spaces of the judge: one for each shared file, and one for each process. 0 is never used."""

    def __init__(self) -> None:
        self._bases: dict[Any, int] = {}
        self.named: dict[int, tuple[int, int, str, int]] = {}
        """Pieces of memory with a label by the judge's address: as in ``_Map``."""

    def base(self, memory: Any) -> int:
        return self._bases.setdefault(memory, len(self._bases) + 1 << _PRIVATE_BITS)


class Map:
    """Translates a rank's addresses, by the ``_pieces`` of its memory, to those of the judge."""

    def __init__(self, pieces: Sequence[Sequence[Any]], rank: int, places: Places) -> None:
        self._pieces = [
            (places.base(("process", rank) if file is None else ("file", file)) + offset, end - start, label, within)
            for start, end, file, offset, label, within in pieces
        ]
        places.named.update({piece[0]: piece for piece in self._pieces if piece[2]})
        self._rank = rank
        self._places = places
        self._bounds = [(piece[0], piece[1]) for piece in pieces]
        self._starts = np.array([piece[0] for piece in pieces], np.uint64)
        self._ends = np.array([piece[1] for piece in pieces], np.uint64)
        self._targets = np.array([piece[0] for piece in self._pieces], np.uint64)
        self._private = np.uint64(places.base(("process", rank)))

    def replaced_by(self, pieces: Sequence[Sequence[Any]]) -> Map:
        """Return the map of the same rank with other pieces of memory."""
        return Map(pieces, self._rank, self._places)

    def translate(self, addresses: np.ndarray) -> np.ndarray:
        """Return the judge's addresses. One outside every piece, which faults, is private."""
        at = np.searchsorted(self._starts, addresses, side="right").astype(np.intp) - 1
        inside = (at >= 0) & (addresses < self._ends[at]) if len(self._ends) else np.zeros(len(addresses), np.bool_)
        moved = addresses - self._starts[at] + self._targets[at] if len(self._ends) else addresses
        return np.where(inside, moved, addresses + self._private)

    def translate_run(self, first: int, count: int, size: int) -> np.ndarray:
        """Return the judge's addresses of ``count`` accesses of ``size`` bytes that follow one another from ``first``
        on."""
        start = self.run(first, (count - 1) * size + 1)
        if start is None:
            return self.translate(_steps(count, size) + np.uint64(first))
        moved: np.ndarray = _steps(count, size) + np.uint64(start)
        return moved

    def run(self, first: int, size: int) -> int | None:
        """Return the judge's address of ``size`` bytes in succession; None if they do not lie in one piece."""
        piece = bisect.bisect_right(self._bounds, first, key=operator.itemgetter(0)) - 1
        if piece < 0 or first + size > self._bounds[piece][1]:
            return None
        return int(first - self._bounds[piece][0] + self._pieces[piece][0])

    def place(self, address: int) -> str:
        """Describe one of the judge's addresses in words."""
        for start, size, label, within in (*self._pieces, *self._places.named.values()):
            if label and start <= address < start + size:
                return f"byte {within + address - start} of {label}"
        return "memory outside every allocation"


def parts_in(addresses: np.ndarray, size: int, lines: np.ndarray) -> list[tuple[int, int]]:
    """Return the parts of ``size`` bytes at each of ``addresses`` that lie in ``lines`` (sorted), as (start, bytes)."""
    low = np.searchsorted(lines, addresses >> LINE_BITS)
    high = np.searchsorted(lines, addresses + np.uint64(size - 1) >> LINE_BITS, side="right")
    parts: list[tuple[int, int]] = []
    for row in np.flatnonzero(high > low).tolist():
        start = int(addresses[row])
        for line in lines[low[row] : high[row]].tolist():
            at, stop = max(start, line << LINE_BITS), min(start + size, line + 1 << LINE_BITS)
            if parts and sum(parts[-1]) == at:
                parts[-1] = parts[-1][0], stop - parts[-1][0]
            else:
                parts.append((at, stop - at))
    return parts


@functools.lru_cache(maxsize=1024)
def lanes_of(mask: int) -> np.ndarray:
    """Return the numbers of the set bits; read-only."""
    lanes: np.ndarray = np.flatnonzero(np.array([mask >> lane & 1 for lane in range(mask.bit_length())]))
    lanes.flags.writeable = False
    return lanes


@functools.lru_cache(maxsize=1024)
def _steps(count: int, size: int) -> np.ndarray:
    """Return the first ``count`` multiples of ``size``; read-only."""
    steps: np.ndarray = np.arange(count, dtype=np.uint64) * np.uint64(size)
    steps.flags.writeable = False
    return steps
