"""Happens-before on gfx942, with vector clocks: which accesses of other wavefronts are over for a wavefront.

Source: LLVM AMDGPUUsage, "Memory Model gfx942". That another thread (a wavefront) knows an access to be *issued* orders
it within the work-group, which shares a compute unit. Beyond it the access must be *complete* (``s_waitcnt vmcnt``),
and what a plain store wrote must also have been written back: by ``buffer_wbl2 sc1`` as far as the *agent*, by
``buffer_wbl2 sc0 sc1`` as far as the *system*. So what a thread knows is an ``Order``: four clocks, and a fifth for
the scoped writes whose own values were read. It passes it on with every scoped store or atomic; who reads that value
may use it once the read is complete and, for loads that may hit its caches, a ``buffer_inv`` of a scope that includes
the releasing thread has followed.

A thread holds two views, for the two readings of what the manuals leave open. In the *lenient* one the fences of a
wavefront also act for its siblings behind the last s_barrier: the write-back covers their stores in flight, the
invalidate counts for their loads at once. In the *strict* one siblings must have waited for their own stores, and
the invalidate counts for them when the wavefront that issued it has waited for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from harness.emulator.launch import Launch

# Thread number -> the last of its accesses, counted from 1. Never changed: threads and memory share them.
Clock = dict[int, int]

ISSUED, COMPLETE, AGENT_WIDE, SYSTEM_WIDE = range(4)
# How far apart two threads are, and how far an access or a fence reaches.
WAVE, WORKGROUP, AGENT, SYSTEM = range(4)
SCOPES = ("wave", "workgroup", "agent", "system")
LENIENT, STRICT = 0, 1
READINGS = (LENIENT, STRICT)


class Order(NamedTuple):
    """What is over: see the module docstring."""

    issued: Clock
    complete: Clock
    agent: Clock
    system: Clock
    read: Clock

    def join(self, other: Order) -> Order:
        if self is other:
            return self
        done: dict[tuple[int, int], Clock] = {}
        for a, b in zip(self, other, strict=True):
            if (id(a), id(b)) not in done:
                done[id(a), id(b)] = join(a, b)
        return Order(*(done[id(a), id(b)] for a, b in zip(self, other, strict=True)))

    def having(self, thread: int, reached: list[int]) -> Order:
        """With what ``thread`` itself has issued, completed and written back."""
        return Order(*({**clock, thread: n} if n else clock for clock, n in zip(self, reached, strict=True)))


NOTHING = Order(*[{}] * 5)
# What a read of a released value hands over: how far away the releasing thread is, and its order in both readings.
Taken = tuple[int, tuple[Order, Order]]


def join(a: Clock, b: Clock) -> Clock:
    """The later of both for each thread: one of the two where it holds the other, so that equal clocks are shared."""
    if a is b or not b:
        return a
    if len(a) < len(b):
        a, b = b, a
    newer = {thread: n for thread, n in b.items() if a.get(thread, 0) < n}
    if not newer:
        return a
    return b if newer.keys() == a.keys() else {**a, **newer}


class View:
    """One reading of what a thread knows. ``known``: others' accesses that are over for all that it does. ``shared``:
    the part that also counts for its siblings behind a barrier. ``seen``: of agent and system scope, released values
    that were read, without a ``buffer_inv`` since."""

    __slots__ = ("known", "seen", "shared")

    def __init__(self, known: Order) -> None:
        self.known = self.shared = known
        self.seen = {AGENT: NOTHING, SYSTEM: NOTHING}

    def learn(self, order: Order) -> None:
        self.known, self.shared = self.known.join(order), self.shared.join(order)


class Operation(NamedTuple):
    """A memory instruction in flight: access number ``number`` (0: none), what it read, and of a fence what it does to
    each view: the write-back's (scope, clocks), the invalidate's orders."""

    number: int = 0
    taken: tuple[Taken, ...] = ()
    written_back: tuple[int, tuple[Clock, ...]] | None = None
    invalidated: tuple[Order, ...] | None = None


class Thread:
    """A wavefront. ``reached`` numbers its last access that is issued, complete, written back to agent and system."""

    def __init__(self, number: int, launch: Launch, key: int, wave: int, known: Iterable[Order]) -> None:
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
        """How far another thread is away."""
        return distance(self, other.place, other.rank)

    def access(self, taken: tuple[Taken, ...]) -> None:
        """An access is issued, and will hand over what it read."""
        self.reached[ISSUED] += 1
        self.flight.append(Operation(self.reached[ISSUED], taken))

    def publish(self) -> tuple[Order, Order]:
        """What a scoped store or atomic, the next access, passes on in both readings: who reads its value comes behind
        it as well."""
        reached = [*self.reached, self.reached[ISSUED] + 1]
        lenient, strict = (view.known.having(self.number, reached) for view in self.views)
        return lenient, strict

    def write_back(self, scope: int, threads: list[Thread]) -> None:
        """``buffer_wbl2``: covers the own accesses so far, and all that the thread knows to be over for itself."""
        clocks = []
        for reading, view in zip(READINGS, self.views, strict=True):
            known = view.known
            # Of other agents what reached the system, of this one what reached it, of siblings what is in the unit.
            clock = dict(known.system)
            for source, reach in ((known.agent, AGENT), (known.issued if reading == LENIENT else known.complete, 1)):
                for number, n in source.items():
                    if number >= 0 and self.relation(threads[number]) <= reach and clock.get(number, 0) < n:
                        clock[number] = n
            clock[self.number] = self.reached[ISSUED]
            clocks.append(clock)
        self.flight.append(Operation(written_back=(scope, tuple(clocks))))

    def invalidate(self, scope: int) -> None:
        """``buffer_inv``: what was seen from within ``scope`` holds for all later loads."""
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
        """``s_waitcnt vmcnt(left)``: all but the newest ``left`` operations are complete."""
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
    """How far a place (launch and work-group; None: several) of ``rank`` is away from a thread."""
    if thread.place == place:
        return WORKGROUP
    return AGENT if thread.rank == rank else SYSTEM


def meet(threads: list[Thread]) -> None:
    """s_barrier: what each of these siblings has done or knows, all know."""
    for reading in READINGS:
        joint, seen = NOTHING, {AGENT: NOTHING, SYSTEM: NOTHING}
        for thread in threads:
            view = thread.views[reading]
            joint = joint.join(view.shared.having(thread.number, [*thread.reached, 0]))
            seen = {reach: seen[reach].join(view.seen[reach]) for reach in seen}
        for thread in threads:
            view = thread.views[reading]
            view.known, view.shared = view.known.join(joint), joint
            view.seen = dict(seen)
