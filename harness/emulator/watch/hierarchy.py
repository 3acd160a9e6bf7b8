"""Memory as a gfx942 kernel sees it, as weak as LLVM allows it to be.

Source: LLVM AMDGPUUsage, "Memory Model gfx942". A store *lands* in the L2 of its XCD. It becomes visible beyond it when
it has been written back: to other XCDs of the agent at agent level, to other agents at system level. A write-back
happens by ``buffer_wbl2``, by the store's own scope bits (a write-through), or when the adversary evicts a line. A load
may return a line that was fetched at any time since the compute unit last invalidated its caches.

This module records history instead of caches: each 128-byte line has the list of its stores, each with the times at
which it landed, reached its agent and reached the system. A load picks the time t of its fetch, not before the last
fetch of that line by the same compute unit (coherence) and not before the last invalidate of the scope that the store
needs. It sees the stores that were visible to its compute unit at t.

Example, two agents, x = 0: agent 0 stores x = 1; it lands at time 1 and is written back to the system at time 5. A load
by agent 1 at time 9 with no invalidate since the start sees 0 or 1; after ``buffer_inv sc0 sc1`` at time 7 only 1;
after ``buffer_inv sc1`` at time 7, which orders nothing between agents, 0 or 1.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from harness.emulator.native import atomics as native_atomics
from harness.emulator.watch.choices import AGE, Choices

LINE = 128
NEVER = 1 << 62
SCOPES = ("wave", "workgroup", "agent", "system")


class Unit(NamedTuple):
    """A compute unit, which has one vector L1. ``xcd`` counts within the agent, ``number`` within the XCD."""

    agent: int
    xcd: int
    number: int


@dataclass(eq=False)
class Store:
    """One store to a line: the bytes ``mask`` of ``data``, and when it landed and reached its agent and the system.

    ``str(origin)`` names the instruction. ``bits`` is the mask as an integer, and ``xcd`` the unit's agent and XCD: a
    line can have hundreds of stores, and each access compares with all of them.
    """

    unit: Unit
    mask: np.ndarray
    data: np.ndarray
    landed: int
    agent: int = NEVER
    system: int = NEVER
    origin: object = ""
    bits: int = field(init=False)
    xcd: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.bits = _bits(self.mask)
        self.xcd = self.unit[:2]


@dataclass(eq=False)
class Line:
    """The bytes [address, address + size), at most 128, of one allocation.

    ``base`` holds the bytes before the first store of ``stores``; ``system`` the bytes with all stores that have
    reached the system, which ``memory`` has too unless another process or the host changed it; ``seen`` the time of
    each compute unit's last fetch; ``dirty`` the stores that have not reached the system.
    """

    address: int
    size: int
    base: np.ndarray
    memory: np.ndarray
    system: np.ndarray
    stores: list[Store] = field(default_factory=list)
    seen: dict[Unit, int] = field(default_factory=dict)
    dirty: dict[Store, None] = field(default_factory=dict)


class Hierarchy:
    """The lines that were accessed, and the clock. Real memory always holds the system level.

    ``outside``: other processes, or the host between launches, may change memory; every access checks for such changes.
    """

    MOST_STORES = 128

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.outside = True
        self.now = 1
        self.lines: dict[int, Line] = {}
        # Allocations that were accessed, by their bounds, and copies of all allocations, by address.
        self.memories: dict[tuple[int, int], np.ndarray] = {}
        self.images: dict[int, np.ndarray] = {}
        # Memory for images, kept between launches: new memory costs more time than the copy.
        self.spare: dict[int, np.ndarray] = {}
        # Images to copy again before their next use: an acquire came after them. A loop that polls never uses them.
        self.outdated: set[int] = set()
        # Time of each compute unit's last invalidate, by the scope of the stores that it made visible.
        self.floors: dict[Unit, dict[str, int]] = {}
        self.begun: dict[int, int] = {}
        # Stores that have not reached the system, in the order in which they landed, with their lines.
        self.dirty: dict[Store, Line] = {}
        # Log of stores, promotions, and loads that did not see the newest value.
        self.changes = 0

    def line(self, address: int, start: int, end: int) -> Line:
        """Return the line that holds ``address``, of the allocation [start, end).

        Lines are counted from the allocation's start, so that a run does not depend on its address.
        """
        low = address - (address - start) % LINE
        if low not in self.lines:
            size = min(low + LINE, end) - low
            if (start, end) not in self.memories:
                self.memories[start, end] = _bytes(start, end - start)
            memory = self.memories[start, end][low - start : low - start + size]
            image = self.images.get(start)
            if start in self.outdated and image is not None:
                self.outdated.discard(start)
                image[:] = _bytes(start, len(image))
            base = memory if image is None else image[low - start : low - start + size]
            self.lines[low] = Line(low, size, base.copy(), memory, base.copy())
        return self.lines[low]

    def forget(self, outside: bool) -> None:
        """Start afresh before kernels run: everything earlier is complete and visible to them."""
        self.lines.clear()
        self.memories.clear()
        self.spare, self.images = self.images, {}
        self.outdated.clear()
        self.floors.clear()
        self.dirty.clear()
        self.outside = outside

    def picture(self, start: int, end: int) -> None:
        """Keep a copy of [start, end): later changes by other processes may still be seen as this old value."""
        if self.outside and start not in self.images:
            image = self.spare.pop(start, None)
            if image is None or len(image) != end - start:
                image = np.empty(end - start, np.uint8)
            image[:] = _bytes(start, end - start)
            self.images[start] = image

    def answered(self, address: int, size: int) -> None:
        """Take in what the host wrote within [address, address + size) for a kernel that waits for its answer."""
        for line in self.lines.values():
            if line.address < address + size and address < line.address + line.size:
                self._enter(line)

    def begin(self, agent: int) -> None:
        """Start a kernel of ``agent`` with clean caches."""
        self.begun[agent] = self.tick()
        for unit in [unit for unit in self.floors if unit.agent == agent]:
            del self.floors[unit]

    def floor(self, unit: Unit) -> dict[str, int]:
        """Return the times of a compute unit's last invalidates, by scope."""
        if unit not in self.floors:
            self.floors[unit] = dict.fromkeys(SCOPES, self.begun.get(unit.agent, 0))
        return self.floors[unit]

    def tick(self) -> int:
        self.now += 1
        return self.now

    # -- stores ------------------------------------------------------------------------------------------------------

    def store(self, unit: Unit, line: Line, mask: np.ndarray, data: np.ndarray, scope: str, origin: object) -> None:
        """Let a store land; with agent or system scope it is written through."""
        self._notice(line)
        self.changes += 1
        store = Store(unit, mask, data, self.tick(), origin=origin)
        line.stores.append(store)
        self.dirty[store], line.dirty[store] = line, None
        if scope in ("agent", "system"):
            self._promote_older(line, store, scope)
        self._prune(line)

    def exchange(
        self,
        unit: Unit,
        line: Line,
        at: np.ndarray,
        scope: str,
        compute: Callable[[np.ndarray], np.ndarray | None],
        origin: object,
    ) -> np.ndarray:
        """Perform a read-modify-write of the 4 or 8 bytes at offsets ``at`` of the line, at agent or system scope.

        It reads the value at that level, after its own XCD's stores to these bytes were written back to it.
        ``compute(old)`` returns the new bytes, or None to leave them. Returns the old bytes.
        """
        mask = np.zeros(line.size, np.bool_)
        mask[at] = True
        bits, xcd = _bits(mask), unit[:2]

        def reached_agent(store: Store) -> bool:
            return store.system <= self.now or (store.unit.agent == unit.agent and store.agent <= self.now)

        while True:
            self._notice(line)
            self.tick()
            older = [
                store
                for store in line.dirty
                if (store.xcd == xcd and store.bits & bits and (store.agent == NEVER or scope == "system"))
                or (scope == "system" and reached_agent(store))
            ]
            for other in sorted(older, key=_age):
                self._promote(line, other, scope)
            old: np.ndarray = line.memory[at] if scope == "system" else _newest(line, at, bits, reached_agent)
            new = compute(old)
            if new is None:
                return old
            # Other processes see only the system level, so there it must be one of the host's own atomics.
            if scope == "system" and not _replace(line.address + int(at[0]), old, new):
                continue
            data = np.zeros(line.size, np.uint8)
            data[at] = new
            if scope == "system":
                self.tick()
                line.stores.append(Store(unit, mask, data, self.now, self.now, self.now, origin))
                line.system[at] = new
                self.changes += 1
            else:
                self.store(unit, line, mask, data, scope, origin)
            return old

    def write_back(self, unit: Unit, scope: str) -> int:
        """``buffer_wbl2``: write back an XCD's stores, at system scope its agent's too; return their number."""
        self.tick()
        written = 0
        xcd = unit[:2]
        for store in sorted(self.dirty, key=_age):
            mine = store.xcd == xcd or (store.unit.agent == unit.agent and store.agent <= self.now)
            if mine and (scope == "system" or store.agent == NEVER):
                self._promote(self.dirty[store], store, scope)
                written += 1
        return written

    def evict(self, index: int) -> tuple[Line, Store]:
        """Let a cache write one store back by itself, by one level."""
        store, line = next(islice(self.dirty.items(), index, None))
        self.tick()
        self._promote_older(line, store, "agent" if store.agent == NEVER else "system")
        return line, store

    def flush(self, agent: int) -> None:
        """Perform the release at the end of a kernel: all stores of an agent reach the system."""
        self.tick()
        for store in sorted(self.dirty, key=_age):
            if store.unit.agent == agent:
                self._promote(self.dirty[store], store, "system")

    def _promote_older(self, line: Line, store: Store, scope: str) -> None:
        """Promote a store after the older stores to the same bytes: caches keep the newest only, and order is kept."""

        def older(level: Callable[[Store], bool]) -> list[Store]:
            earlier = [s for s in line.dirty if s is not store and s.bits & store.bits]
            return sorted((s for s in earlier if level(s)), key=_age)

        # Those that have reached the agent are there.
        for other in older(lambda s: s.agent == NEVER and s.xcd == store.xcd and s.landed < store.landed):
            self._promote(line, other, "agent")
        self._promote(line, store, "agent")
        if scope == "system":
            for other in older(lambda s: s.unit.agent == store.unit.agent and _age(s) < _age(store)):
                self._promote(line, other, "system")
            self._promote(line, store, "system")

    def _promote(self, line: Line, store: Store, scope: str) -> None:
        if store.agent == NEVER:
            store.agent = self.now
        if scope == "system" and store.system == NEVER:
            self._notice(line)
            store.system = self.tick()
            self.changes += 1
            if store.bits + 1 == 1 << line.size:
                line.memory[:] = line.system[:] = store.data
            else:
                line.memory[store.mask] = line.system[store.mask] = store.data[store.mask]
            del self.dirty[store], line.dirty[store]

    # -- loads -------------------------------------------------------------------------------------------------------

    def load(self, unit: Unit, line: Line, scope: str) -> tuple[np.ndarray, int]:
        """Return the line as a compute unit's load of ``scope`` sees it, and how many stores the adversary hid."""
        self._notice(line)
        if not line.stores:
            line.seen[unit] = self.now
            return line.base, 0
        floors = self.floor(unit)
        seen = line.seen.get(unit, 0)
        # The times by which a store must have become visible to be seen for certain: of its own XCD, agent, system. The
        # load's own scope bits make it miss all caches up to that scope.
        missed = SCOPES.index(scope) if SCOPES.index(scope) >= SCOPES.index("agent") else 0
        near, middle, far = (
            self.now if place <= missed else max(floors[level], seen) for place, level in enumerate(SCOPES[1:], 1)
        )
        # Each store with the first time at which the compute unit could see it, and with the time of the above.
        times: list[tuple[Store, int, int]] = []
        xcd, agent = unit[:2], unit.agent
        for store in line.stores:
            if store.xcd == xcd:
                times.append((store, 0 if store.unit == unit else store.landed, near))
            elif store.unit.agent == agent:
                times.append((store, store.agent, middle))
            else:
                times.append((store, store.system, far))
        optional = sorted({visible for _, visible, certain in times if certain < visible <= self.now}, reverse=True)
        hidden = self.choices.pick(len(optional) + 1, AGE) if optional else 0
        # The line was fetched just before the oldest hidden store became visible.
        fetched = self.now if not hidden else optional[hidden - 1] - 1
        line.seen[unit] = max(seen, fetched)
        self.changes += bool(hidden)
        return _compose(line, [store for store, visible, certain in times if visible <= max(fetched, certain)]), hidden

    def invalidate(self, unit: Unit, scope: str) -> None:
        """``buffer_inv``: later loads see everything that has become visible at that scope."""
        if self.outside and scope == "system":
            # Stores of other processes up to now are seen for certain, whenever they were made.
            for line in self.lines.values():
                self._notice(line)
            self.outdated.update(self.images)
        self.tick()
        for level in SCOPES[1 : SCOPES.index(scope) + 1]:
            self.floor(unit)[level] = self.now

    # -- bookkeeping -------------------------------------------------------------------------------------------------

    def _notice(self, line: Line) -> None:
        """Record a change of memory by another process or the host as a store that has reached the system."""
        if self.outside:
            self._enter(line)

    def _enter(self, line: Line) -> None:
        content = line.memory.tobytes()  # once, since another process may change it at any time
        if content != line.system.tobytes():
            actual = np.frombuffer(content, np.uint8)
            changed = actual != line.system
            now = self.tick()
            line.stores.append(Store(Unit(-1, 0, 0), changed, actual, now, now, now, "outside"))
            line.system = actual.copy()

    def _prune(self, line: Line) -> None:
        """Drop old history: the oldest stores that reached the system become the base."""
        while len(line.stores) > self.MOST_STORES:
            old = min(line.stores, key=lambda s: s.system)
            if old.system == NEVER:
                return
            line.base[old.mask] = old.data[old.mask]
            line.stores.remove(old)


def _compose(line: Line, shown: list[Store]) -> np.ndarray:
    """Build the line's bytes from these stores of it: first the system's in order, then the agent's, then the XCD's."""
    left, needed = (1 << line.size) - 1, []
    for store in sorted(shown, key=_order, reverse=True):
        if store.bits & left:  # else later ones hide it
            needed.append(store)
            left &= ~store.bits
            if not left:
                break
    data: np.ndarray = line.base.copy()
    for store in reversed(needed):
        data[store.mask] = store.data[store.mask]
    return data


def _newest(line: Line, at: np.ndarray, bits: int, visible: Callable[[Store], bool]) -> np.ndarray:
    """Return the bytes at the offsets ``at``, which are the ``bits`` of a mask, as ``_compose`` builds them."""
    shown = [store for store in line.stores if store.bits & bits and visible(store)]
    newest = max(shown, key=_order, default=None)
    if newest is not None and newest.bits & bits == bits:
        return np.array(newest.data[at])
    return np.array(_compose(line, shown)[at])


def _bits(mask: np.ndarray) -> int:
    """Return the booleans as the bits of an integer, the first as the lowest."""
    return int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")


def _replace(address: int, old: np.ndarray, new: np.ndarray) -> bool:
    """Write ``new`` over ``old``, unless another process has changed the memory meanwhile."""
    kind, function = (np.uint32, native_atomics.replace32) if len(old) == 4 else (np.uint64, native_atomics.replace64)
    expected = old.view(kind)[0]
    return bool(function(np.uint64(address), expected, new.view(kind)[0]) == expected)


def _bytes(address: int, size: int) -> np.ndarray:
    """Return real memory as an array."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


_age = attrgetter("agent", "landed")
"""Sort key for an agent's stores: those that reached the agent, then those still in an L2."""

_order = attrgetter("system", "agent", "landed")
"""Sort key for all stores of a line, from the oldest to the newest."""
