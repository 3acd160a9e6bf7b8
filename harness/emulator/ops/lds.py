"""Local data share: ``ds_read*``, ``ds_write*``. Source: AMD "CDNA3 ISA", chapter on data share instructions.

The two-address forms count their offsets in elements (``read2``) or in 64 elements (``read2st64``).
"""

from __future__ import annotations

from harness.emulator import native
from harness.emulator.ops.access import LOAD, STORE, Effect, LdsAccess
from harness.emulator.ops.table import instruction

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
_PAIRS = ("2_b32", "2_b64", "2st64_b32", "2st64_b64")


@instruction(" ".join(_READS), klass="lds")
def read(instruction, context):
    size, signed, half = _READS[instruction.mnemonic]
    target, address = (context.operand(text) for text in instruction.operands)
    offset = int(instruction.modifiers.get("offset", "0"), 0)
    return _read(instruction, address.register, [(offset, target.register)], size, signed, half)


@instruction(" ".join(f"ds_read{p}" for p in _PAIRS), klass="lds")
def read2(instruction, context):
    size, offsets = _two(instruction)
    target, address = (context.operand(text) for text in instruction.operands)
    parts = [(o, target.register + i * size // 4) for i, o in enumerate(offsets)]
    return _read(instruction, address.register, parts, size, False, 0)


@instruction(" ".join(_WRITES), klass="lds")
def write(instruction, context):
    size, half = _WRITES[instruction.mnemonic]
    address, data = (context.operand(text) for text in instruction.operands)
    offset = int(instruction.modifiers.get("offset", "0"), 0)
    return _write(instruction, address.register, [(offset, data.register)], size, half == 2)


@instruction(" ".join(f"ds_write{p}" for p in _PAIRS), klass="lds")
def write2(instruction, context):
    size, offsets = _two(instruction)
    address, *data = (context.operand(text) for text in instruction.operands)
    return _write(
        instruction, address.register, [(o, d.register) for o, d in zip(offsets, data, strict=True)], size, False
    )


def _two(instruction):
    size = 8 if instruction.mnemonic.endswith("b64") else 4
    stride = size * 64 if "st64" in instruction.mnemonic else size
    return size, [int(instruction.modifiers.get(f"offset{i}", "0"), 0) * stride for i in (0, 1)]


def _read(instruction, areg, parts, size, signed, half):
    # A target may overlap the address register: read the parts from a copy of the address.
    def step(wf):
        chunk = wf.chunk
        keep = wf.v[areg >> 1][:, :, areg & 1].copy() if len(parts) > 1 else None
        for offset, register in parts:
            if keep is not None:
                current = wf.v[areg >> 1][:, :, areg & 1]
                saved, current[...] = current.copy(), keep
            lane = native.load_lds(
                wf.v,
                wf.exec_mask,
                wf.wave,
                *chunk.groups,
                chunk.lds,
                chunk.lds_bytes,
                areg,
                offset,
                register,
                size,
                signed,
                half,
            )
            if keep is not None and not register <= areg < register + size // 4:
                current[...] = saved
            if lane >= 0:
                chunk.lds_fault(wf, instruction, lane, areg, offset, size)

    return Effect(LdsAccess(instruction, LOAD, size, areg, tuple(parts), signed=signed, half=half), step)


def _write(instruction, areg, parts, size, high):
    def step(wf):
        chunk = wf.chunk
        for offset, register in parts:
            lane = native.store_lds(
                wf.v,
                wf.exec_mask,
                wf.wave,
                *chunk.groups,
                chunk.lds,
                chunk.lds_bytes,
                areg,
                offset,
                register,
                size,
                high,
            )
            if lane >= 0:
                chunk.lds_fault(wf, instruction, lane, areg, offset, size)

    return Effect(LdsAccess(instruction, STORE, size, areg, tuple(parts), half=2 if high else 0), step)
