"""Heaps of the library under test, and the difference that a malformed one is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from fixtures.adapters.heap import Heap, HeapForm, made
from fixtures.addresses import address_of
from fixtures.worker import Env, heap_bytes
from harness.oracles import bool_all, difference

SIZE = 1 << 20


def with_form(run: Callable[[Env, Any], Any]) -> Callable[[Env, Any], Any]:
    """Return ``run`` with a malformed heap as its difference: a table that no kernel can use."""

    def checked(env: Env, case: Any) -> Any:
        try:
            return run(env, case)
        except HeapForm as form:
            if form.difference is None:
                return None  # the rank with the malformed heap reports it
            subject, got, wanted = form.difference
            return difference(subject, rank=env.rank, got=got, wanted=wanted)

    checked.__module__, checked.__qualname__ = run.__module__, run.__qualname__
    return checked


def arena_offset(env: Env) -> int:
    """Return the offset in the heap of the arena, the suite's own allocation. Collective.

    Raises ``HeapForm`` on all ranks if a rank's own entry in the table does not lead to its heap.
    """
    own = int(env.iris.get_heap_bases()[env.rank])
    offset = address_of(env.image.arena) - own
    right = 0 <= offset <= heap_bytes(env.world_size) - env.image.arena.numel()
    if not bool_all(right):
        wanted = f"the start of its own heap, which holds the address {address_of(env.image.arena):#x}"
        raise HeapForm(None if right else (f"bases[{env.rank}], this rank's entry", f"{own:#x}", wanted))
    return offset


def new_heap(env: Env, size: int) -> Heap:
    """Make a heap on all ranks. Raises ``HeapForm`` on all ranks if one rank's is malformed."""
    one, wrong = env.in_library(_made, size)
    if wrong:
        raise HeapForm(*wrong)
    heap: Heap = one
    return heap


def _made(env: Env, size: int) -> tuple[Heap | None, list[Any]]:
    try:
        return made(env.adapter, size), []
    except HeapForm as form:
        return None, [form.difference]


def refuse(env: Env, size: int) -> None:
    """Call the adapter for a heap of a size that it should refuse."""
    env.adapter.make_heap(size)


@contextlib.contextmanager
def heap(env: Env, size: int = SIZE) -> Iterator[Heap]:
    """Make a heap on all ranks, and return its memory at the end if the library can."""
    one = new_heap(env, size)
    try:
        yield one
    finally:
        env.settle()
        one.close()
