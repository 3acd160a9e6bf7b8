"""Symbols of a listing: functions that the kernel calls, and constant data, each at an address of its own.

Code is not in memory: instruction n has the address ``CODE`` + 8n, in a range that no process can map, so reading code
as data faults. Constants (strings to print, tables) are copied into memory and may be loaded. An operand such as
``name@rel32@lo+4`` is replaced by the linker's value: the distance from the literal, which is 4 bytes into its
instruction, to the symbol plus the addend (LLVM AMDGPUUsage, "Relocation Records").
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace

import numpy as np

from harness.emulator.faults import ListingError
from harness.emulator.listing.instructions import Instruction

CODE = 1 << 47
SIZE = 8

_RELOCATION = re.compile(r"([\w.$]+)@(rel32|gotpcrel32)@(lo|hi)([+-]\d+)?$")
_LABEL = re.compile(r'([\w.$]+|"[^"]+"):')
_WIDTHS = {".byte": 1, ".short": 2, ".2byte": 2, ".long": 4, ".4byte": 4, ".quad": 8, ".8byte": 8}


def address_of(instruction: int) -> int:
    """Return the address of the instruction with this index."""
    return CODE + SIZE * instruction


def resolve(
    name: str, text: str, instructions: list[Instruction], labels: dict[str, int]
) -> tuple[list[Instruction], np.ndarray]:
    """Replace symbols by numbers; return the instructions, and the constants (uint8) that some symbols refer to.

    Raises ``ListingError`` for a symbol that the listing of kernel ``name`` does not define.
    """
    wanted: list[str] = []
    for instruction in instructions:
        for operand in instruction.operands:
            if (match := _RELOCATION.match(operand)) and match.group(1) not in wanted:
                wanted.append(match.group(1))
    if not wanted:
        return instructions, np.zeros(0, np.uint8)
    constants, offsets = _constants(text, [symbol for symbol in wanted if symbol not in labels])
    addresses = {symbol: constants.ctypes.data + at for symbol, at in offsets.items()}
    addresses |= {symbol: address_of(labels[symbol]) for symbol in wanted if symbol in labels}

    def number(operand: str, at: int) -> str:
        match = _RELOCATION.match(operand)
        if match is None:
            return operand
        symbol, kind, part, addend = match.groups()
        if symbol not in addresses or kind != "rel32":
            raise ListingError(f"kernel {name}: {operand} refers to a symbol that the listing does not define")
        distance = addresses[symbol] + int(addend or 0) - (at + 4)
        return hex(distance >> (32 if part == "hi" else 0) & 0xFFFFFFFF)

    return [
        replace(i, operands=tuple(number(o, address_of(i.index)) for o in i.operands)) if "@" in i.text else i
        for i in instructions
    ], constants


def _constants(text: str, wanted: list[str]) -> tuple[np.ndarray, dict[str, int]]:
    """Return the data after each wanted label in one array, and the offset of each label in it."""
    image, offsets = bytearray(), {}
    inside = False
    for raw in text.splitlines() if wanted else ():
        line = raw.strip()
        if match := _LABEL.match(line):
            label = match.group(1).strip('"')
            inside = label in wanted
            if inside:
                image += bytes(-len(image) % 16)
                offsets[label] = len(image)
            continue
        if inside:
            data = _data(line)
            inside = data is not None
            image += data or b""
    return np.frombuffer(bytes(image) + bytes(16), np.uint8).copy(), offsets


def _data(line: str) -> bytes | None:
    """Return the bytes of a data directive, None for any other line."""
    directive, _, rest = line.replace("\t", " ", 1).partition(" ")
    rest = rest.strip()
    if directive in (".ascii", ".asciz"):
        literal = re.match(r'"(?:[^"\\]|\\.)*"', rest)
        assert literal is not None, line  # sanity check
        string: bytes = ast.literal_eval("b" + literal.group(0))
        return string + b"\0" * (directive == ".asciz")
    values = rest.partition(";")[0].strip()
    if directive in (".zero", ".skip"):
        return bytes(int(values.partition(",")[0], 0))
    if width := _WIDTHS.get(directive):
        mask = (1 << 8 * width) - 1
        return b"".join((int(value, 0) & mask).to_bytes(width, "little") for value in values.split(","))
    return None
