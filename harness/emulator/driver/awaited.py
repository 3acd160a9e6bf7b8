"""The memory that a wavefront polls, and the value with which its loop compares it: for reports of hangs.

Both are read from the code of the loop and from the registers, so no mode has to record anything. Example: in

    .LBB0_1:
        global_load_dword v2, v1, s[2:3] sc0 sc1
        s_waitcnt vmcnt(0)
        v_cmp_gt_i32_e32 vcc, s4, v2
        s_cbranch_vccnz .LBB0_1

a wavefront polls ``s[2:3] + v1`` and compares it with ``s4``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence

import numpy as np

from harness.emulator.listing.instructions import Instruction
from harness.emulator.operations.access import ATOMIC, Effect, GlobalAccess
from harness.emulator.operations.table import Builder, find
from harness.emulator.program.decode import Context, Program
from harness.emulator.wavefront import operands
from harness.emulator.wavefront.operands import Operand
from harness.emulator.wavefront.state import Wavefronts

_Register = tuple[str, int]
_SHARE = ("share", 0)
"""Stands for the work-group's local data share: a scalar atomic's result passes through it to the other lanes."""


def awaited(wf: Wavefronts) -> dict[str, list[int]]:
    """Return what these wavefronts poll, each with the wavefronts that do; empty outside of a polling loop.

    A phrase names the address, the allocation, the value that the memory holds now, the instruction that reads it, and
    the value with which the loop compares it, if the loop has a comparison with a constant or a register.
    """
    launch = wf.chunk.launch
    program: Program = launch.program
    phrases: dict[str, list[int]] = {}
    loop = _loop(program, program.blocks[wf.block].first)
    access = next(_reads(loop, program), None)
    if access is None:
        return phrases
    with np.errstate(over="ignore"):
        addresses, taking = access.addresses(wf)
    comparison = _comparison(loop, access, program)
    for row, wave in enumerate(wf.wave.tolist()):
        lane = int(taking[row].argmax())
        address = int(addresses[row, lane])
        if not any(allocation.contains(address, access.size) for allocation in launch.table.allocations):
            continue  # the registers are not those of an iteration
        held = int.from_bytes(ctypes.string_at(address, access.size), "little")
        near, read = launch.table.nearest(address), access.instruction.text
        phrase = f"{address:#x} ({near}), which holds {held:#x}, by {read!r}"
        if comparison is not None:
            instruction, other = comparison
            phrase += f", compared with {_value(wf, other, row, lane):#x} by {instruction.text!r}"
        phrases.setdefault(phrase, []).append(wave)
    return phrases


def _loop(program: Program, index: int) -> Sequence[Instruction]:
    """Return the instructions of the smallest polling loop with the instruction ``index``, in their order; empty if
    there is none."""
    loops = [
        (program.blocks[block.target].first, block.terminator.index + 1)
        for block in program.blocks
        if block.polls and block.terminator is not None
    ]
    around = [(first, end) for first, end in loops if first <= index < end]
    first, end = min(around, key=lambda each: each[1] - each[0], default=(0, 0))
    return program.listing.instructions[first:end]


def _reads(loop: Sequence[Instruction], program: Program) -> Iterator[GlobalAccess]:
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


def _comparison(
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


def _value(wf: Wavefronts, operand: Operand, row: int, lane: int) -> int:
    """Return an operand's bits in one lane, as an unsigned number."""
    if operand.space == "s":
        words = [int(wf.s[row, operand.register + word]) for word in range(operand.count)]
    elif operand.space == "v":
        numbers = range(operand.register, operand.register + operand.count)
        words = [int(wf.v[number >> 1][row, lane, number & 1]) for number in numbers]
    else:
        words = [operands.constant_word(operand, "u32")]
    return sum(word << 32 * place for place, word in enumerate(words))
