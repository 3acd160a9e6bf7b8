"""The allocations that kernels may access: registered segments, and the storages of a launch's arguments."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Allocation:
    """``size`` bytes at ``address``; ``peer`` is the rank that owns the memory, None for this process's own memory."""

    address: int
    size: int
    label: str
    peer: int | None = None

    @property
    def end(self) -> int:
        return self.address + self.size

    def contains(self, address: int, size: int) -> bool:
        return self.address <= address and address + size <= self.end


class Table:
    """Snapshot of the allocations as ``rank`` sees them, sorted by address.

    ``arrays`` and ``exact`` are (starts, ends, peer) for the native functions.

    In ``arrays`` the ends are rounded up to whole dwords: a packed 16-bit atomic on the last, odd element reads and
    swaps the dword that contains it.
    """

    def __init__(self, allocations: list[Allocation], rank: int | None = None) -> None:
        self.allocations = sorted(allocations, key=lambda a: a.address)
        starts = np.array([a.address for a in self.allocations], np.uint64)
        ends = np.array([a.end for a in self.allocations], np.uint64)
        peer = np.array([a.peer is not None and a.peer != rank for a in self.allocations], np.int32)
        self.exact = (starts, ends, peer)
        self.arrays = (starts, ends + np.uint64(3) & ~np.uint64(3), peer)
        self.addresses = tuple(array.ctypes.data for array in self.arrays)
        """Of the arrays, which native functions get."""

    def nearest(self, address: int) -> str:
        """Describe in words where ``address`` lies relative to the closest allocation."""
        if not self.allocations:
            return "no allocations are known"
        i = bisect_right([a.address for a in self.allocations], address)
        around = self.allocations[max(0, i - 1) : i + 1]
        best = min(around, key=lambda a: a.address - address if address < a.address else address - a.end)
        name = f"{best.label}, [{best.address:#x}, {best.end:#x})"
        if address < best.address:
            return f"{best.address - address} bytes before {name}"
        if address >= best.end:
            return f"{address - best.end} bytes past the end of {name}"
        return f"inside {name}, {best.end - address} bytes before its end"


class Allocations:
    """The registered allocations of this process.

    ``red_zones``: in a segment with carved parts, only these parts are accessible; the rest is a red zone. A launch
    adds its arguments. Not thread-safe: launches run one at a time. But ``unregister`` and ``uncarve`` may be called in
    the middle of any other method, by a finalizer that Python's garbage collector runs there.
    """

    def __init__(self, red_zones: bool = False) -> None:
        self.red_zones = red_zones
        # Replaced, never changed, since a finalizer may run while it is read.
        self._known: dict[int, Allocation] = {}
        # Per segment, the parts carved from it: offset -> (size, label).
        self._carved: dict[int, dict[int, tuple[int, str]]] = {}
        # Per segment that is confined, the offsets (start, stop) of what kernels may access.
        self._confined: dict[int, list[tuple[int, int]]] = {}
        self._tables: dict[tuple[object, ...], Table] = {}
        self.state = object()
        """Another object after each change."""

    def register(self, address: int, size: int, label: str, peer: int | None = None) -> None:
        """Add [address, address + size); ``ValueError`` if it overlaps a registered allocation."""
        if size <= 0 or address <= 0:
            raise ValueError(f"cannot register {size} bytes at {address:#x} ({label}): both must be positive numbers")
        for other in self._known.values():
            if address < other.end and other.address < address + size:
                raise ValueError(
                    f"cannot register {label} at {address:#x}: it overlaps {other.label} at {other.address:#x}"
                )
        self._known = {**self._known, address: Allocation(address, size, label, peer)}
        self._changed()

    def unregister(self, address: int) -> None:
        """Remove the allocation that starts at ``address``; ``ValueError`` if there is none."""
        if address not in self._known:
            raise ValueError(f"no allocation is registered at {address:#x}")
        self._known = {start: known for start, known in self._known.items() if start != address}
        self._carved.pop(address, None)
        self._changed()

    def carve(self, address: int, size: int, label: str) -> None:
        """Make [address, address + size) an allocation inside its segment, and in the other mappings of its heap."""
        segment = self._segment(address, size)
        if segment is None or size <= 0:
            raise ValueError(
                f"cannot carve {size} bytes at {address:#x} ({label}): no registered segment contains them"
            )
        offset = address - segment.address
        for other, (length, name) in tuple(self._carved.get(segment.address, {}).items()):
            if offset < other + length and other < offset + size:
                raise ValueError(f"cannot carve {label} at {address:#x}: it overlaps {name}")
        for mapping in self._mappings(segment):
            self._carved.setdefault(mapping.address, {})[offset] = (size, label)
        self._changed()

    def uncarve(self, address: int) -> None:
        """Undo ``carve``; ``ValueError`` if nothing was carved at ``address``."""
        segment = self._segment(address, 1)
        offset = address - segment.address if segment else -1
        if segment is None or offset not in self._carved.get(segment.address, {}):
            raise ValueError(f"nothing was carved at {address:#x}")
        for mapping in self._mappings(segment):
            self._carved.get(mapping.address, {}).pop(offset, None)
        self._changed()

    @contextmanager
    def confined(self, address: int, size: int, parts: Sequence[tuple[int, int]]) -> Iterator[None]:
        """Make of [address, address + size) only ``parts`` accessible, in each mapping of its heap.

        ``parts``: (start, stop) of disjoint ranges in it. ``ValueError`` if no segment contains the range, or if parts
        are carved from the segment.
        """
        segment = self._segment(address, size)
        if segment is None or segment.address in self._carved:
            raise ValueError(f"cannot confine {size} bytes at {address:#x}: they are not in one segment without parts")
        first, last = address - segment.address, address - segment.address + size
        inside = sorted((start - segment.address, stop - segment.address) for start, stop in parts)
        kept = [(start, stop) for start, stop in ((0, first), *inside, (last, segment.size)) if start < stop]
        self._confined = {mapping.address: kept for mapping in self._mappings(segment)}
        self._changed()
        try:
            yield
        finally:
            self._confined = {}
            self._changed()

    def table(self, extra: list[tuple[int, int, str]], rank: int | None = None) -> Table:
        """Return the registered allocations, and the launch's own allocations that lie in none of them.

        ``extra`` is (address, size, label). Memory registered for ``rank`` itself is local to it.
        """
        key = (rank, *((address, size) for address, size, _ in extra))
        table = self._tables.get(key)
        if table is None:
            if len(self._tables) > 256:
                self._tables.clear()
            before = self.state
            own: dict[int, Allocation] = {}
            for address, size, label in extra:
                inside = self._segment(address, size) is not None
                if size and not inside and (address not in own or own[address].size < size):
                    own[address] = Allocation(address, size, label)
            table = Table([*self._accessible(), *own.values()], rank)
            if self.state is before:
                self._tables[key] = table
        return table

    def ranges(self, rank: int | None) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Return the (start, end) of the registered segments that are this rank's own, and of other ranks'."""
        own: list[tuple[int, int]] = []
        others: list[tuple[int, int]] = []
        for known in self._known.values():
            (own if known.peer in (None, rank) else others).append((known.address, known.end))
        return own, others

    def contains(self, address: int) -> bool:
        """Return whether ``address`` lies in a registered segment."""
        return self._segment(address, 1) is not None

    def _changed(self) -> None:
        self.state = object()
        self._tables.clear()

    def _segment(self, address: int, size: int) -> Allocation | None:
        return next((known for known in self._known.values() if known.contains(address, size)), None)

    def _mappings(self, segment: Allocation) -> list[Allocation]:
        """Return the segment and the other mappings of its symmetric heap (own or peer): those of its size."""
        alike = [known for known in self._known.values() if known.size == segment.size]
        return alike if any(known.peer is not None for known in alike) else [segment]

    def _accessible(self) -> list[Allocation]:
        parts: list[Allocation] = []
        for known in self._known.values():
            for start, stop in self._confined.get(known.address, ()):
                label = f"{known.label} from byte {start}"
                parts.append(Allocation(known.address + start, stop - start, label, known.peer))
            if known.address in self._confined:
                continue
            carved = self._carved.get(known.address) if self.red_zones else None
            if carved is None:
                parts.append(known)
                continue
            for offset, (size, label) in tuple(carved.items()):
                parts.append(Allocation(known.address + offset, size, f"{label} in {known.label}", known.peer))
        return parts
