"""Order of atomics: the fences and waits around each one, on every way through the code.

By LLVM's memory model for gfx942, a release at a scope is ``buffer_wbl2`` and then ``s_waitcnt vmcnt(0)`` before the
atomic; an acquire is ``s_waitcnt vmcnt(0)`` and then ``buffer_inv`` after it. What a kernel does before its first
instruction, and after its last one, counts as well: an atomic of a kernel without other accesses has an order too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from harness.isa.protocol.order import START, Lack, State, states
from harness.isa.protocol.program import Program, Scope, Step, covers


@dataclass(frozen=True)
class Unordered:
    """An atomic without a part of its order on some way. ``lack``: the missing part. ``wait`` is the one for the atomic
    before the invalidation."""

    atomic: Step
    lack: Lack


def unordered(program: Program, scope: Scope, *, releases: bool, acquires: bool) -> list[Unordered]:
    """Return the atomics of an amdgcn program that do not release or do not acquire at ``scope``.

    Missing waits come before missing fences, and both are in the order of the listing.
    Triton compiles an acq_rel of several elements of a thread as a release of the first one and an acquire of the last
    one. That is accepted, although a mask that leaves out the first or the last element then leaves out its fence.
    """
    atomics = [step for step in program.steps() if step.access == "atomic"]
    lacks = list(_unreleased(program, atomics, scope)) if releases else []
    if acquires:
        lacks += _unacquired(program, atomics, scope)
    if _is_split(atomics, lacks):
        return []
    return sorted(lacks, key=lambda lack: (lack.lack in ("write-back", "invalidation"), lack.atomic.line))


def _is_split(atomics: list[Step], lacks: list[Unordered]) -> bool:
    """Return whether the atomics are runs, each from one that only releases to one that only acquires, and atomics with
    both."""
    missing: dict[Step, frozenset[Lack]] = {atomic: frozenset() for atomic in atomics}
    for lack in lacks:
        missing[lack.atomic] |= {lack.lack}
    return re.fullmatch(r"(<-*>|\.)*", "".join(_SIGNS.get(kinds, "?") for kinds in missing.values())) is not None


_SIGNS: dict[frozenset[Lack], str] = {
    frozenset({"invalidation"}): "<", frozenset({"write-back", "invalidation"}): "-", frozenset({"write-back"}): ">",
    frozenset(): ".",
}  # fmt: skip
"""Signs of an atomic that only releases, does neither, only acquires, and does both, by what is missing."""


def _unreleased(program: Program, atomics: list[Step], scope: Scope) -> Iterator[Unordered]:
    def through(step: Step, state: State) -> State:
        if covers(step.releases, scope):
            state = frozenset({("fence", START)})
        if step.waits:
            state = frozenset(one for one in state if one[0] != "fence")
        return state

    for atomic, state in states(program, through, atomics, frozenset({("back", START)})):
        kinds = {kind for kind, _ in state}
        if kinds:
            yield Unordered(atomic, "write-back" if "back" in kinds else "wait for the write-back")


def _unacquired(program: Program, atomics: list[Step], scope: Scope) -> Iterator[Unordered]:
    hasty: set[Step] = set()

    def through(step: Step, state: State) -> State:
        if step.waits:
            state = frozenset(("complete", atomic) for _, atomic in state)
        if covers(step.acquires, scope):
            state = frozenset(one for one in state if one[0] != "complete")
            hasty.update(atomic for _, atomic in state)
        if step.access == "atomic":
            state |= {("issued", step)}
        return state

    ends = [block[-1] for block, after in zip(program.blocks, program.edges, strict=True) if block and not after]
    later = [step for step in program.steps() if step.access == "load"]
    lacking = {atomic for _, state in states(program, through, [*later, *ends]) for _, atomic in state}
    for atomic in atomics:
        if atomic in lacking:
            yield Unordered(atomic, "wait" if atomic in hasty else "invalidation")
