"""Happens-before on gfx942, with vector clocks: the accesses of other wavefronts that are complete for a wavefront.

Source: LLVM AMDGPUUsage, "Memory Model gfx942". Within a work-group, which shares a compute unit, an access is ordered
once another thread (a wavefront) knows that it was *issued*. Beyond it the access must be *complete* (``s_waitcnt
vmcnt``), and the data of a plain store must also have been written back: by ``buffer_wbl2 sc1`` as far as the *agent*,
by ``buffer_wbl2 sc0 sc1`` as far as the *system*. So the knowledge of a thread is an ``Order``: four clocks, and a
fifth for the scoped writes whose own values were read. A thread passes it on with every scoped store or atomic. A
thread that reads that value may use the order once the read is complete and, for loads that may hit its caches, after a
``buffer_inv`` of a scope that includes the releasing thread.

A thread holds two views, for the two readings of points that the manuals leave open. In the *lenient* view the fences
of a wavefront also act for its siblings after the last s_barrier: the write-back covers their stores in flight, and the
invalidate counts for their loads at once. In the *strict* view siblings must have waited for their own stores, and the
invalidate counts for them after the wavefront that issued it has waited for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

# Thread number -> the last of its accesses, counted from 1. Never modified, so threads and memory share clocks.
Clock = dict[int, int]

ISSUED, COMPLETE, AGENT_WIDE, SYSTEM_WIDE = range(4)
# Distance of two threads, and reach of an access or a fence.
WAVE, WORKGROUP, AGENT, SYSTEM = range(4)
SCOPES = ("wave", "workgroup", "agent", "system")
LENIENT, STRICT = 0, 1
READINGS = (LENIENT, STRICT)


HOST = "the host"


@dataclass(frozen=True)
class Launched:
    """Description of a launch, for the order and for messages.

    ``place(address)`` describes an address in words. ``kernel`` is HOST for the host of a rank, whose accesses are in
    the order of its launches.
    """

    rank: int
    kernel: str
    grid: tuple[int, int, int]
    waves_per_group: int
    place: Callable[[int], str]

    @property
    def waves(self) -> int:
        x, y, z = self.grid
        return x * y * z * self.waves_per_group

    def group_id(self, group: int) -> tuple[int, int, int]:
        """Convert a work-group number to (x, y, z)."""
        x, y, _ = self.grid
        return group % x, group // x % y, group // (x * y)


class Order(NamedTuple):
    """Clocks of the accesses that are complete: see the module docstring."""

    issued: Clock
    complete: Clock
    agent: Clock
    system: Clock
    read: Clock

    def join(self, other: Order) -> Order:
        if self is other:
            return self
        clocks: list[Clock] = []
        done: dict[tuple[int, int], Clock] = {}
        for a, b in zip(self, other, strict=True):
            pair = id(a), id(b)
            if pair not in done:
                done[pair] = join(a, b)
            clocks.append(done[pair])
        return Order._make(clocks)

    def having(self, thread: int, reached: list[int]) -> Order:
        """Return this order plus what ``thread`` itself has issued, completed and written back."""
        pairs = zip(self, reached, strict=True)
        return Order(*({**clock, thread: n} if n > clock.get(thread, 0) else clock for clock, n in pairs))


NOTHING = Order(*[{}] * 5)
# What a reader of a released value gains: the distance of the releasing thread, and its order in both readings.
Taken = tuple[int, tuple[Order, Order]]


def join(a: Clock, b: Clock) -> Clock:
    """Return the later access for each thread; if one clock includes the other, that object itself, to share it."""
    if a is b:
        return a
    if len(a) < len(b):
        a, b = b, a
    if b.items() <= a.items():  # often, and this calls no Python function for each thread
        return a
    newer = {thread: n for thread, n in b.items() if a.get(thread, 0) < n}
    if not newer:
        return a
    return b if newer.keys() == a.keys() else {**a, **newer}


class View:
    """One reading of a thread's knowledge.

    ``known``: accesses of others that are complete for all that it does. ``shared``: the part that also counts for its
    siblings after a barrier. ``seen``: released values of agent and system scope that were read, without a
    ``buffer_inv`` since.
    """

    __slots__ = ("known", "seen", "shared")

    def __init__(self, known: Order) -> None:
        self.known = self.shared = known
        self.seen = {AGENT: NOTHING, SYSTEM: NOTHING}

    def learn(self, order: Order) -> None:
        self.known, self.shared = self.known.join(order), self.shared.join(order)


class Operation(NamedTuple):
    """A memory instruction in flight: access number ``number`` (0: none), and the released values that it read.

    For a fence also its effect on each view: the write-back's (scope, clocks), the invalidate's orders.
    """

    number: int = 0
    taken: tuple[Taken, ...] = ()
    written_back: tuple[int, tuple[Clock, ...]] | None = None
    invalidated: tuple[Order, ...] | None = None


class Thread:
    """A wavefront. ``reached`` numbers its last access that is issued, complete, written back to agent and system."""

    def __init__(self, number: int, launch: Launched, key: int, wave: int, known: Iterable[Order]) -> None:
        self.number = number
        self.launch = launch
        self.key = key
        self.rank = launch.rank
        self.group, self.wave = divmod(wave, launch.waves_per_group)
        self.place = key, self.group
        self.reached = [0, 0, 0, 0]
        self.flight: list[Operation] = []
        self.views = tuple(View(order) for order in known)

    def relation(self, other: Thread) -> int:
        """Return how far away another thread is."""
        return distance(self, other.place, other.rank)

    def access(self, taken: tuple[Taken, ...]) -> None:
        """Issue an access; on completion it takes in the released values that it read."""
        self.reached[ISSUED] += 1
        self.flight.append(Operation(self.reached[ISSUED], taken))

    def publish(self) -> tuple[Order, Order]:
        """Return the order, in both readings, that the next access passes on if it is a scoped store or atomic.

        A thread that reads its value is also ordered after that access itself.
        """
        reached = [*self.reached, self.reached[ISSUED] + 1]
        lenient, strict = (view.known.having(self.number, reached) for view in self.views)
        return lenient, strict

    def write_back(self, scope: int, threads: list[Thread]) -> None:
        """``buffer_wbl2``: covers this thread's accesses so far and all accesses it knows to be complete."""
        clocks = []
        for reading, view in zip(READINGS, self.views, strict=True):
            known = view.known
            # Covered: of other agents, accesses that reached the system; of this one, those that reached it; of
            # siblings, those in the compute unit.
            clock = dict(known.system)
            of_siblings = known.issued if reading == LENIENT else known.complete
            # What is known as far as one place is known as far as the nearer ones: a later number is never smaller.
            for source, reach in ((known.agent, AGENT), (of_siblings, WORKGROUP)):
                clock |= {
                    number: n for number, n in source.items() if number >= 0 and self.relation(threads[number]) <= reach
                }
            clock[self.number] = self.reached[ISSUED]
            clocks.append(clock)
        self.flight.append(Operation(written_back=(scope, tuple(clocks))))

    def invalidate(self, scope: int) -> None:
        """``buffer_inv``: values seen from within ``scope`` order all later loads."""
        gains = []
        for reading, view in zip(READINGS, self.views, strict=True):
            gain = NOTHING
            for reach in (AGENT, SYSTEM):
                if reach <= scope:
                    gain = gain.join(view.seen[reach])
            view.known = view.known.join(gain)
            if reading == LENIENT:
                view.shared = view.shared.join(gain)
            gains.append(gain)
        self.flight.append(Operation(invalidated=tuple(gains)))

    def wait(self, left: int) -> None:
        """``s_waitcnt vmcnt(left)``: complete all but the newest ``left`` operations."""
        done = max(0, len(self.flight) - left)
        for operation in self.flight[:done]:
            self._complete(operation)
        del self.flight[:done]
        if not self.flight:
            self.reached[COMPLETE] = self.reached[ISSUED]

    def _complete(self, operation: Operation) -> None:
        if operation.number:
            self.reached[COMPLETE] = operation.number
        for relation, orders in operation.taken:
            for view, order in zip(self.views, orders, strict=True):
                if relation == WORKGROUP:
                    view.learn(order)
                else:
                    view.seen[relation] = view.seen[relation].join(order)
        if operation.written_back is not None:
            scope, clocks = operation.written_back
            for view, clock in zip(self.views, clocks, strict=True):
                written = Order({}, clock, clock if scope >= AGENT else {}, clock if scope >= SYSTEM else {}, {})
                view.learn(written)
            for level in range(COMPLETE, scope + 1):
                self.reached[level] = max(self.reached[level], clocks[LENIENT][self.number])
        if operation.invalidated is not None:
            for view, gain in zip(self.views, operation.invalidated, strict=True):
                view.shared = view.shared.join(gain)


def distance(thread: Thread, place: tuple[int, int] | None, rank: int) -> int:
    """Return how far a place (launch and work-group; None: several) of ``rank`` is from a thread."""
    if thread.place == place:
        return WORKGROUP
    return AGENT if thread.rank == rank else SYSTEM


def meet(threads: list[Thread]) -> None:
    """s_barrier: share among these siblings what each has done or knows."""
    for reading in READINGS:
        views = [thread.views[reading] for thread in threads]
        # Most siblings share the order of their last barrier: it is joined once.
        orders = {id(view.shared): view.shared for view in views}
        joint = NOTHING
        for order in orders.values():
            joint = joint.join(order)
        joint = _plus_own(joint, threads)
        seen_agent = seen_system = NOTHING
        for view in views:
            seen_agent, seen_system = seen_agent.join(view.seen[AGENT]), seen_system.join(view.seen[SYSTEM])
        joined = {key: (order, joint) for key, order in orders.items()}  # with the key's object, which keeps its id
        for view in views:
            known = view.known
            if id(known) not in joined:
                joined[id(known)] = known, known.join(joint)
            view.known = joined[id(known)][1]
            view.shared, view.seen = joint, {AGENT: seen_agent, SYSTEM: seen_system}


def _plus_own(order: Order, threads: list[Thread]) -> Order:
    """Return an order plus what each of several threads has issued, completed and written back."""
    clocks: list[Clock] = []
    for level, clock in enumerate(order[:-1]):
        own = {thread.number: thread.reached[level] for thread in threads}
        newer = {number: n for number, n in own.items() if n > clock.get(number, 0)}
        clocks.append({**clock, **newer} if newer else clock)
    return Order._make([*clocks, order.read])
