"""Launch records of a driver, bounded: the newest are kept one by one, older ones as one sum for each kernel."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace

from harness.emulator.execution.counters import Access, Inexact, LaunchRecord, Stall

DEFAULT_LIMIT = 10_000


class Records:
    """Records since the last ``drain``. At most ``limit`` are kept one by one; sums over all of them stay exact."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self._newest: deque[Callable[[], LaunchRecord]] = deque()
        # By kernel hash and listing, which a mutation test may change.
        self._sums: dict[tuple[str, str], LaunchRecord] = {}

    def add(self, record: Callable[[], LaunchRecord]) -> None:
        """Add a launch, whose ``record`` is made when it is needed.

        While there are more than ``limit``, the oldest joins its kernel's sum.
        """
        self._newest.append(record)
        while len(self._newest) > self.limit:
            oldest = self._newest.popleft()()
            key = oldest.hash, oldest.listing
            self._sums[key] = added(self._sums[key], oldest) if key in self._sums else oldest

    def drain(self) -> list[LaunchRecord]:
        """Return the sums, then the newest records, oldest first, and forget them."""
        records = [*self._sums.values(), *(record() for record in self._newest)]
        self._sums.clear()
        self._newest.clear()
        return records


def added(first: LaunchRecord, second: LaunchRecord) -> LaunchRecord:
    """Return the sum of two records of one kernel, with the grid of ``second``."""
    accesses: dict[tuple[object, ...], Access] = {}
    for a in (*first.accesses, *second.accesses):
        key = a.mnemonic, a.kind, a.width, a.where, a.source, a.line, a.polled
        b = accesses.get(key)
        accesses[key] = (
            a
            if b is None
            else replace(a, executions=a.executions + b.executions, lanes=a.lanes + b.lanes, bytes=a.bytes + b.bytes)
        )
    stalls: Counter[tuple[str, str]] = Counter()
    for stall in (*first.stalls, *second.stalls):
        stalls[stall.kind, stall.source] += stall.executions
    return replace(
        second,
        instructions=_sum(first.instructions, second.instructions),
        lanes=_sum(first.lanes, second.lanes),
        accesses=list(accesses.values()),
        lds_conflicts=first.lds_conflicts + second.lds_conflicts,
        stalls=[Stall(*key, count) for key, count in sorted(stalls.items())],
        sources=_sum(first.sources, second.sources),
        inexact=_joined([*first.inexact, *second.inexact]),
        launches=first.launches + second.launches,
        polled=_sum(first.polled, second.polled),
    )


def _joined(all_: list[Inexact]) -> list[Inexact]:
    joined: dict[str, Inexact] = {}
    for each in all_:
        before = joined.get(each.opcode)
        joined[each.opcode] = each if before is None else replace(each, executions=before.executions + each.executions)
    return [joined[opcode] for opcode in sorted(joined)]


def _sum(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    return {key: first.get(key, 0) + second.get(key, 0) for key in {**first, **second}}
