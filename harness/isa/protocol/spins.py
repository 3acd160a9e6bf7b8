"""Spin loops: what they poll, and whether they back off."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from harness.isa.protocol.program import Program, Step
from harness.isa.protocol.results import reaching

_REGISTER = re.compile(r"%\w+|\b[vsa](?:\d+|\[\d+:\d+\])")


@dataclass(frozen=True)
class Spin:
    """A loop that waits. ``polls``: its accesses, and those of the same inlined calls before the loop, with which the
    wait begins; empty if the loop reads nothing, so that it never ends. ``sleeps``: it pauses between two polls.
    ``first``: a step of it. ``entries``: all loads right before the loop that are of the same source line as one in
    it, by whatever calls; the wait ends without the loop if their words are as awaited."""

    polls: tuple[Step, ...]
    sleeps: bool
    first: Step
    entries: tuple[Step, ...] = ()

    @property
    def place(self) -> str:
        """Position of its first poll in the source."""
        return (self.polls or (self.first,))[0].place

    @property
    def every(self) -> tuple[Step, ...]:
        """All accesses whose value may end the wait."""
        return tuple(dict.fromkeys((*self.polls, *self.entries)))

    @property
    def unlike(self) -> tuple[Step, ...]:
        """The entries that read in another way than the loop: they differ from its loads of their source line in more
        than registers, such as in an offset."""
        inside = {(step.frames[0], _form(step)) for step in self.polls if step.frames and step not in self.entries}
        return tuple(step for step in self.entries if (step.frames[0], _form(step)) not in inside)


def spins(program: Program) -> list[Spin]:
    """Return the loops that wait for another program to change memory, in the order of the listing.

    A loop around a compare-and-swap that computes its next operand from the last result is not a wait: see ``retries``.
    """
    waits = [spin for loop, spin in _waits(program) if not _is_retry(program, loop, spin)]
    return sorted(waits, key=lambda spin: spin.first.line)


def retries(program: Program) -> list[Step]:
    """Return the compare-and-swaps by which loops do another operation, as an addition of floating-point numbers."""
    return [poll for loop, spin in _waits(program) if _is_retry(program, loop, spin) for poll in spin.polls if poll.op]


def _waits(program: Program) -> Iterator[tuple[frozenset[int], Spin]]:
    inner: set[frozenset[int]] = set()
    for loop in program.loops:
        if any(map(loop.issuperset, inner)):
            continue  # it repeats a wait, and does something else besides
        steps = [step for block in sorted(loop) for step in program.blocks[block]]
        accesses = [step for step in steps if step.access]
        sleeps = any(step.sleeps for step in steps)
        if accesses:
            is_wait = all(_decides(program, loop, access) for access in accesses)
        else:
            is_wait = sleeps or _is_endless(program, loop)
        if is_wait:
            inner.add(loop)
            alike = {(step.frames, step.width) for step in accesses if step.access == "load" and step.frames}
            first = [
                step for step in program.steps()
                if step.access == "load" and (step.frames, step.width) in alike and step not in accesses
            ]  # fmt: skip
            yield loop, Spin((*accesses, *first), sleeps, steps[0], tuple(_entries(program, loop, accesses)))


def _entries(program: Program, loop: frozenset[int], accesses: list[Step]) -> Iterator[Step]:
    """Yield the loads of the same source lines as those of the loop that decide whether the program comes to it, and
    from which a way without other accesses leads to it."""
    lines = {step.frames[0] for step in accesses if step.access == "load" and step.frames}
    before = {
        block for block, following in enumerate(program.edges) if block not in loop and loop.intersection(following)
    }
    waiting, last = list(before), []
    while waiting:
        block = waiting.pop()
        access = next((step for step in reversed(program.blocks[block]) if step.access), None)
        if access is not None:
            last.append(access)
            continue
        ways = {other for other, following in enumerate(program.edges) if block in following} - before - loop
        before |= ways
        waiting += ways
    for step in last:
        if step.access == "load" and step.frames and step.frames[0] in lines and _decides(program, before, step):
            yield step


def _form(step: Step) -> str:
    """Return the text of a step without its registers, which the compiler chooses."""
    return _REGISTER.sub("register", step.text)


def _is_endless(program: Program, loop: frozenset[int]) -> bool:
    """Return whether nothing in the loop can change the condition under which it goes on."""
    if not any(other not in loop for block in loop for other in program.edges[block]):
        return True
    written = {name for block in loop for step in program.blocks[block] for name in step.writes}
    conditions = _conditions(program, loop)
    return not any(step.reads & written for step in conditions)


def _is_retry(program: Program, loop: frozenset[int], spin: Spin) -> bool:
    swaps = [poll for poll in spin.polls if poll.op == "cmpswap"]
    return any(reaching(program, swap, swap, loop) & swap.data for swap in swaps)


def _conditions(program: Program, loop: Collection[int]) -> list[Step]:
    """Return the conditional branches in the loop: by others than its exits a flag for its exit may be set."""
    return [program.blocks[block][-1] for block in loop if len(program.edges[block]) > 1]


def _decides(program: Program, loop: Collection[int], access: Step) -> bool:
    """Return whether the result of an access reaches a branch of these blocks, of a loop or before one."""
    branches = _conditions(program, loop)
    return any(reaching(program, access, branch, loop) & branch.reads for branch in branches)
