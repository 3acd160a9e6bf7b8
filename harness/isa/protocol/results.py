"""The ways of an access's result: the registers that may hold something computed from it."""

from __future__ import annotations

from collections.abc import Collection

from harness.isa.protocol.program import Program, Step


def reaching(
    program: Program, source: Step, at: Step, blocks: Collection[int] | None = None, values: bool = False
) -> set[str]:
    """Return the registers that may hold something computed from the result of ``source`` when the program comes to
    ``at``, by ways inside ``blocks`` only; None: by any way. Shared memory is one register, "lds".

    ``values``: a comparison with the result, the lanes and branches that it selects, and what goes through shared
    memory, are not computed from it.
    """
    never = frozenset({"exec", "lds"}) if values else frozenset[str]()
    inside = range(len(program.blocks)) if blocks is None else blocks
    entries: dict[int, set[str]] = {block: set() for block in inside}
    waiting = [block for block in inside if source in program.blocks[block] or at in program.blocks[block]]
    result: set[str] = set()
    while waiting:
        block = waiting.pop()
        tainted = set(entries[block])
        for step in program.blocks[block]:
            if step is at:
                result |= tainted
            if step is source or (step.reads & tainted and not (values and step.compares)):
                tainted |= step.writes - never
            elif not step.guarded:
                tainted -= step.writes - {"lds"}
        for other in program.edges[block]:
            if other in entries and not tainted <= entries[other]:
                entries[other] |= tainted
                waiting.append(other)
    return result


def is_address(program: Program, load: Step) -> bool:
    """Return whether what ``load`` loads becomes an address, as an entry of a table does.

    Not by way of shared memory: there the elements of a matrix are next to the numbers of the tiles that programs have
    shared out.
    """
    return any(
        reaching(program, load, step, values=True) & step.address
        for step in program.steps()
        if step.access and step is not load
    )  # fmt: skip
