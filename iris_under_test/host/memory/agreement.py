"""Check that all ranks request the same of the heap: otherwise every rank raises, and no rank waits forever."""

from __future__ import annotations

import contextlib
import enum
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from iris_under_test.host.distributed.helpers import exchange

from .errors import HeapOutOfMemory

__all__ = ["Operation", "Request", "on_heap"]

_LARGEST = 2**63 - 1
_USE = "allocating or freeing heap memory"


class Operation(enum.IntEnum):
    """The operation that a rank requests; sent as a number."""

    ALLOCATE = 0
    FREE = 1
    AS_SYMMETRIC = 2
    REFRESH = 3

    def __str__(self) -> str:
        return {0: "allocation", 1: "free", 2: "as_symmetric", 3: "refresh_peer_access"}[self.value]


class _Status(enum.IntEnum):
    FINE = 0
    BAD = 1
    NO_ROOM = 2


@dataclass
class Request:
    """One rank's part of a collective operation: the request, and its error if it has one.

    ``offset``: where the allocation is that it has reserved or wants to free, -1 for none. Both numbers are bytes.
    ``elsewhere``: what ranks raise that did nothing wrong.
    """

    operation: Operation
    elsewhere: type[Exception] = ValueError
    num_bytes: int = 0
    offset: int = -1
    error: Exception | None = None

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        """Keeps what is raised inside, if it is the first: it is raised once the other ranks know of it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - raised by agree, whatever it is
            self.error = self.error or error

    def agree(self, more: Sequence[int] = (0, 0)) -> list[tuple[int, ...]]:
        """Collective: the two integers ``more`` of every rank, if all requests are the same and none has an error.

        Raises, on every rank:
            HeapOutOfMemory: a rank noted one.
            what was noted, on the rank that noted anything else, and ``elsewhere`` naming those ranks on the others.
            RuntimeError: ranks request different things, or some rank requests nothing of the heap.
        """
        # Sizes beyond 64 bits never fit; the exchange cannot carry them.
        mine = [self.operation, self._status(), min(self.num_bytes, _LARGEST), self.offset, *more]
        try:
            received = exchange(mine, doing=_USE)
            rows = [_Row(Operation(row[0]), _Status(row[1]), row[2], row[3], tuple(row[4:])) for row in received]
            self._check(rows)
        finally:
            self.error = None  # its traceback refers to the frame that holds the request
        return [row.more for row in rows]

    def _status(self) -> _Status:
        if self.error is None:
            return _Status.FINE
        return _Status.NO_ROOM if isinstance(self.error, HeapOutOfMemory) else _Status.BAD

    def _check(self, rows: list[_Row]) -> None:
        if self.error is not None and not isinstance(self.error, HeapOutOfMemory):
            raise self.error
        if bad := _ranks_with(_Status.BAD, rows):
            raise self.elsewhere(f"{self.operation}: bad request on ranks {bad}")
        _check_alike([row.request for row in rows])
        if full := _ranks_with(_Status.NO_ROOM, rows):
            raise self.error or HeapOutOfMemory(
                f"Heap out of memory: {self.num_bytes} bytes requested, ranks {full} are full"
            )
        _check_alike([row.place for row in rows])


def on_heap(heap_size: Any, allocator_type: str, known: Sequence[str]) -> None:
    """Collective: ValueError on every rank unless all want one positive number of bytes and one known allocator."""
    problem = None
    if not isinstance(heap_size, int) or isinstance(heap_size, bool) or not 0 < heap_size <= _LARGEST:
        problem = f"heap_size must be a positive number of bytes, got {heap_size!r}"
    elif allocator_type not in known:
        problem = f"there is no allocator {allocator_type!r}: use one of {', '.join(known)}"
    rows = exchange([-1, -1] if problem else [heap_size, known.index(allocator_type)], doing="making a heap")
    if problem is not None:
        raise ValueError(problem)
    bad = [rank for rank, (size, _) in enumerate(rows) if size < 0]
    if bad:
        raise ValueError(
            f"heap_size is {heap_size} and the allocator {allocator_type!r} here, ranks {bad} passed bad ones"
        )
    if len({size for size, _ in rows}) > 1:
        raise ValueError(f"heap_size must be the same on every rank, got {dict(enumerate(size for size, _ in rows))}")
    if len({index for _, index in rows}) > 1:
        named = {rank: known[index] for rank, (_, index) in enumerate(rows)}
        raise ValueError(f"the allocator must be the same on every rank, got {named}")


@dataclass(frozen=True)
class _Row:
    operation: Operation
    status: _Status
    num_bytes: int
    offset: int
    more: tuple[int, ...]

    @property
    def request(self) -> str:
        return f"{self.operation} of {self.num_bytes} bytes"

    @property
    def place(self) -> str:
        return f"{self.request} at offset {self.offset}"


def _ranks_with(status: _Status, rows: list[_Row]) -> list[int]:
    return [rank for rank, row in enumerate(rows) if row.status is status]


def _check_alike(requests: list[str]) -> None:
    common, count = Counter(requests).most_common(1)[0]
    if count == len(requests):
        return
    others = ", ".join(f"rank {rank}: {text}" for rank, text in enumerate(requests) if text != common)
    raise RuntimeError(f"asymmetric use of the heap: most ranks request {common}, but {others}")
