"""Fixed point of an abstract interpretation over a control-flow graph."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from harness.errors import HarnessError
from harness.isa.flow.registers import Registers
from harness.isa.flow.shared import Shared

Key = tuple[int, tuple[int, ...]]
"""A place in the code: the first instruction of a block, and where each call on the way to it returns to."""
_MOST_VISITS = 400
_MOST_ROUNDS = 40


def follow(shared: Shared, once: Callable[[], None]) -> None:
    """Call ``once``, which follows all of the code, until it has been done with all that shared memory may hold.

    Each time more is known of shared memory; there are ``_MOST_ROUNDS`` at most.
    """
    for _ in range(_MOST_ROUNDS):
        once()
        if shared.is_complete():
            return
    raise HarnessError(f"the contents of shared memory are not known after {_MOST_ROUNDS} rounds")


def solve(start: int, state: Registers, run: Callable[[Key, Registers], Iterable[tuple[Key, Registers]]]) -> None:
    """Call ``run(key, state)``, which yields what each successor is entered with, until no entry state is new.

    ``run`` may change the state that it is passed.
    """
    first: Key = (start, ())
    entries, visits = {first: state}, {first: 0}
    waiting, queued = [first], {first}
    while waiting:
        key = heapq.heappop(waiting)
        queued.discard(key)
        visits[key] = visits.get(key, 0) + 1
        if visits[key] > _MOST_VISITS:
            raise HarnessError(f"the data flow of the listing has no fixed point after {_MOST_VISITS} visits of {key}")
        inside = entries[key].copy()
        inside.block = key
        for successor, out in run(key, inside):
            out.shared.edge(key, successor)
            known = entries.get(successor)
            if known is None:
                entries[successor] = out.copy()
            elif not known.merge(out):
                continue
            if successor not in queued:
                queued.add(successor)
                heapq.heappush(waiting, successor)
