"""Shadow memory: a watched mode's state for each byte of global memory.

Bytes with the same history share one *cell*, an object of the mode; a byte that was never accessed has None. Cells are
kept in pages, so that memory which no kernel accesses costs nothing, and are freed when no byte refers to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

_PAGE_BITS = 14
_PAGE = 1 << _PAGE_BITS


class Shadow:
    """Cells by byte address."""

    def __init__(self) -> None:
        self._pages: dict[int, np.ndarray] = {}

    def region(self, addresses: np.ndarray, size: int) -> Region:
        """Return the bytes of an access: ``size`` bytes at each of ``addresses``, uint64[lanes]."""
        first = int(addresses[0])
        if len(addresses) == 1 or (addresses[1:] - addresses[:-1] == size).all():
            runs = _runs(first, len(addresses) * size)
            return Region(first, None, [(self._page(number), slice(low, high)) for number, low, high in runs])
        where = (addresses[:, None] + np.arange(size, dtype=np.uint64)).reshape(-1)
        numbers = where >> np.uint64(_PAGE_BITS)
        order = np.argsort(numbers, kind="stable") if (numbers != numbers[0]).any() else slice(None)
        where, numbers = where[order], numbers[order]
        parts = []
        for number in np.unique(numbers).tolist():
            offsets = (where[numbers == number] & np.uint64(_PAGE - 1)).astype(np.intp)
            parts.append((self._page(number), offsets))
        return Region(first, where, parts)

    def has(self, low: int, high: int) -> bool:
        """Return True if any byte of the pages of [low, high) may have a cell."""
        first, last = low >> _PAGE_BITS, (high - 1) >> _PAGE_BITS
        if last - first < len(self._pages):
            return any(number in self._pages for number in range(first, last + 1))
        return any(first <= number <= last for number in self._pages)

    def cells(self, address: int, size: int) -> list[Any]:
        """Return the cell of each of ``size`` bytes."""
        return [cell for number, low, high in _runs(address, size) for cell in self._page(number)[low:high].tolist()]

    def clear(self) -> None:
        """Forget everything."""
        self._pages.clear()

    def _page(self, number: int) -> np.ndarray:
        page = self._pages.get(number)
        if page is None:
            page = self._pages[number] = np.full(_PAGE, None, object)
        return page


class Region:
    """Bytes and their cells. ``cells`` are the distinct ones, in the order of their first bytes."""

    def __init__(self, first: int, where: np.ndarray | None, parts: list[tuple[np.ndarray, Any]]) -> None:
        self._first = first
        self._where = where
        self._parts = parts
        self._each = [page[at].tolist() for page, at in parts]
        cells: dict[Any, None] = {}
        for each in self._each:
            # Most accesses have one cell only, and counting finds that out faster than hashing.
            cells.update(dict.fromkeys(each[:1] if each.count(each[0]) == len(each) else each))
        self.cells: list[Any] = list(cells)

    def address_of(self, cell: object) -> int:
        """Return the first byte that has ``cell``."""
        at = [c is cell for each in self._each for c in each].index(True)
        return self._first + at if self._where is None else int(self._where[at])

    def bytes_of(self, cell: object) -> int:
        """Return the number of bytes that have ``cell``."""
        return sum(c is cell for each in self._each for c in each)

    def replace(self, new: Mapping[Any, Any]) -> None:
        """Set the cell of each byte to ``new[its cell]``."""
        if len(self.cells) == 1:
            for page, at in self._parts:
                page[at] = new[self.cells[0]]
            return
        for (page, at), each in zip(self._parts, self._each, strict=True):
            page[at] = list(map(new.__getitem__, each))


def _runs(first: int, size: int) -> list[tuple[int, int, int]]:
    """Split [first, first + size) by page: page number, and the run's bounds in it."""
    runs = []
    while size:
        low = first & (_PAGE - 1)
        taken = min(size, _PAGE - low)
        runs.append((first >> _PAGE_BITS, low, low + taken))
        first, size = first + taken, size - taken
    return runs
