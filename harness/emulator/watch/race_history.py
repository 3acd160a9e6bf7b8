"""History of a byte of global memory in mode ``race``: its last writes, the reads since, and released values."""

from __future__ import annotations

from typing import NamedTuple

from harness.emulator.operations.access import LOAD, STORE
from harness.emulator.watch.race_order import COMPLETE, ISSUED, LENIENT, WORKGROUP, Order
from harness.emulator.watch.race_report import Event


class Readers(NamedTuple):
    """Reads of a byte since its last write: the newest, and the earlier ones; ``length`` is their number."""

    event: Event
    before: Readers | None
    length: int


class Released(NamedTuple):
    """The order that a reader of a byte's value gains.

    ``scope`` and rank are those of the release; ``place`` is the releasing work-group, None for several.
    """

    scope: int
    rank: int
    place: tuple[int, int] | None
    orders: tuple[Order, Order]


class Cell:
    """History of bytes: the last writes (several only if all are atomic), the reads since, and released values."""

    __slots__ = ("readers", "released", "writes")

    def __init__(
        self,
        writes: tuple[Event, ...] = (),
        readers: Readers | None = None,
        released: tuple[Released, ...] = (),
    ) -> None:
        self.writes = writes
        self.readers = readers
        self.released = released


UNTOUCHED = Cell()


def ordered(first: Event, second: Event, reading: int) -> bool:
    """Return True if ``first``, of another thread, happens before ``second``."""
    thread = first.thread
    relation = second.thread.relation(thread)
    if relation == WORKGROUP:
        level = ISSUED
    elif first.kind == LOAD or first.scope >= relation:
        level = COMPLETE
    else:
        level = relation
    orders = _orders(first, second, reading)
    if any(order[level].get(thread.number, 0) >= first.number or thread.key in order[level] for order in orders):
        return True
    return first.scope >= relation and _is_read(first, orders) and not first.repeated


def may_come_back(first: Event, second: Event) -> bool:
    """Return True if ``second`` overwrites a value that its thread saw, and that ``first`` may write again: several
    lanes write it, each for itself, and nothing but that value orders them."""
    return second.overwrites and first.repeated and _is_read(first, _orders(first, second, LENIENT))


def _orders(first: Event, second: Event, reading: int) -> list[Order]:
    """Return the orders that count for ``second`` after ``first``."""
    view = second.thread.views[reading]
    # Only plain loads can hit old lines: those with scope bits bypass the caches, and siblings share theirs.
    if second.kind == STORE or first.kind == LOAD or second.thread.relation(first.thread) == WORKGROUP:
        return [view.known, *view.seen.values()]
    return [view.known, *(order for reach, order in view.seen.items() if reach <= second.scope)]


def _is_read(first: Event, orders: list[Order]) -> bool:
    """Return whether the value of ``first`` itself was read."""
    return any(order.read.get(first.thread.number, 0) == first.number for order in orders)


def are_copies(first: Event, second: Event, cell: Cell | None) -> bool:
    """Return True for a load and a store by siblings if both loaded these bytes with the same instruction."""
    load, store = (first, second) if first.kind == LOAD else (second, first)
    if cell is None or load.kind != LOAD or load.thread.relation(store.thread) != WORKGROUP:
        return False
    return any(e.thread is store.thread and e.instruction is load.instruction for e in events(cell.readers))


def same(a: Event, b: Event) -> bool:
    """Return True if one of two accesses of a thread can stand for both: they reach equally far."""
    return a.thread is b.thread and a.reach == b.reach


def events(readers: Readers | None) -> list[Event]:
    """Return all reads, newest first."""
    reads = []
    while readers is not None:
        reads.append(readers.event)
        readers = readers.before
    return reads


def add(readers: Readers | None, event: Event) -> Readers:
    """Add a read. If there are many, the earlier ones of the same thread are dropped."""
    if readers is not None and same(readers.event, event):
        readers = readers.before
    length = readers.length + 1 if readers is not None else 1
    if length & (length - 1) == 0 and length >= 16:
        newest: dict[tuple[int, int, bool], Event] = {}
        for e in events(readers):
            newest.setdefault((e.thread.number, *e.reach), e)
        newest.pop((event.thread.number, *event.reach), None)
        readers, length = None, len(newest) + 1
        for n, e in enumerate(reversed(newest.values())):
            readers = Readers(e, readers, n + 1)
    return Readers(event, readers, length)


def continue_release(released: tuple[Released, ...], mine: Released) -> tuple[Released, ...]:
    """Return the release sequences that a read-modify-write continues (C++ [intro.races])."""
    out = []
    for r in released:
        if (r.scope, r.rank) == (mine.scope, mine.rank):
            orders = r.orders[0].join(mine.orders[0]), r.orders[1].join(mine.orders[1])
            mine = Released(mine.scope, mine.rank, mine.place if r.place == mine.place else None, orders)
        else:
            out.append(r)
    return (*out, mine)
