"""Placement of allocations in a range of bytes: arithmetic only, the same decisions on every rank."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

__all__ = ["Placement"]


class Placement:
    """The live allocations of ``size`` bytes, lowest place first. Not thread-safe.

    Example, 100 bytes: take(0, 30), take(32, 20), release(0): the holes are [0, 32) and [52, 100), and ``find(40, 4)``
    is 52.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}

    @property
    def end(self) -> int:
        """The first byte after the highest allocation."""
        return self._starts[-1] + self._sizes[self._starts[-1]] if self._starts else 0

    @property
    def free(self) -> int:
        """Bytes outside every allocation, those lost to alignment among them."""
        return self.size - sum(self._sizes.values())

    def largest_hole(self, below: int | None = None) -> int:
        """Bytes of the longest run outside every allocation, below the offset ``below``."""
        return max((stop - start for start, stop in self._holes(below)), default=0)

    def find(
        self, num_bytes: int, alignment: int, avoid: Iterable[tuple[int, int]] = (), below: int | None = None
    ) -> int | None:
        """The lowest multiple of ``alignment`` with ``num_bytes`` free; None if there is none.

        ``avoid``: further ranges [start, stop) that must not be touched. ``below``: the offset at which the bytes must
        end, by default the size.
        """
        for start, stop in self._holes(below, avoid):
            place = -(-start // alignment) * alignment
            if place + num_bytes <= stop:
                return place
        return None

    def take(self, offset: int, num_bytes: int) -> None:
        """Record [offset, offset + num_bytes), a result of ``find``, as an allocation."""
        self._starts.insert(bisect_left(self._starts, offset), offset)
        self._sizes[offset] = num_bytes

    def release(self, offset: int) -> int:
        """Free the allocation that starts at ``offset`` and return its size; KeyError if none starts there."""
        size = self._sizes.pop(offset)
        del self._starts[bisect_left(self._starts, offset)]
        return size

    def overlaps(self, start: int, stop: int) -> bool:
        """Return True if a live allocation has a byte in [start, stop)."""
        index = bisect_left(self._starts, stop) - 1
        return index >= 0 and self._starts[index] + self._sizes[self._starts[index]] > start

    def _holes(self, below: int | None, avoid: Iterable[tuple[int, int]] = ()) -> list[tuple[int, int]]:
        limit = self.size if below is None else below
        holes, last = [], 0
        for start, stop in sorted([*avoid, *((start, start + self._sizes[start]) for start in self._starts)]):
            if (free := min(start, limit)) > last:
                holes.append((last, free))
            last = max(last, stop)
        if last < limit:
            holes.append((last, limit))
        return holes
