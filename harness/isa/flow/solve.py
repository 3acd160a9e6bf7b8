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

    ``run`` may change the state that it is passed. Places are visited in reverse postorder, so that most are visited
    when all ways to them have been followed: in the order of the listing, whose calls that seldom happen are at its
    end, each return from one would repeat all that comes after it.
    """
    first: Key = (start, ())
    entries, visits = {first: state}, dict.fromkeys([first], 0)
    waiting = {first}  # entered with a new state since their last visit

    def visit(key: Key) -> list[Key]:
        """Run a place; return the successors that are entered with a new state."""
        waiting.discard(key)
        visits[key] = visits.get(key, 0) + 1
        if visits[key] > _MOST_VISITS:
            raise HarnessError(f"the data flow of the listing has no fixed point after {_MOST_VISITS} visits of {key}")
        inside, changed = entries[key].copy(), []
        inside.block = key
        for successor, out in run(key, inside):
            out.shared.edge(key, successor)
            known = entries.get(successor)
            if known is None:
                entries[successor] = out.copy()
            elif not known.merge(out):
                continue
            changed.append(successor)
        waiting.update(changed)
        return changed

    rank = _reverse_postorder(first, visit)
    queue = [(rank[key], key) for key in waiting]
    heapq.heapify(queue)
    while queue:
        place, key = heapq.heappop(queue)
        if key in waiting:
            for successor in visit(key):
                heapq.heappush(queue, (rank.setdefault(successor, place), successor))


def _reverse_postorder(first: Key, visit: Callable[[Key], list[Key]]) -> dict[Key, int]:
    """Visit each place once, depth first; return the number of each in reverse postorder."""
    done: list[Key] = []
    seen, stack = {first}, [(first, iter(visit(first)))]
    while stack:
        key, successors = stack[-1]
        successor = next((each for each in successors if each not in seen), None)
        if successor is None:
            stack.pop()
            done.append(key)
        else:
            seen.add(successor)
            stack.append((successor, iter(visit(successor))))
    return {key: number for number, key in enumerate(reversed(done))}
