"""Launch records of a driver, bounded: the newest are kept one by one, older ones as one sum for each kernel."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace

import numpy as np

from harness.emulator.execution.counters import Access, Inexact, LaunchRecord, Stall
from harness.emulator.execution.tally import Facts, split_counters

DEFAULT_LIMIT = 10_000
_MOST_SUMS = 256


class Records:
    """Records since the last ``drain``. At most ``limit`` are kept one by one; sums over all of them stay exact."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        # The newest launches: two lists, since a list of pairs would be an object more for each launch.
        self._facts: deque[Facts] = deque()
        self._counts: deque[np.ndarray] = deque()
        # Older launches with the same facts, by identity; the facts of the last launch are last.
        self._sums: dict[int, _Sum] = {}
        # Sums by kernel hash and listing, which a mutation test may change, in the order of their first launches.
        self._kernels: dict[tuple[str, str], LaunchRecord | None] = {}

    def add(self, facts: Facts, counts: np.ndarray) -> None:
        """Add a launch, whose record is made when it is needed.

        While there are more than ``limit``, the oldest joins its kernel's sum.
        """
        self._facts.append(facts)
        self._counts.append(counts)
        while len(self._facts) > self.limit:
            oldest = self._facts.popleft()
            summed = self._sums.pop(id(oldest), None)
            if summed is None:
                self._kernels.setdefault((oldest.hash, oldest.listing))
                summed = _Sum(oldest)
            summed.add(self._counts.popleft())
            self._sums[id(oldest)] = summed
            if len(self._sums) > _MOST_SUMS:
                self._join()

    def drain(self) -> list[LaunchRecord]:
        """Return the sums, then the newest records, oldest first, and forget them."""
        self._join()
        records = [record for record in self._kernels.values() if record is not None]
        records += (facts.record(counts) for facts, counts in zip(self._facts, self._counts, strict=True))
        self._kernels.clear()
        self._facts.clear()
        self._counts.clear()
        return records

    def _join(self) -> None:
        for summed in self._sums.values():
            key = summed.facts.hash, summed.facts.listing
            before = self._kernels[key]
            self._kernels[key] = summed.record() if before is None else added(before, summed.record())
        self._sums.clear()


class _Sum:
    """The sum of launches that share ``facts``."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._launches = 0
        self._counts = np.zeros(1, np.int64)
        self._executions = np.zeros((1, 2), np.int64)

    def add(self, counts: np.ndarray) -> None:
        _, _, executions, lanes = split_counters(self.facts.program, counts)
        self._launches += 1
        self._counts = self._counts + counts
        # A launch without an access to local memory has no record of one, nor of its executions.
        self._executions = self._executions + executions[:, None] * (lanes > 0)

    def record(self) -> LaunchRecord:
        record = self.facts.record(self._counts, self._executions)
        if self._launches == 1:
            return record
        return replace(record, launches=self._launches, accesses=_summed(record.accesses))


def added(first: LaunchRecord, second: LaunchRecord) -> LaunchRecord:
    """Return the sum of two records of one kernel, with the grid of ``second``."""
    stalls: Counter[tuple[str, str]] = Counter()
    for stall in (*first.stalls, *second.stalls):
        stalls[stall.kind, stall.source] += stall.executions
    return replace(
        second,
        instructions=_sum(first.instructions, second.instructions),
        lanes=_sum(first.lanes, second.lanes),
        accesses=_summed([*first.accesses, *second.accesses]),
        lds_conflicts=first.lds_conflicts + second.lds_conflicts,
        stalls=[Stall(*key, count) for key, count in sorted(stalls.items())],
        sources=_sum(first.sources, second.sources),
        inexact=_joined([*first.inexact, *second.inexact]),
        launches=first.launches + second.launches,
        polled=_sum(first.polled, second.polled),
    )


def _summed(all_: list[Access]) -> list[Access]:
    """Return accesses of the same kind at the same place as one."""
    accesses: dict[tuple[object, ...], Access] = {}
    for a in all_:
        key = a.mnemonic, a.kind, a.width, a.where, a.source, a.line, a.polled
        b = accesses.get(key)
        accesses[key] = (
            a
            if b is None
            else replace(a, executions=a.executions + b.executions, lanes=a.lanes + b.lanes, bytes=a.bytes + b.bytes)
        )
    return list(accesses.values())


def _joined(all_: list[Inexact]) -> list[Inexact]:
    joined: dict[str, Inexact] = {}
    for each in all_:
        before = joined.get(each.opcode)
        joined[each.opcode] = each if before is None else replace(each, executions=before.executions + each.executions)
    return [joined[opcode] for opcode in sorted(joined)]


def _sum(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    return {key: first.get(key, 0) + second.get(key, 0) for key in {**first, **second}}
