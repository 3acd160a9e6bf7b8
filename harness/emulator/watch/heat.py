"""Heat maps: bytes that each rank read, wrote and changed atomically, by allocation and address."""

from __future__ import annotations

import html
from dataclasses import dataclass

import numpy as np

from harness.emulator.execution.allocations import Allocation
from harness.emulator.native import summaries

READ, WRITTEN, ATOMIC = range(3)
_KINDS = ("read", "written", "atomic")
_SHADES = " .:-=+*#%@"


@dataclass(frozen=True)
class Heat:
    """One rank's accesses to one allocation: bytes in each of equal ``buckets`` of addresses.

    A bucket is ``bucket`` bytes wide (the last one may be narrower). ``peer`` is the owner's rank, None for memory that
    belongs to no other rank.
    """

    rank: int
    allocation: str
    peer: int | None
    size: int
    bucket: int
    read: list[int]
    written: list[int]
    atomic: list[int]


class HeatMap:
    """Counts by rank and allocation, with at most ``buckets`` buckets per allocation."""

    def __init__(self, buckets: int) -> None:
        self.buckets = buckets
        self._counts: dict[tuple[int, Allocation], np.ndarray] = {}

    def add(self, rank: int, allocation: Allocation, addresses: np.ndarray, size: int, kind: int) -> None:
        """Count ``size`` bytes at each of ``addresses``, all in ``allocation``."""
        counts = self.counts_of(rank, allocation)[kind]
        at = (addresses - np.uint64(allocation.address)) // np.uint64(self.width(allocation))
        at = np.minimum(at, len(counts) - 1)  # an access may begin after the end, in the same dword
        counts += np.bincount(at.astype(np.int64), minlength=len(counts)) * size

    def add_lanes(
        self, rank: int, allocation: Allocation, addresses: np.ndarray, lanes: np.ndarray, size: int, kind: int
    ) -> None:
        """Count ``size`` bytes at the addresses uint64[W, 64] of ``lanes`` bool[W, 64], all in ``allocation``."""
        counts = self.counts_of(rank, allocation)[kind]
        summaries.count_bytes(addresses, lanes, allocation.address, self.width(allocation), size, counts)

    def counts_of(self, rank: int, allocation: Allocation) -> np.ndarray:
        """Return the counts, int64[3, buckets] by kind of access, which may be added to; the same array each time."""
        key = rank, allocation
        if key not in self._counts:
            self._counts[key] = np.zeros((3, -(-allocation.size // self.width(allocation))), np.int64)
        return self._counts[key]

    def heats(self) -> list[Heat]:
        """Return all counts, by rank and in the order of first use."""
        return [
            Heat(rank, a.label, a.peer, a.size, self.width(a), *counts.tolist())
            for (rank, a), counts in sorted(self._counts.items(), key=lambda item: item[0][0])
        ]

    def width(self, allocation: Allocation) -> int:
        """Return the bytes of a bucket, whole dwords. An access counts where it begins."""
        return -(-allocation.size // self.buckets) + 3 & ~3


def as_text(heats: list[Heat]) -> str:
    """Return a table: a row for each rank, allocation and kind of access, a character for each bucket."""
    rows = [("rank", "allocation", "access", "bytes", f"from the first byte to the last, {_SHADES[1:]!r} by density")]
    for heat, kind, counts in _rows(heats):
        rows.append((str(heat.rank), heat.allocation, kind, str(sum(counts)), _bar(counts)))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    return "\n".join("  ".join([*(c.ljust(w) for c, w in zip(row[:4], widths, strict=True)), row[4]]) for row in rows)


def as_html(heats: list[Heat]) -> str:
    """Return the table as one HTML page, darker where more bytes were accessed; the tooltips name bytes and count."""
    lines = []
    for heat, kind, counts in _rows(heats):
        maximum = max(counts)
        cells = "".join(
            f'<td class="h" style="--d:{count / maximum:.3f}" title="bytes {i * heat.bucket} to '
            f'{min((i + 1) * heat.bucket, heat.size) - 1}: {count}"></td>'
            for i, count in enumerate(counts)
        )
        name = html.escape(heat.allocation)
        lines.append(f"<tr><th>{heat.rank}</th><th>{name}</th><th>{kind}</th><th>{sum(counts)}</th>{cells}</tr>")
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Memory accesses</title><style>'
        "body{font:14px sans-serif}th{text-align:left;padding:0 .6em;font-weight:normal}"
        "td.h{width:8px;height:16px;background:rgb(178 24 43/var(--d))}table{border-collapse:collapse}</style>"
        "<h1>Bytes accessed, by rank and allocation</h1><table><tr><th>rank<th>allocation<th>access<th>bytes</tr>"
        + "\n".join(lines)
        + "</table></html>\n"
    )


def _rows(heats: list[Heat]) -> list[tuple[Heat, str, list[int]]]:
    rows = [(heat, kind, getattr(heat, kind)) for heat in heats for kind in _KINDS]
    return [row for row in rows if any(row[2])]


def _bar(counts: list[int]) -> str:
    maximum = max(counts)
    return "".join(_SHADES[-(-count * (len(_SHADES) - 1) // maximum)] for count in counts)
