"""The memory that a wavefront polls, and the value with which its loop compares it: for reports of hangs.

Both are read from the code of the loop and from the registers, and no mode has to record anything unless the loop
itself changes the registers of its address. Example: in

    .LBB0_1:
        global_load_dword v2, v1, s[2:3] sc0 sc1
        s_waitcnt vmcnt(0)
        v_cmp_gt_i32_e32 vcc, s4, v2
        s_cbranch_vccnz .LBB0_1

a wavefront polls ``s[2:3] + v1`` and compares it with ``s4``.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.emulator.listing.instructions import Instruction
from harness.emulator.native.memory import GLOBAL_SADDR
from harness.emulator.operations.access import ATOMIC, Effect, GlobalAccess
from harness.emulator.operations.table import Builder, find
from harness.emulator.program.decode import Context, Program
from harness.emulator.wavefront import operands
from harness.emulator.wavefront.operands import Operand
from harness.emulator.wavefront.state import Wavefronts

if TYPE_CHECKING:
    from harness.emulator.execution.allocations import Allocation
    from harness.emulator.execution.launch import Launch
    from harness.emulator.watch.base import Watch

_Register = tuple[str, int]
_ORDERED = re.compile(r"cmp_[gl][te]_")
_WORDS = 4
"""Words of a wavefront that are named."""
_SHARE = ("share", 0)
"""Stands for the work-group's local data share: a scalar atomic's result passes through it to the other lanes."""


@dataclass(frozen=True)
class Polled:
    """One word that some wavefronts poll. ``held``: its value now; ``wanted``: the value with which the loop compares
    it by ``comparison``, both None if they are unknown; ``waves``: numbers of the wavefronts."""

    address: int
    size: int
    allocation: Allocation
    held: int
    read: Instruction
    wanted: int | None
    comparison: Instruction | None
    waves: tuple[int, ...]


def awaited(wf: Wavefronts, watch: Watch | None = None) -> dict[str, list[int]]:
    """Return what these wavefronts poll, each with the wavefronts that do; empty outside of a polling loop.

    A phrase names the address, the allocation, the value that the memory holds now, the instruction that reads it, and
    the value with which the loop compares it, if the loop has a comparison with a constant or a register.
    """
    phrases: dict[str, list[int]] = {}
    for word in polled(wf, watch):
        near = wf.chunk.launch.table.nearest(word.address)
        phrase = f"{word.address:#x} ({near}), which holds {word.held:#x}, by {word.read.text!r}"
        if word.wanted is not None and word.comparison is not None:
            phrase += f", compared with {word.wanted:#x} by {word.comparison.text!r}"
        phrases.setdefault(phrase, []).extend(word.waves)
    return phrases


def polled(wf: Wavefronts, watch: Watch | None = None) -> list[Polled]:
    """Return the words that these wavefronts poll. Of several words that the lanes of a wavefront poll, those that are
    late, if there are any.

    The addresses are those that ``watch`` has recorded, if it records any. Others are read from the registers, which
    hold them for the whole loop unless the loop changes them: then nothing is known.
    """
    launch = wf.chunk.launch
    program: Program = launch.program
    loop = _loop(program, program.blocks[wf.block].first)
    access = next(_reads(loop, program), None)
    if access is None:
        return []
    accumulators = program.listing.directives.get("accum_offset", 0)
    written = {register for each in loop for register in _results(each, accumulators)}
    kept = not written & _address_registers(access)
    compared = _comparison(loop, access, program)
    if compared is not None and written & {each for operand in compared.operands for each in _registers(operand)}:
        compared = None
    words: dict[tuple[int, int | None], list[int]] = {}
    for row, wave in enumerate(wf.wave.tolist()):
        places = watch.last_read(launch, access, wave) if watch is not None else None
        if places is None and kept:
            with np.errstate(over="ignore"):
                addresses, taking = access.addresses(wf)
            places = addresses[row], taking[row]
        if places is None:
            continue
        for address, wanted in _chosen(*places, access.size, launch, compared, wf, row):
            words.setdefault((address, wanted), []).append(wave)
    return [
        Polled(
            address=address,
            size=access.size,
            allocation=next(each for each in launch.table.allocations if each.contains(address, access.size)),
            held=_held(address, access.size),
            read=access.instruction,
            wanted=wanted,
            comparison=None if compared is None else compared.instruction,
            waves=tuple(waves),
        )
        for (address, wanted), waves in words.items()
    ]


def _chosen(
    addresses: np.ndarray,
    taking: np.ndarray,
    size: int,
    launch: Launch,
    compared: _Compared | None,
    wf: Wavefronts,
    row: int,
) -> list[tuple[int, int | None]]:
    """Return the words that the lanes of one wavefront wait for, each with the value with which it is compared."""
    words: dict[int, int | None] = {}
    for lane in np.flatnonzero(taking).tolist():
        address = int(addresses[lane])
        if any(allocation.contains(address, size) for allocation in launch.table.allocations):
            words.setdefault(address, None if compared is None else compared.wanted(wf, row, lane, size))
    late = {
        address: wanted for address, wanted in words.items() if _is_late(_held(address, size), wanted, compared, size)
    }
    return list((late or words).items())[:_WORDS]


def _is_late(held: int, wanted: int | None, compared: _Compared | None, size: int) -> bool:
    """Return whether a word differs from the value with which it is compared. Where they are compared in order, whether
    it is behind it: a word that is waited for grows."""
    if wanted is None or compared is None or _ORDERED.search(compared.instruction.mnemonic) is None:
        return held != wanted
    return (held - wanted) >> (8 * size - 1) & 1 == 1


def _held(address: int, size: int) -> int:
    return int.from_bytes(ctypes.string_at(address, size), "little")


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


@dataclass(frozen=True)
class _Compared:
    """The comparison of a loop: of what was read, less each operand of ``less``, plus each of ``more``, with
    ``other``."""

    instruction: Instruction
    other: Operand
    less: tuple[Operand, ...]
    more: tuple[Operand, ...]

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (self.other, *self.less, *self.more)

    def wanted(self, wf: Wavefronts, row: int, lane: int, size: int) -> int:
        """Return the value of the word itself with which it is compared, in one lane.

        A word of 8 bytes of which only a half is compared, and a loop that first subtracts, have no other form.
        """
        value = _value(wf, self.other, row, lane)
        if not self.less and not self.more:
            return value
        value += sum(_value(wf, each, row, lane) for each in self.less)
        value -= sum(_value(wf, each, row, lane) for each in self.more)
        return value & ((1 << 8 * size) - 1)


_SUM = re.compile(r"[vs]_(sub|subrev|add)_(?:nc_)?[ui]32(?:_e32|_e64)?$")
_Chain = tuple[tuple[Operand, ...], tuple[Operand, ...]]
"""What was subtracted from a value since it was read, and what was added to it."""


def _comparison(loop: Sequence[Instruction], access: GlobalAccess, program: Program) -> _Compared | None:
    """Return the first comparison of the value that ``access`` read.

    The value is followed through moves, masks, differences, sums and the local data share, once around the loop.
    """
    accumulators = program.listing.directives.get("accum_offset", 0)
    place = loop.index(access.instruction)
    register = access.target if access.kind == ATOMIC else access.data
    carriers: dict[_Register, _Chain] = {("v", register + word): ((), ()) for word in range(max(1, access.size // 4))}
    for instruction in (*loop[place + 1 :], *loop[:place]):
        texts = instruction.operands
        scalar = instruction.mnemonic.startswith("s_cmp")
        if instruction.mnemonic.startswith(_NO_RESULT) and not scalar:
            continue
        compares = scalar or instruction.mnemonic.startswith("v_cmp")
        parsed = [operands.parse(text, accumulators) for text in (texts if scalar else texts[1:])]
        chains = [
            next((carriers[each] for each in _registers(operand) if each in carriers), None) for operand in parsed
        ]
        chain = next((each for each in chains if each is not None), None)
        if compares:
            if chain is not None:
                other = next((operand for operand, each in zip(parsed, chains, strict=True) if each is None), None)
                return None if other is None else _Compared(instruction, other, *chain)
            continue
        if instruction.mnemonic.startswith("ds_"):
            writes = "_write" in instruction.mnemonic
            if writes and chain is not None:
                carriers[_SHARE] = chain
            elif not writes and texts:
                _note(carriers, operands.parse(texts[0], accumulators), carriers.get(_SHARE))
        elif texts:
            _note(carriers, operands.parse(texts[0], accumulators), _changed(instruction, parsed, chains, chain))
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


def _note(carriers: dict[_Register, _Chain], result: Operand, chain: _Chain | None) -> None:
    for register in _registers(result):
        if chain is None:
            carriers.pop(register, None)
        else:
            carriers[register] = chain


_NO_RESULT = ("s_waitcnt", "s_branch", "s_cbranch", "s_barrier", "buffer_inv", "s_nop", "s_cmp")


def _results(instruction: Instruction, accumulators: int) -> Iterator[_Register]:
    """Yield the registers that an instruction may write: its first operand, which is an address in a store."""
    name, texts = instruction.mnemonic, instruction.operands
    if name.startswith(_NO_RESULT) or "_store_" in name or "_write" in name:
        return
    for text in texts[: 2 if "_co_" in name else 1]:
        yield from _registers(operands.parse(text, accumulators))


def _address_registers(access: GlobalAccess) -> set[_Register]:
    """Return the registers from which an access forms its addresses."""
    form = access.address
    vector = [("v", form.areg + word) for word in range(2)] if form.areg >= 0 else []
    scalar = [("s", form.sreg + word) for word in range(4)] if form.sreg >= 0 else []
    if form.form == GLOBAL_SADDR:
        vector, scalar = vector[:1], scalar[:2]
    return {*vector, *scalar, *([("s", form.soffset)] if form.soffset >= 0 else [])}


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
