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
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.emulator.listing.instructions import Instruction
from harness.emulator.program.decode import Program
from harness.emulator.program.polling import (
    Comparison,
    address_registers,
    comparison,
    reads,
    registers,
    results,
    smallest_loop,
)
from harness.emulator.wavefront import operands
from harness.emulator.wavefront.operands import Operand
from harness.emulator.wavefront.state import Wavefronts

if TYPE_CHECKING:
    from harness.emulator.execution.allocations import Allocation
    from harness.emulator.execution.launch import Launch
    from harness.emulator.watch.base import Watch

_ORDERED = re.compile(r"cmp_[gl][te]_")
_WORDS = 4
"""Words of a wavefront that are named."""


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
    loop = smallest_loop(program, program.blocks[wf.block].first)
    access = next(reads(loop, program), None)
    if access is None:
        return []
    accumulators = program.listing.directives.get("accum_offset", 0)
    written = {register for each in loop for register in results(each, accumulators)}
    kept = not written & address_registers(access)
    compared = comparison(loop, access, program)
    if compared is not None and written & {each for operand in compared.operands for each in registers(operand)}:
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
    compared: Comparison | None,
    wf: Wavefronts,
    row: int,
) -> list[tuple[int, int | None]]:
    """Return the words that the lanes of one wavefront wait for, each with the value with which it is compared."""
    words: dict[int, int | None] = {}
    for lane in np.flatnonzero(taking).tolist():
        address = int(addresses[lane])
        if any(allocation.contains(address, size) for allocation in launch.table.allocations):
            words.setdefault(address, None if compared is None else _wanted(compared, wf, row, lane, size))
    late = {
        address: wanted for address, wanted in words.items() if _is_late(_held(address, size), wanted, compared, size)
    }
    return list((late or words).items())[:_WORDS]


def _is_late(held: int, wanted: int | None, compared: Comparison | None, size: int) -> bool:
    """Return whether a word differs from the value with which it is compared. Where they are compared in order, whether
    it is behind it: a word that is waited for grows."""
    if wanted is None or compared is None or _ORDERED.search(compared.instruction.mnemonic) is None:
        return held != wanted
    return (held - wanted) >> (8 * size - 1) & 1 == 1


def _held(address: int, size: int) -> int:
    return int.from_bytes(ctypes.string_at(address, size), "little")


def _wanted(compared: Comparison, wf: Wavefronts, row: int, lane: int, size: int) -> int:
    """Return the value of the word itself with which it is compared, in one lane.

    A word of 8 bytes of which only a half is compared, and a loop that first subtracts, have no other form.
    """
    value = _value(wf, compared.other, row, lane)
    if not compared.less and not compared.more:
        return value
    value += sum(_value(wf, each, row, lane) for each in compared.less)
    value -= sum(_value(wf, each, row, lane) for each in compared.more)
    return value & ((1 << 8 * size) - 1)


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
