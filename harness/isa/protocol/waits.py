"""Registers that amdgcn code uses before it has waited for the load that writes them.

The compiler inserts the waits, and knows nothing of those in inline assembly. Source: LLVM, ``SIInsertWaitcnts``; AMD
"CDNA3 ISA", "Manually Inserted Wait States" and "Data Dependency Resolution".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from harness.isa.protocol.program import Program, Step

VECTOR, LDS, SCALAR = "vmcnt", "lgkmcnt", "lgkmcnt of a scalar load"
"""Kinds of operations in flight. Those of the first two complete in order, scalar loads in any order."""

_LIMIT = {VECTOR: 63, LDS: 15, SCALAR: 15}
_NUMBERED = re.compile(r"[vsa]\d+|vcc")
_SCALAR_LOADS = ("s_load_", "s_buffer_load_", "s_scratch_load_", "s_memtime", "s_memrealtime")

_InFlight = dict[tuple[str, str], tuple[int, Step]]
"""Register and kind of the load -> the number of operations of that kind that were issued after it, and the load."""


@dataclass(frozen=True)
class Unwaited:
    """``user`` reads or writes a register that ``load`` may not have written yet; ``counter``: of the missing wait."""

    load: Step
    user: Step
    counter: str

    def __str__(self) -> str:
        return f"missing s_waitcnt {self.counter} between {self.load} and {self.user}, which uses its register"


def unwaited(program: Program) -> list[Unwaited]:
    """Return the instructions of a program that use a register while a load into it may be in flight, in the order of
    the listing. Empty for PTX, whose assembler waits by itself."""
    if not program.needs_waits:
        return []
    entries: list[_InFlight | None] = [None] * len(program.blocks)
    entries[0] = {}
    lacks: dict[int, Unwaited] = {}
    waiting = [0]
    while waiting:
        block = waiting.pop()
        pending: _InFlight = dict(entries[block] or {})
        for step in program.blocks[block]:
            for lack in _uses(step, pending):
                lacks.setdefault(step.line, lack)
            _advance(step, pending)
        for following in program.edges[block]:
            joined = _joined(entries[following], pending)
            if joined is not None:
                entries[following] = joined
                waiting.append(following)
    return [lacks[line] for line in sorted(lacks)]


def _joined(before: _InFlight | None, new: _InFlight) -> _InFlight | None:
    """Return what may be in flight at the beginning of a block, with the fewest operations after it on any way there;
    None if that is ``before``."""
    joined = dict(before or {})
    for key, (age, load) in new.items():
        if key not in joined or age < joined[key][0]:
            joined[key] = age, load
    return None if before is not None and joined == before else joined


def _uses(step: Step, pending: _InFlight) -> Iterator[Unwaited]:
    if not pending:
        return
    in_order = [kind for kind in _kinds(step) if kind != SCALAR]
    for register in sorted(step.reads | step.writes):
        for kind in _LIMIT:
            overwrites = register not in step.reads and kind in in_order  # the later load writes the register last
            if (register, kind) in pending and not overwrites:
                yield Unwaited(pending[register, kind][1], step, kind.partition(" ")[0])


def _advance(step: Step, pending: _InFlight) -> None:
    """Change what is in flight by one instruction."""
    if step.text.startswith("s_waitcnt"):
        counts = _counts(step.text)
        for key, (age, _) in list(pending.items()):
            kind = key[1]
            count = counts[VECTOR] if kind == VECTOR else counts[LDS]
            if count == 0 if kind == SCALAR else age >= count:
                del pending[key]
        return
    for kind in _kinds(step):
        for key, (age, load) in pending.items():
            if key[1] == kind:
                pending[key] = min(age + 1, _LIMIT[kind]), load
        for register in step.writes:
            if _NUMBERED.fullmatch(register):
                pending[register, kind] = 0, step


def _kinds(step: Step) -> tuple[str, ...]:
    """Return the kinds of operation that an instruction issues: two for one on flat memory."""
    name = step.text.partition(" ")[0]
    if name.startswith("flat_"):
        return VECTOR, LDS
    if step.access is not None or name.startswith("scratch_"):
        return (VECTOR,)
    if name.startswith("ds_"):
        return (LDS,)
    return (SCALAR,) if name.startswith(_SCALAR_LOADS) else ()


def _counts(text: str) -> dict[str, int]:
    """Return how many operations may stay in flight after an s_waitcnt: ``vmcnt(1) lgkmcnt(0)``, or a number."""
    operand = text.partition(" ")[2].strip()
    if re.fullmatch(r"\d+|0x[0-9a-fA-F]+", operand):
        number = int(operand, 0)
        return {VECTOR: number & 15 | number >> 10 & 48, LDS: number >> 8 & 15}
    named = {name: int(count) for name, count in re.findall(r"(\w+)\((\d+)\)", operand)}
    # The counters end at these values, so a wait for more is none.
    vector, lds = named.get(VECTOR, 1 << 30), named.get(LDS, 1 << 30)
    return {VECTOR: vector if vector < _LIMIT[VECTOR] else 1 << 30, LDS: lds if lds < _LIMIT[LDS] else 1 << 30}
