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

from collections.abc import Iterator, Sequence

from harness.emulator.listing.instructions import Instruction
from harness.emulator.operations.access import ATOMIC, Effect, GlobalAccess
from harness.emulator.operations.table import Builder, find
from harness.emulator.program.decode import Context, Polled, Program
from harness.emulator.wavefront import operands
from harness.emulator.wavefront.operands import Operand

_Register = tuple[str, int]
_SHARE = ("share", 0)
"""Stands for the work-group's local data share: a scalar atomic's result passes through it to the other lanes."""


def polled(program: Program) -> Polled:
    """Return what is inside of the program's innermost polling loops whose reads are compared with something.

    A loop that only adds to memory, or that contains another polling loop, runs as often as its own counter requires.
    """
    if program.polled is None:
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
        program.polled = Polled(frozenset(segments), frozenset(instructions))
    return program.polled


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


def comparison(
    loop: Sequence[Instruction], access: GlobalAccess, program: Program
) -> tuple[Instruction, Operand] | None:
    """Return the first comparison of the value that ``access`` read, and its other operand.

    The value is followed through moves, masks and the local data share, once around the loop.
    """
    accumulators = program.listing.directives.get("accum_offset", 0)
    place = loop.index(access.instruction)
    register = access.target if access.kind == ATOMIC else access.data
    carriers: set[_Register] = {("v", register + word) for word in range(max(1, access.size // 4))}
    for instruction in (*loop[place + 1 :], *loop[:place]):
        texts = instruction.operands
        if instruction.mnemonic.startswith(("s_waitcnt", "s_branch", "s_cbranch", "s_barrier", "buffer_inv", "s_nop")):
            continue
        compares = instruction.mnemonic.startswith(("v_cmp", "s_cmp"))
        scalar = instruction.mnemonic.startswith("s_cmp")
        parsed = [operands.parse(text, accumulators) for text in (texts if scalar else texts[1:])]
        carried = [bool(carriers & set(_registers(operand))) for operand in parsed]
        if compares:
            if any(carried):
                other = next((operand for operand, carries in zip(parsed, carried, strict=True) if not carries), None)
                return None if other is None else (instruction, other)
            continue
        if instruction.mnemonic.startswith("ds_"):
            writes = "_write" in instruction.mnemonic
            if writes and any(carried):
                carriers.add(_SHARE)
            elif not writes and texts:
                _note(carriers, operands.parse(texts[0], accumulators), _SHARE in carriers)
        elif texts:
            _note(carriers, operands.parse(texts[0], accumulators), any(carried))
    return None


def _note(carriers: set[_Register], result: Operand, carries: bool) -> None:
    if carries:
        carriers.update(_registers(result))
    else:
        carriers.difference_update(_registers(result))


def _registers(operand: Operand) -> Iterator[_Register]:
    if operand.space in ("v", "s"):
        yield from ((operand.space, operand.register + word) for word in range(operand.count))
