"""A kernel as blocks of steps, in one form for amdgcn and PTX."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from harness.isa.record import Kind
from harness.isa.sources import Frame, Where

Scope = Literal["", "cta", "gpu", "sys"]
SCOPES: tuple[Scope, ...] = ("", "cta", "gpu", "sys")
"""From the narrowest to the widest; "" is an access that any cache may answer or keep."""


_COMPARISONS = ("v_cmp", "s_cmp", "s_bitcmp")


def covers(scope: Scope, wanted: Scope) -> bool:
    """Return whether an access or fence at ``scope`` is good for ``wanted``."""
    return SCOPES.index(scope) >= SCOPES.index(wanted)


@dataclass(frozen=True, eq=False)
class Step:
    """One instruction. Equal only to itself.

    ``reads`` and ``writes``: its registers. ``access``: what it does to global memory, None if nothing; ``op``: of an
    atomic, such as "swap", "add" or "cmpswap"; ``scope``: of the access; ``data`` and ``address``: the registers with
    an atomic's or store's operands, and with the address. ``releases`` and ``acquires``: as a fence, before and after
    the access if it is one too. ``waits``: it waits until all earlier accesses of the wavefront are complete.
    ``guarded``: it may do nothing. ``line``: in the listing, from 1.
    """

    text: str
    line: int
    frames: tuple[Frame, ...]
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    access: Kind | None = None
    width: int = 0
    where: Where = "local"
    op: str = ""
    scope: Scope = ""
    data: frozenset[str] = frozenset()
    address: frozenset[str] = frozenset()
    releases: Scope = ""
    acquires: Scope = ""
    waits: bool = False
    barrier: bool = False
    sleeps: bool = False
    guarded: bool = False

    @property
    def compares(self) -> bool:
        """It writes the result of a comparison."""
        return self.text.lstrip().startswith(_COMPARISONS) or " setp." in f" {self.text}"

    @property
    def place(self) -> str:
        """Its position in the source: the innermost frame, and the outermost one if that is another."""
        if not self.frames:
            return f"line {self.line} of the listing"
        inner, outer = (_short(frame) for frame in (self.frames[0], self.frames[-1]))
        return inner if inner == outer else f"{inner} (in {outer})"

    def __str__(self) -> str:
        return f"{' '.join(self.text.split())!r} at {self.place}"


def _short(frame: Frame) -> str:
    return f"{'/'.join(frame.file.split('/')[-3:])}:{frame.line}"


@dataclass(frozen=True)
class Program:
    """``blocks`` of steps, none of a loop empty; ``edges``: block -> the blocks that may follow. ``wavefronts``: in a
    work-group, at least.

    ``needs_waits``: a store is complete only after a step that ``waits``; a fence too. Otherwise fences wait.
    """

    language: str
    blocks: Sequence[Sequence[Step]]
    edges: Sequence[Sequence[int]]
    wavefronts: int
    needs_waits: bool

    def steps(self) -> Iterator[Step]:
        """Yield every step in the order of the listing."""
        for block in self.blocks:
            yield from block

    @functools.cached_property
    def loops(self) -> tuple[frozenset[int], ...]:
        """The blocks of each natural loop, smallest first. Loops that share their first block are one."""
        dominators = self._dominators()
        preceding = self._preceding()
        bodies: dict[int, set[int]] = {}
        for block, following in enumerate(self.edges):
            for head in following:
                if head in dominators.get(block, ()):
                    body = bodies.setdefault(head, {head})
                    waiting = [block]
                    while waiting:
                        at = waiting.pop()
                        if at not in body:
                            body.add(at)
                            waiting += preceding[at]
        return tuple(sorted((frozenset(body) for body in bodies.values()), key=lambda body: (len(body), min(body))))

    def _preceding(self) -> list[list[int]]:
        preceding: list[list[int]] = [[] for _ in self.blocks]
        for block, following in enumerate(self.edges):
            for other in following:
                preceding[other].append(block)
        return preceding

    def _dominators(self) -> dict[int, set[int]]:
        """Return for each block that can be reached the blocks on every way to it."""
        order, seen, waiting = [], {0}, [0]
        while waiting:
            block = waiting.pop()
            order.append(block)
            for other in self.edges[block]:
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
        preceding = self._preceding()
        above = {block: set(seen) for block in order}
        above[0] = {0}
        changed = True
        while changed:
            changed = False
            for block in order[1:]:
                ways = [above[other] for other in preceding[block] if other in above]
                new = {block} | set.intersection(*ways)
                if new != above[block]:
                    above[block], changed = new, True
        return above
