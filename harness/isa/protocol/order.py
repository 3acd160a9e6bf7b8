"""Order of memory around flags: what may still be on its way when a flag is written, or older than a flag just read.

All wavefronts of a work-group execute one program, so the state in which a wavefront reaches a barrier is that of the
others behind it. A wavefront's fences order its own accesses. They order those of others only if these had completed
before the last barrier (amdgcn: ``s_barrier`` waits for no store of another wavefront, and ``buffer_wbl2`` writes back
what has arrived in the cache; LLVM, memory model of gfx942), or in PTX, where fences are cumulative, if a barrier was
between.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Literal

from harness.isa.protocol.program import Program, Scope, Step, covers
from harness.isa.protocol.results import is_address

Lack = Literal["write-back", "wait", "wait for the write-back", "invalidation", "other wavefronts"]


@dataclass(frozen=True)
class Overtaken:
    """``flag`` may be seen before ``access``; or ``access`` may be older than the ``flag`` that was read before it.

    ``lack``: what is missing between the two.
    """

    flag: Step
    access: Step
    lack: Lack


State = frozenset[tuple[str, Step]]
"""What is open: obligations of this wavefront ("back", "wait") and of the others ("their back", "their wait"), each
with the access that it comes from; "fence" and "their fence": the write-back of that wavefront is not complete."""


START = Step("the first instruction", 0, ())
"""Stands for what earlier kernels of the stream have done."""

END = Step("the end of the kernel", 0, ())
"""Stands for the loads of later kernels of the stream."""


def unreleased(
    program: Program,
    flags: Collection[Step],
    scope: Scope,
    besides: Collection[Step] = (),
    earlier_kernels: bool = False,
) -> list[Overtaken]:
    """Return each of ``flags`` that may be seen at ``scope`` before an earlier access of the work-group is complete.

    Accesses in ``besides``, such as polls, need not be complete. ``earlier_kernels``: what earlier kernels of the
    stream have stored has to be written back too, as ``START``. The end of a kernel publishes it to its own GPU;
    whether to others depends on the runtime.
    """
    several = program.wavefronts > 1
    ignored = {*flags, *besides}

    def through(step: Step, state: State) -> State:
        if covers(step.releases, scope):
            state = _written_back(state, program.needs_waits)
        if step.waits:
            state = frozenset(one for one in state if one[0] not in ("wait", "fence"))
        if step.barrier:
            mine = [one for one in state if not one[0].startswith("their")]
            state = frozenset([*mine, *((f"their {kind}", access) for kind, access in mine if several)])
        if step.access and step not in ignored:
            kinds = _obligations(step, scope, program.needs_waits)
            state |= frozenset((kind, step) for kind in kinds)
            if several and step.access == "store":
                # Another wavefront may still be about to do it, so that no barrier lies between.
                state |= frozenset((f"their early {kind}", step) for kind in kinds)
        return state

    overtaken: dict[tuple[Step, Step], Overtaken] = {}
    first = frozenset({("back", START)}) if earlier_kernels else frozenset[tuple[str, Step]]()
    for flag, state in states(program, through, flags, first):
        for kind, access in sorted(state, key=lambda one: (one[1] is START, one[1].line, one[0])):
            overtaken.setdefault((flag, access), Overtaken(flag, access, _lack(kind)))
    return list(overtaken.values())


def _obligations(step: Step, scope: Scope, needs_waits: bool) -> tuple[str, ...]:
    """Return what an access needs before a later flag: a load needs to be complete, since its place may be re-used."""
    wait = ("wait",) if needs_waits else ()
    if step.access == "load" or covers(step.scope, scope):
        return wait
    return ("back", *wait)


def _written_back(state: State, needs_waits: bool) -> State:
    """Return the state after a write-back. It also covers what was complete in other wavefronts before the barrier;
    for what was not, "their wait" stays open."""
    fenced = {("fence", access) for kind, access in state if kind == "back"} if needs_waits else set()
    return frozenset(one for one in state if one[0] not in ("back", "their back", "their fence")) | fenced


def _lack(kind: str) -> Lack:
    if kind == "fence":
        return "wait for the write-back"
    if kind.startswith("their"):
        return "other wavefronts"
    return "write-back" if kind == "back" else "wait"


def unacquired(program: Program, polls: Collection[Step], scope: Scope, later_kernels: bool = False) -> list[Overtaken]:
    """Return the loads that a cache may answer with something older than the value of one of ``polls`` before them.

    Loads of addresses do not count: tables of addresses do not change while a kernel runs. ``later_kernels``: those of
    later kernels of the stream count too, as ``END``. The start of a kernel makes the stores of its own GPU visible;
    whether those of others too depends on the runtime.
    """
    if later_kernels:
        program = _with_end(program)

    def through(step: Step, state: State) -> State:
        if step in polls:
            state |= {("poll", step)}
        if covers(step.acquires, scope):
            state = frozenset()
        return state

    loads = [
        step for step in program.steps()
        if (step.access == "load" and step not in polls and not covers(step.scope, scope)) or step is END
    ]  # fmt: skip
    overtaken: dict[Step, Overtaken] = {}
    for load, state in states(program, through, loads):
        for _, poll in sorted(state, key=lambda one: one[1].line):
            if poll not in overtaken and not is_address(program, load):
                overtaken[poll] = Overtaken(poll, load, "invalidation")
    return list(overtaken.values())


def _with_end(program: Program) -> Program:
    blocks = [block if edges else (*block, END) for block, edges in zip(program.blocks, program.edges, strict=True)]
    return replace(program, blocks=blocks)


def states(
    program: Program, through: Callable[[Step, State], State], at: Collection[Step], first: State = frozenset()
) -> list[tuple[Step, State]]:
    """Return with what each of the steps ``at`` may be reached: the union over all ways, to a fixed point. ``first``:
    the state in which the program starts."""
    entries: dict[int, State] = {0: first}
    waiting = [0]
    while waiting:
        block = waiting.pop(0)
        state = entries[block]
        for step in program.blocks[block]:
            state = through(step, state)
        for other in program.edges[block]:
            known = entries.get(other)
            joined = state if known is None else known | state
            if joined != known:
                entries[other] = joined
                if other not in waiting:
                    waiting.append(other)
    reached = []
    for block, state in sorted(entries.items()):
        for step in program.blocks[block]:
            if step in at:
                # A flag with an order of its own is a fence before itself.
                fenced = through(_fence_of(step), state) if step.releases else state
                reached.append((step, fenced))
            state = through(step, state)
    return reached


def _fence_of(step: Step) -> Step:
    return Step(step.text, step.line, step.frames, releases=step.releases)
