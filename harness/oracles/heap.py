"""Expected content of a rank's whole heap, byte by byte, and its comparison with the actual content.

Terms: the *arena* is one uint8 tensor that covers the part of the symmetric heap that cases use; *poison* is a fixed
pattern that differs from byte to byte and rank to rank, so that moved or overwritten memory shows; a *region* is a
named part that a case uses. All memory outside regions must stay poison, so it guards every region.

There is one image per rank process, used by one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from harness.errors import HarnessError
from harness.oracles.differences import difference, hidden_bytes
from harness.oracles.origin import Origins, detail, of_reduction, origin, poison

GUARD = 64
"""Least number of untouched bytes before, between and after regions."""


@dataclass(frozen=True)
class Region:
    """``count`` elements of ``dtype`` from byte ``start`` of the arena.

    ``lanes`` of the kernel address elements from ``start`` on: the mask switches those from ``count`` on off.
    """

    name: str
    start: int
    count: int
    dtype: torch.dtype
    lanes: int

    @property
    def stop(self) -> int:
        """The first byte after the region."""
        return self.start + self.count * self.dtype.itemsize


class HeapImage:
    """Expected content of a heap, for comparison with the heap itself."""

    def __init__(self, arena: torch.Tensor, rank: int) -> None:
        if arena.dtype != torch.uint8 or arena.dim() != 1 or not arena.is_contiguous():
            raise HarnessError(f"the arena must be a flat uint8 tensor, not {arena.dtype} {tuple(arena.shape)}")
        self.arena = arena
        self.rank = rank
        self._poison = torch.from_numpy(poison(rank, arena.numel()).copy())
        self._wanted = self._poison.clone()
        self._regions: list[Region] = []
        self._selected: dict[Region, np.ndarray] = {}
        # Copies on the GPU and in pinned memory, so that a case costs only two fast copies.
        self._poison_there = self._poison.to(arena.device)
        self._here = torch.empty_like(self._wanted, pin_memory=True) if arena.device.type != "cpu" else arena

    def reset(self) -> None:
        """Fill the arena with poison; drop all regions and expectations."""
        self._regions.clear()
        self._selected.clear()
        self._wanted.copy_(self._poison)
        self.arena.copy_(self._poison_there)

    @property
    def regions(self) -> tuple[Region, ...]:
        """The regions that the case has claimed so far."""
        return tuple(self._regions)

    def claim(self, name: str, start: int, count: int, dtype: torch.dtype, lanes: int = 0) -> Region:
        """Name a part of the arena. Raises HarnessError if it leaves no guard to the edge or to another region."""
        region = Region(name, start, count, dtype, lanes)
        if start < GUARD or region.stop > self.arena.numel() - GUARD:
            raise HarnessError(f"{name} at {start} with {count} elements leaves no guard in {self.arena.numel()} bytes")
        for other in self._regions:
            if region.start < other.stop + GUARD and other.start < region.stop + GUARD:
                raise HarnessError(f"{name} at {start} leaves no guard to {other.name} at {other.start}")
        self._regions.append(region)
        return region

    def tensor(self, region: Region) -> torch.Tensor:
        """Return the region itself, on the heap, as a 1-D tensor to pass to a kernel."""
        return self.arena[region.start : region.stop].view(region.dtype)

    def fill(self, region: Region, values: torch.Tensor) -> None:
        """Write ``values`` to the heap and expect them there at the end of the case."""
        self.tensor(region).copy_(values)
        self.expect(region, values)

    def expect(self, region: Region, values: torch.Tensor, where: np.ndarray | None = None) -> None:
        """Expect ``values`` in the region; with the booleans ``where``, only in the elements that they select."""
        target = self._wanted[region.start : region.stop].view(region.dtype)
        if where is None:
            target.copy_(values)
            return
        self._selected[region] = where
        place(target, values.cpu(), where)

    def expected(self, region: Region) -> torch.Tensor:
        """Return the expected content of the region, which the caller may change in place."""
        return self._wanted[region.start : region.stop].view(region.dtype)

    def unwritten(self, region: Region) -> torch.Tensor:
        """Return the content that the region has before the case writes it."""
        return self._poison[region.start : region.stop].view(region.dtype)

    def difference(self) -> dict[str, Any] | None:
        """Return the first wrong element: of the regions in the order of their claims, then of all other memory."""
        if self._here is not self.arena:
            self._here.copy_(self.arena)
        if torch.equal(self._here, self._wanted):
            return None
        got, wanted = self._here.numpy(), self._wanted.numpy()
        wrong = got != wanted
        inside = (self._in_region(region, got, wanted, wrong) for region in self._regions)
        entries = [entry for entry in inside if entry is not None]
        entries += self._outside(got, wanted, wrong)
        first = entries[0]
        if len(entries) > 1:
            first["more"] += "; also wrong: " + ", ".join(f"{entry['what']} ({entry['more']})" for entry in entries[1:])
        return first

    def _in_region(
        self, region: Region, got: np.ndarray, wanted: np.ndarray, wrong: np.ndarray
    ) -> dict[str, Any] | None:
        part = slice(region.start, region.stop)
        elements = np.flatnonzero(wrong[part].reshape(region.count, region.dtype.itemsize).any(axis=1))
        if not len(elements):
            return None
        index = int(elements[0])
        mine, right = self._element(got, region, index), self._element(wanted, region, index)
        values = self._value(mine, region), self._value(right, region)
        more = f"{len(elements)} of {region.count} elements are wrong{hidden_bytes(*values, mine, right)}"
        if np.array_equal(mine, self._element(self._poison.numpy(), region, index)):
            more += "; it was never written"
        selected = self._selected.get(region)
        kind = "inside" if selected is None or selected[index] else "masked"
        origins = self._origins(region, index, got, wanted)
        byte = region.start + int(np.flatnonzero(wrong[part])[0])
        details = detail(kind, region.name, elements, origins, total=region.count, byte=byte)
        return difference(
            region.name, rank=self.rank, index=index, got=values[0], wanted=values[1], more=more, details=details
        )

    def _origins(
        self, region: Region, index: int, got: np.ndarray, wanted: np.ndarray, stop: int | None = None
    ) -> Origins:
        """Return the origins of an element of the region, or of one before or after it, in the actual and in the
        expected content; ``stop`` is the first byte that is not compared."""
        size = region.dtype.itemsize
        start = region.start + index * size
        last = (region.stop if stop is None else stop) - start
        right, mine = (
            torch.from_numpy(memory[start : start + last - last % size].copy()).view(region.dtype)
            for memory in (wanted, got)
        )
        unwritten: dict[str, Any] = {"kind": "unwritten", "rank": self.rank, "byte": start}
        pristine = self._element(self._poison.numpy(), region, index)
        same = np.array_equal(self._element(wanted, region, index), pristine)
        expected = unwritten if same else origin(right, rank=self.rank, near=index)
        if np.array_equal(self._element(got, region, index), pristine):
            return unwritten, expected
        if (reduced := of_reduction(mine[:1], right[:1])) is not None:
            return reduced
        return origin(mine, rank=self.rank, near=expected.get("element", index)), expected

    def _outside(self, got: np.ndarray, wanted: np.ndarray, wrong: np.ndarray) -> list[dict[str, Any]]:
        rest = wrong.copy()
        for region in self._regions:
            rest[region.start : region.stop] = False
        places = np.flatnonzero(rest)
        if not len(places):
            return []
        index = int(places[0])
        side, near = self._neighbourhood(index)
        subject = f"guard {side} {near.name}" if near else "untouched memory"
        kept = {"kind": "unwritten", "rank": self.rank, "byte": index}
        source: dict[str, Any] = {"kind": "unknown"}
        kind, elements = side, places
        if near is not None:
            size = near.dtype.itemsize
            elements = np.unique((places - near.start) // size)
            kind = "masked" if side == "after" and index < near.start + near.lanes * size else side
            stop = near.start if side == "before" else near.stop + GUARD
            source, _ = self._origins(near, (index - near.start) // size, got, wanted, stop)
            elements = elements[elements >= (index - near.start) // size]
        elif self._regions:
            # Elements of the last region's type, from the multiple of its size before the byte.
            arena = replace(self._regions[-1], start=0)
            source, _ = self._origins(arena, index // arena.dtype.itemsize, got, wanted, len(got))
        name = near.name if near else ""
        details = detail(kind, name, elements, (source, kept), total=len(got), outside=len(places), byte=index)
        return [
            difference(
                f"{subject} (byte of the arena)",
                rank=self.rank,
                index=index,
                got=int(got[index]),
                wanted=int(wanted[index]),
                more=f"{len(places)} bytes that nothing may write have changed",
                details=details,
            )
        ]

    def _neighbourhood(self, index: int) -> tuple[str, Region | None]:
        """Return "before" or "after" with the region whose guard has this byte; "outside" if it is in none."""
        for region in self._regions:
            if region.start - GUARD <= index < region.start:
                return "before", region
            if region.stop <= index < region.stop + GUARD:
                return "after", region
        return "outside", None

    @staticmethod
    def _element(memory: np.ndarray, region: Region, index: int) -> np.ndarray:
        size = region.dtype.itemsize
        return memory[region.start + index * size : region.start + (index + 1) * size]

    @staticmethod
    def _value(element: np.ndarray, region: Region) -> Any:
        return torch.from_numpy(element.copy()).view(region.dtype)[0].item()


def place(target: torch.Tensor, values: torch.Tensor, where: np.ndarray) -> None:
    """Copy the elements of ``values`` that the booleans ``where`` select to ``target``, bit by bit. Both have one
    dimension and the same dtype, and are on the CPU.

    ``target[where] = values[where]`` does not keep the bits of a signalling NaN if it is the only element chosen:
    torch 2.13 converts it to a Python number there.
    """
    size = target.itemsize
    to = target.view(torch.uint8).view(-1, size)
    to[torch.from_numpy(where)] = values.contiguous().view(torch.uint8).view(-1, size)[torch.from_numpy(where)]


def starts(first: int, sizes: Sequence[int], align: int = 1024) -> list[int]:
    """Return byte offsets at which regions of ``sizes`` bytes fit one after the other, aligned, with guards."""
    offsets = []
    place = first
    for size in sizes:
        place = -(-(place + GUARD) // align) * align
        offsets.append(place)
        place += size + GUARD
    return offsets
