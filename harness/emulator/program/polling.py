"""Loops in which a wavefront waits until memory that others may write has another value.

How often such a loop runs depends on the others, so what it executes is counted apart: all other counts of a launch are
the same in every run. Example: in

    .LBB0_1:
        global_load_dword v2, v1, s[2:3] sc0 sc1
        s_waitcnt vmcnt(0)
        v_cmp_gt_i32_e32 vcc, s4, v2
        s_cbranch_vccnz .LBB0_1

the value that the load reads is compared with ``s4``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.listing.instructions import Instruction
from harness.emulator.native.memory import GLOBAL_SADDR
from harness.emulator.operations.access import ATOMIC, Effect, GlobalAccess
from harness.emulator.operations.table import Builder, find
from harness.emulator.program.decode import Context, PollingLoops, Program
from harness.emulator.wavefront import operands
from harness.emulator.wavefront.operands import Operand

Register = tuple[str, int]
_SHARE = ("share", 0)
"""Stands for the work-group's local data share: a scalar atomic's result passes through it to the other lanes."""


def polling_loops(program: Program) -> PollingLoops:
    """Return what is inside of the program's innermost polling loops whose reads are compared with something.

    A loop that only adds to memory, or that contains another polling loop, runs as often as its own counter requires.
    """
    if program.polling is None:
        segments: set[int] = set()
        instructions: set[int] = set()
        for first, end in _innermost(program):
            body = program.listing.instructions[first:end]
            if any(comparison(body, access, program) is not None for access in reads(body, program)):
                instructions.update(range(first, end))
                segments.update(
                    segment.index
                    for block in program.blocks
                    if first <= block.first < end
                    for segment in block.segments
                )
        program.polling = PollingLoops(frozenset(segments), frozenset(instructions))
    return program.polling


def smallest_loop(program: Program, index: int) -> Sequence[Instruction]:
    """Return the instructions of the smallest polling loop with the instruction ``index``, in their order; empty if
    there is none."""
    around = [(first, end) for first, end in _loops(program) if first <= index < end]
    first, end = min(around, key=lambda each: each[1] - each[0], default=(0, 0))
    return program.listing.instructions[first:end]


def _loops(program: Program) -> list[tuple[int, int]]:
    """Return the first instruction of each polling loop, and the one after its last."""
    return [
        (program.blocks[block.target].first, block.terminator.index + 1)
        for block in program.blocks
        if block.polls and block.terminator is not None
    ]


def _innermost(program: Program) -> list[tuple[int, int]]:
    """Return the polling loops that contain no other one. Loops with the same head are one loop, to its last jump."""
    ends: dict[int, int] = {}
    for first, end in _loops(program):
        ends[first] = max(end, ends.get(first, end))
    loops = list(ends.items())
    return [
        (first, end)
        for first, end in loops
        if not any((low, high) != (first, end) and first <= low and high <= end for low, high in loops)
    ]


def reads(loop: Sequence[Instruction], program: Program) -> Iterator[GlobalAccess]:
    """Yield the loop's reads of memory that others may write."""
    listing = program.listing
    context = Context(listing.arch, listing.directives.get("accum_offset", 0), [])
    for instruction in loop:
        loads = "_load_" in instruction.mnemonic and instruction.modifiers.keys() & {"sc0", "sc1"}
        if not loads and "_atomic_" not in instruction.mnemonic:
            continue
        entry, _ = find(instruction.mnemonic, listing.arch)
        built = entry.build(instruction, context) if isinstance(entry, Builder) else None
        if isinstance(built, Effect) and isinstance(built.access, GlobalAccess):
            yield built.access


@dataclass(frozen=True)
class Comparison:
    """The comparison of a loop: of what was read, less each operand of ``less``, plus each of ``more``, with
    ``other``."""

    instruction: Instruction
    other: Operand
    less: tuple[Operand, ...]
    more: tuple[Operand, ...]

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (self.other, *self.less, *self.more)


_SUM = re.compile(r"[vs]_(sub|subrev|add)_(?:nc_)?[ui]32(?:_e32|_e64)?$")
_Chain = tuple[tuple[Operand, ...], tuple[Operand, ...]]
"""Operands that were subtracted from a value since it was read, and those that were added to it."""


def comparison(loop: Sequence[Instruction], access: GlobalAccess, program: Program) -> Comparison | None:
    """Return the first comparison of the value that ``access`` read.

    The value is followed through moves, masks, differences, sums and the local data share, once around the loop.
    """
    accumulators = program.listing.directives.get("accum_offset", 0)
    place = loop.index(access.instruction)
    register = access.target if access.kind == ATOMIC else access.data
    carriers: dict[Register, _Chain] = {("v", register + word): ((), ()) for word in range(max(1, access.size // 4))}
    for instruction in (*loop[place + 1 :], *loop[:place]):
        texts = instruction.operands
        scalar = instruction.mnemonic.startswith("s_cmp")
        if instruction.mnemonic.startswith(_NO_RESULT) and not scalar:
            continue
        compares = scalar or instruction.mnemonic.startswith("v_cmp")
        parsed = [_parsed(text, accumulators) for text in (texts if scalar else texts[1:])]
        chains = [next((carriers[each] for each in registers(operand) if each in carriers), None) for operand in parsed]
        chain = next((each for each in chains if each is not None), None)
        if compares:
            if chain is not None:
                other = next((operand for operand, each in zip(parsed, chains, strict=True) if each is None), None)
                return None if other is None else Comparison(instruction, other, *chain)
            continue
        if instruction.mnemonic.startswith("ds_"):
            writes = "_write" in instruction.mnemonic
            if writes and chain is not None:
                carriers[_SHARE] = chain
            elif not writes and texts:
                _note(carriers, _parsed(texts[0], accumulators), carriers.get(_SHARE))
        elif texts:
            _note(carriers, _parsed(texts[0], accumulators), _changed(instruction, parsed, chains, chain))
    return None


def _changed(
    instruction: Instruction, parsed: Sequence[Operand], chains: Sequence[_Chain | None], chain: _Chain | None
) -> _Chain | None:
    """Return the chain of an instruction's result, which uses a value with ``chain``."""
    match = _SUM.match(instruction.mnemonic)
    if chain is None or len(parsed) != 2 or match is None:
        return chain
    less, more = chain
    first = chains[0] is not None
    other = parsed[1 if first else 0]
    if match[1] == "add":
        return less, (*more, other)
    if first == (match[1] == "sub"):
        return (*less, other), more
    return None  # the value is subtracted from another one, and the comparison is not of the value


def _parsed(text: str, accumulators: int) -> Operand:
    """Return an operand; one without registers if it cannot be parsed, as a hardware register, a message or a label."""
    try:
        return operands.parse(text, accumulators)
    except UnimplementedInstruction:
        return Operand(text, "off")


def _note(carriers: dict[Register, _Chain], result: Operand, chain: _Chain | None) -> None:
    for register in registers(result):
        if chain is None:
            carriers.pop(register, None)
        else:
            carriers[register] = chain


_NO_RESULT = ("s_waitcnt", "s_branch", "s_cbranch", "s_barrier", "buffer_inv", "s_nop", "s_cmp")


def results(instruction: Instruction, accumulators: int) -> Iterator[Register]:
    """Yield the registers that an instruction may write: its first operand, which is an address in a store."""
    name, texts = instruction.mnemonic, instruction.operands
    if name.startswith(_NO_RESULT) or "_store_" in name or "_write" in name:
        return
    for text in texts[: 2 if "_co_" in name else 1]:
        yield from registers(_parsed(text, accumulators))


def address_registers(access: GlobalAccess) -> set[Register]:
    """Return the registers from which an access forms its addresses."""
    form = access.address
    vector = [("v", form.areg + word) for word in range(2)] if form.areg >= 0 else []
    scalar = [("s", form.sreg + word) for word in range(4)] if form.sreg >= 0 else []
    if form.form == GLOBAL_SADDR:
        vector, scalar = vector[:1], scalar[:2]
    return {*vector, *scalar, *([("s", form.soffset)] if form.soffset >= 0 else [])}


def registers(operand: Operand) -> Iterator[Register]:
    if operand.space in ("v", "s"):
        yield from ((operand.space, operand.register + word) for word in range(operand.count))
