"""The allocations that kernels may touch: registered segments, and the storages of a launch's arguments."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Allocation:
    """``size`` bytes at ``address``; ``peer`` is the rank whose memory it is, None for this process's own."""

    address: int
    size: int
    label: str
    peer: int | None = None

    @property
    def end(self) -> int:
        return self.address + self.size


class Table:
    """A snapshot, sorted by address, as ``rank`` sees it; ``arrays`` is (starts, ends, peer) for the native
    functions."""

    def __init__(self, allocations: list[Allocation], rank: int | None = None) -> None:
        self.allocations = sorted(allocations, key=lambda a: a.address)
        self.arrays = (
            np.array([a.address for a in self.allocations], np.uint64),
            np.array([a.end for a in self.allocations], np.uint64),
            np.array([a.peer is not None and a.peer != rank for a in self.allocations], np.int32),
        )

    def nearest(self, address: int) -> str:
        """In words, where ``address`` lies relative to the closest allocation."""
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

    A launch adds its arguments. Not thread-safe: launches run one at a time.
    """

    def __init__(self) -> None:
        self._known: dict[int, Allocation] = {}
        self._tables: dict[tuple[object, ...], Table] = {}

    def register(self, address: int, size: int, label: str, peer: int | None = None) -> None:
        """Make [address, address + size) known. ``ValueError`` when it overlaps a registered allocation."""
        if size <= 0 or address <= 0:
            raise ValueError(f"cannot register {size} bytes at {address:#x} ({label}): both must be positive")
        for other in self._known.values():
            if address < other.end and other.address < address + size:
                raise ValueError(
                    f"cannot register {label} at {address:#x}: it overlaps {other.label} at {other.address:#x}"
                )
        self._known[address] = Allocation(address, size, label, peer)
        self._tables.clear()

    def unregister(self, address: int) -> None:
        """Forget the allocation that starts at ``address``; ``ValueError`` when there is none."""
        if address not in self._known:
            raise ValueError(f"no allocation is registered at {address:#x}")
        del self._known[address]
        self._tables.clear()

    def table(self, extra: list[tuple[int, int, str]], rank: int | None = None) -> Table:
        """The registered allocations and the launch's own ones that lie in none of them.

        ``extra`` is (address, size, label). Memory registered for ``rank`` itself is local to it.
        """
        key = (rank, *((address, size) for address, size, _ in extra))
        if key not in self._tables:
            if len(self._tables) > 256:
                self._tables.clear()
            own: dict[int, Allocation] = {}
            for address, size, label in extra:
                inside = any(k.address <= address and address + size <= k.end for k in self._known.values())
                if size and not inside and (address not in own or own[address].size < size):
                    # Whole dwords: a packed 16-bit atomic on the last, odd element reads and swaps the dword around it.
                    own[address] = Allocation(address, -(-size // 4) * 4, label)
            self._tables[key] = Table([*self._known.values(), *own.values()], rank)
        return self._tables[key]
