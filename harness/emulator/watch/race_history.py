"""The history of a byte of global memory in mode ``race``: who wrote it, who has read it since, what is released."""

from __future__ import annotations

from typing import NamedTuple

from harness.emulator.ops.access import LOAD, STORE
from harness.emulator.watch.race_order import COMPLETE, ISSUED, WORKGROUP, Order
from harness.emulator.watch.race_report import Event


class Readers(NamedTuple):
    """Reads of a byte since its last write: the newest, and those before; ``length`` of them in all."""

    event: Event
    before: Readers | None
    length: int


class Released(NamedTuple):
    """What reading a byte's value hands over, by ``scope`` and rank of who released it. ``place`` is the releasing
    work-group, None: several."""

    scope: int
    rank: int
    place: tuple[int, int] | None
    orders: tuple[Order, Order]


class Cell:
    """The history of bytes: the last writes (several only where all are atomic), the reads since, what is released."""

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
    """True when ``first``, of another thread, happens before ``second``."""
    view, thread = second.thread.views[reading], first.thread
    relation = second.thread.relation(thread)
    if relation == WORKGROUP:
        level = ISSUED
    elif first.kind == LOAD or first.scope >= relation:
        level = COMPLETE
    else:
        level = relation
    orders = [view.known]
    # Only loads can hit old lines, and those with scope bits look beyond the caches; siblings share theirs.
    if second.kind == STORE or first.kind == LOAD or relation == WORKGROUP:
        orders += view.seen.values()
    else:
        orders += [order for reach, order in view.seen.items() if reach <= second.scope]
    return any(
        order[level].get(thread.number, 0) >= first.number
        or thread.key in order[level]
        or (first.scope >= relation and order.read.get(thread.number, 0) == first.number)
        for order in orders
    )


def are_copies(first: Event, second: Event, cell: Cell | None) -> bool:
    """True for a load and a store by siblings, of which the storing one has loaded these bytes with the same
    instruction."""
    load, store = (first, second) if first.kind == LOAD else (second, first)
    if cell is None or load.kind != LOAD or load.thread.relation(store.thread) != WORKGROUP:
        return False
    return any(e.thread is store.thread and e.instruction is load.instruction for e in events(cell.readers))


def same(a: Event, b: Event) -> bool:
    """Of two accesses of one thread that reach equally far the newer one stands for both."""
    return a.thread is b.thread and a.reach == b.reach


def events(readers: Readers | None) -> list[Event]:
    """All reads, newest first."""
    found = []
    while readers is not None:
        found.append(readers.event)
        readers = readers.before
    return found


def add(readers: Readers | None, event: Event) -> Readers:
    """One more read. When there are many, those of the same thread before are dropped."""
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
    """A read-modify-write continues the release sequences that it reads (C++ [intro.races])."""
    out = []
    for r in released:
        if (r.scope, r.rank) == (mine.scope, mine.rank):
            orders = r.orders[0].join(mine.orders[0]), r.orders[1].join(mine.orders[1])
            mine = Released(mine.scope, mine.rank, mine.place if r.place == mine.place else None, orders)
        else:
            out.append(r)
    return (*out, mine)
