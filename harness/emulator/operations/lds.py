"""Local data share: ``ds_read*``, ``ds_write*``. Source: AMD "CDNA3 ISA", chapter on data share instructions.

The two-address forms count their offsets in elements (``read2``) or in 64 elements (``read2st64``). Reads and writes
may have any alignment (LLVM AMDGPUUsage: gfx942 runs in unaligned access mode).

A transposing read of gfx950 (``ds_read_b64_tr_b16``, AMD "CDNA4 ISA") is performed by 16 lanes together. They read a
matrix of 16 columns whose elements are stored row after row, lane after lane: with 16-bit elements a lane reads 4 of
them and four lanes read a row, with 4-bit elements a lane reads a row. Lane i receives column i. So lanes that read K
rows of an operand that is contiguous in M receive K consecutive elements of one M each, as an MFMA requires.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.native import lds as native_lds
from harness.emulator.native import steps
from harness.emulator.operations.access import LOAD, STORE, Effect, LdsAccess
from harness.emulator.operations.table import instruction, with_native

_READS = {
    "ds_read_u8": (1, False, 0),
    "ds_read_i8": (1, True, 0),
    "ds_read_u16": (2, False, 0),
    "ds_read_i16": (2, True, 0),
    "ds_read_u8_d16": (1, False, 1),
    "ds_read_u8_d16_hi": (1, False, 2),
    "ds_read_i8_d16": (1, True, 1),
    "ds_read_i8_d16_hi": (1, True, 2),
    "ds_read_u16_d16": (2, False, 1),
    "ds_read_u16_d16_hi": (2, False, 2),
    "ds_read_b32": (4, False, 0),
    "ds_read_b64": (8, False, 0),
    "ds_read_b96": (12, False, 0),
    "ds_read_b128": (16, False, 0),
}
_WRITES = {
    "ds_write_b8": (1, 0), "ds_write_b16": (2, 0), "ds_write_b8_d16_hi": (1, 2), "ds_write_b16_d16_hi": (2, 2),
    "ds_write_b32": (4, 0), "ds_write_b64": (8, 0), "ds_write_b96": (12, 0), "ds_write_b128": (16, 0),
}  # fmt: skip
_WITHOUT_ATOMICS = ("ds_read", "ds_write_", "ds_write2", "ds_bpermute_", "ds_permute_", "ds_swizzle_", "ds_nop")
"""Beginnings of the names of loads, stores, and instructions that concern one wavefront."""
_PAIRS = ("2_b32", "2_b64", "2st64_b32", "2st64_b64")
# Bytes per lane, bits per element.
_TRANSPOSED = {
    "ds_read_b64_tr_b16": (8, 16),
    "ds_read_b64_tr_b8": (8, 8),
    "ds_read_b64_tr_b4": (8, 4),
    "ds_read_b96_tr_b6": (12, 6),
}


@instruction(" ".join(_READS), klass="lds")
def read(instruction, context):
    size, signed, half = _READS[instruction.mnemonic]
    target, address = (context.operand(text) for text in instruction.operands)
    return _read(instruction, address.register, [(offset_of(instruction), target.register)], size, signed, half)


@instruction(" ".join(f"ds_read{p}" for p in _PAIRS), klass="lds")
def read2(instruction, context):
    size, offsets = two_offsets(instruction)
    target, address = (context.operand(text) for text in instruction.operands)
    parts = [(o, target.register + i * size // 4) for i, o in enumerate(offsets)]
    return _read(instruction, address.register, parts, size, False, 0)


@instruction(" ".join(_WRITES), klass="lds")
def write(instruction, context):
    size, half = _WRITES[instruction.mnemonic]
    address, data = (context.operand(text) for text in instruction.operands)
    return _write(instruction, address.register, [(offset_of(instruction), data.register)], size, half)


@instruction(" ".join(f"ds_write{p}" for p in _PAIRS), klass="lds")
def write2(instruction, context):
    size, offsets = two_offsets(instruction)
    address, *data = (context.operand(text) for text in instruction.operands)
    parts = [(o, d.register) for o, d in zip(offsets, data, strict=True)]
    return _write(instruction, address.register, parts, size, 0)


@instruction(" ".join(f"{name}@gfx950" for name in _TRANSPOSED), klass="lds")
def read_transposed(instruction, context):
    size, bits = _TRANSPOSED[instruction.mnemonic]
    target, address = (context.operand(text) for text in instruction.operands)
    offset, areg = offset_of(instruction), address.register
    native_lds.prepare()

    def step(wf):
        chunk = wf.chunk
        lane = native_lds.load_transposed(
            wf.v, wf.exec_mask, wf.wave, *chunk.groups, chunk.lds, chunk.lds_bytes, areg, offset, target.register, size,
            bits,
        )  # fmt: skip
        if lane >= 0:
            chunk.lds_fault(wf, instruction, lane, areg, offset, size)

    parts = ((offset, target.register),)
    return Effect(LdsAccess(instruction, LOAD, size, areg, parts, transposed=bits), step)


@instruction("ds_read_addtid_b32 ds_write_addtid_b32", klass="lds")
def by_lane(instruction, context):
    """ds_read_addtid_b32, ds_write_addtid_b32: the address is M0 plus 4 bytes per lane."""
    kind = LOAD if "read" in instruction.mnemonic else STORE
    (data,) = (context.operand(text) for text in instruction.operands)
    access = LdsAccess(instruction, kind, 4, -1, ((offset_of(instruction), data.register),))
    native_lds.prepare()

    def step(wf):
        chunk = wf.chunk
        # A temporary register holds the address, and the next one the data.
        registers = np.zeros((2, *wf.exec_mask.shape, 2), np.uint32)
        registers[0, :, :, 0] = access.addresses(wf)
        column = wf.v[data.register >> 1][:, :, data.register & 1]
        registers[1, :, :, 0] = column
        share = (wf.exec_mask, wf.wave, *chunk.groups, chunk.lds, chunk.lds_bytes)
        if kind == LOAD:
            lane = native_lds.load(registers, *share, 0, 0, -1, 2, 4, False, 0)
            column[...] = registers[1, :, :, 0]
        else:
            lane = native_lds.store(registers, *share, 0, 0, 2, 4, False)
        if lane >= 0:
            chunk.lds_fault_at(wf, instruction, lane, int(registers[0].reshape(-1, 2)[lane, 0]), 4)

    return Effect(access, step)


def offset_of(instruction) -> int:
    """Return the offset of a one-address form, in bytes."""
    return int(instruction.modifiers.get("offset", "0"), 0)


def two_offsets(instruction) -> tuple[int, list[int]]:
    """Return the size of an element of a two-address form, and its offsets in bytes."""
    size = 8 if instruction.mnemonic.endswith("b64") else 4
    stride = size * 64 if "st64" in instruction.mnemonic else size
    return size, [int(instruction.modifiers.get(f"offset{i}", "0"), 0) * stride for i in (0, 1)]


def _read(instruction, areg, parts, size, signed, half):
    (offset, register), *more = parts
    second = more[0][0] if more else -1
    native_lds.prepare()

    def step(wf):
        chunk = wf.chunk
        lane = native_lds.load(
            wf.v, wf.exec_mask, wf.wave, *chunk.groups, chunk.lds, chunk.lds_bytes, areg, offset, second, register,
            size, signed, half,
        )  # fmt: skip
        if lane >= 0:
            chunk.lds_fault(wf, instruction, lane, areg, max(offset, second), size)

    access = LdsAccess(instruction, LOAD, size, areg, tuple(parts), signed=signed, half=half)
    return Effect(access, with_native(step, steps.read_share, areg, offset, second, register, size, signed, half))


def _write(instruction, areg, parts, size, half):
    native_lds.prepare()

    def step(wf):
        chunk = wf.chunk
        for offset, register in parts:
            lane = native_lds.store(
                wf.v, wf.exec_mask, wf.wave, *chunk.groups, chunk.lds, chunk.lds_bytes, areg, offset, register, size,
                half == 2,
            )  # fmt: skip
            if lane >= 0:
                chunk.lds_fault(wf, instruction, lane, areg, offset, size)

    access = LdsAccess(instruction, STORE, size, areg, tuple(parts), half=half)
    places = [word for part in parts for word in part]
    return Effect(access, with_native(step, steps.write_share, areg, size, half == 2, len(parts), *places))


def is_atomic(mnemonic: str) -> bool:
    """Return whether an instruction reads and writes the local data share as one operation."""
    return mnemonic.startswith("ds_") and not mnemonic.startswith(_WITHOUT_ATOMICS)
