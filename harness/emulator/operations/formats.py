"""Formats of buffer elements: how the components of an element lie in memory, and what they become in registers.

Source: AMD "CDNA3 ISA", buffer resource descriptor (DATA_FORMAT, NUM_FORMAT, DST_SEL). The manual does not state how a
number is rounded that a format cannot represent; the emulator rounds to nearest even, and limits numbers to the range
of the format. Combinations whose conversion is not stated are refused.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.faults import UnimplementedInstruction

# Bits of the components of each data format, from the lowest bit on: LLVM lists them from the highest.
LAYOUTS = {
    1: (8,), 2: (16,), 3: (8, 8), 4: (32,), 5: (16, 16), 6: (11, 11, 10), 7: (10, 11, 11), 8: (2, 10, 10, 10),
    9: (10, 10, 10, 2), 10: (8, 8, 8, 8), 11: (32, 32), 12: (16, 16, 16, 16), 13: (32, 32, 32), 14: (32, 32, 32, 32),
}  # fmt: skip
DATA_NAMES = ("INVALID", "8", "16", "8_8", "32", "16_16", "10_11_11", "11_11_10", "10_10_10_2", "2_10_10_10", "8_8_8_8",
              "32_32", "16_16_16_16", "32_32_32", "32_32_32_32", "RESERVED_15")  # fmt: skip
NUMBER_NAMES = ("UNORM", "SNORM", "USCALED", "SSCALED", "UINT", "SINT", "RESERVED_6", "FLOAT")
UNORM, SNORM, USCALED, SSCALED, UINT, SINT, _, FLOAT = range(8)


def size_of(data_format: int) -> int:
    """Return the bytes of an element."""
    return sum(LAYOUTS[data_format]) // 8


def check(data_format: int, number_format: int, components: int, stores: bool) -> None:
    """Raise ``UnimplementedInstruction`` for a format that does not exist, or whose conversion is not known."""
    name = f"buffer format {DATA_NAMES[data_format]}, {NUMBER_NAMES[number_format]}"
    bits = LAYOUTS.get(data_format, ())
    exists = bool(bits) and number_format != 6 and (number_format == FLOAT) <= (min(bits) > 8)
    if exists and number_format == FLOAT:
        exists = data_format not in (8, 9)
    if not exists or (32 in bits and number_format < UINT):
        raise UnimplementedInstruction(f"{name}: no such combination")
    if stores and (number_format in (USCALED, SSCALED) or (number_format == FLOAT and 11 in bits)):
        raise UnimplementedInstruction(f"{name}: how numbers are converted to it is not known")
    if stores and components < len(bits):
        raise UnimplementedInstruction(
            f"{name}: {components} of {len(bits)} components are stored, and the manual does not state the others"
        )


def unpack(words: np.ndarray, data_format: int) -> list[np.ndarray]:
    """Return the fields of elements, uint32[...] each; ``words`` uint32[..., words of an element]."""
    fields, at = [], 0
    for bits in LAYOUTS[data_format]:
        field = words[..., at // 32] >> np.uint32(at % 32)
        fields.append(field & np.uint32((1 << bits) - 1))
        at += bits
    return fields


def pack(fields: list[np.ndarray], data_format: int) -> np.ndarray:
    """Return the words of elements; the inverse of ``unpack``."""
    words = np.zeros((*fields[0].shape, -(-size_of(data_format) // 4)), np.uint32)
    at = 0
    for field, bits in zip(fields, LAYOUTS[data_format], strict=True):
        words[..., at // 32] |= (field & np.uint32((1 << bits) - 1)) << np.uint32(at % 32)
        at += bits
    return words


def decode(field: np.ndarray, bits: int, number_format: int, halves: bool) -> np.ndarray:
    """Return what a field becomes in a register, uint32: 32 bits, or 16 if ``halves``."""
    if number_format in (UINT, SINT):
        value = field if number_format == UINT else _signed(field, bits).view(np.uint32)
        return value & np.uint32(0xFFFF) if halves else value
    number: np.ndarray
    if number_format == FLOAT and bits == 32:
        number = field.view(np.float32)
    elif number_format == FLOAT:
        # A float of 11 or 10 bits has no sign, and the exponent of a half.
        number = (field << np.uint32({16: 0, 11: 4, 10: 5}[bits])).astype(np.uint16).view(np.float16).astype(np.float32)
    else:
        whole = field.astype(np.float64) if number_format in (UNORM, USCALED) else _signed(field, bits).astype(float)
        scale = {UNORM: (1 << bits) - 1, SNORM: (1 << bits - 1) - 1}.get(number_format, 1)
        number = np.maximum(whole / scale, -1) if number_format == SNORM else whole / scale
    return _bits(number, halves)


def encode(value: np.ndarray, bits: int, number_format: int, halves: bool) -> np.ndarray:
    """Return the field that stores a register's value; ``halves``: the value has 16 bits."""
    if number_format in (UINT, SINT):
        signed = number_format == SINT
        wide = _signed(value, 16 if halves else 32).astype(np.int64) if signed else value.astype(np.int64)
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        return np.clip(wide, low, high).astype(np.uint32)
    if number_format == FLOAT and bits == (16 if halves else 32):
        return value
    number = value.astype(np.uint16).view(np.float16).astype(np.float32) if halves else value.view(np.float32)
    if number_format == FLOAT:
        return _bits(number, bits == 16)
    scale, least = ((1 << bits) - 1, 0) if number_format == UNORM else ((1 << bits - 1) - 1, -1)
    limited = np.clip(np.where(np.isnan(number), 0, number.astype(np.float64)), least, 1)
    return np.rint(limited * scale).astype(np.int64).astype(np.uint32)


def one(number_format: int, halves: bool) -> int:
    """Return the value of a missing fourth component, and of the selection "1"."""
    return 1 if number_format in (UINT, SINT) else 0x3C00 if halves else 0x3F800000


def _signed(field: np.ndarray, bits: int) -> np.ndarray:
    shift = np.uint32(32 - bits)
    return (field << shift).view(np.int32) >> shift.astype(np.int32)


def _bits(number: np.ndarray, halves: bool) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        if halves:
            return number.astype(np.float16).view(np.uint16).astype(np.uint32)
        return number.astype(np.float32).view(np.uint32)
