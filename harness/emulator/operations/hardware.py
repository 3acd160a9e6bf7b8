"""Hardware registers: ``s_getreg_b32``, ``s_setreg_b32``, ``s_setreg_imm32_b32``.

Source: CDNA3 ISA, SOPK and "Wave State"; LLVM AMDGPU operand syntax, "hwreg". MODE is kept for each wavefront.
HW_ID and XCC_ID contain the place of execution: work-group i runs on XCD i modulo 8, there on compute unit i / 8 modulo
38, as an MI300X distributes work-groups in turn.
"""

from __future__ import annotations

import re

import numpy as np

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.operations.table import instruction
from harness.emulator.wavefront.state import MODE, SCALAR, key

XCDS, COMPUTE_UNITS = 8, 38
_NUMBERS = {"HW_REG_MODE": 1, "HW_REG_HW_ID": 4, "HW_REG_XCC_ID": 20}


@instruction("s_getreg_b32", klass="salu")
def getreg(instruction, context):
    target = context.operand(instruction.operands[0])
    read, offset, width = _register(instruction.operands[1])
    to, mask = key(SCALAR, target.register, "u32"), np.uint32((1 << width) - 1)

    def step(wf):
        wf.view[to][...] = read(wf) >> np.uint32(offset) & mask

    return step


@instruction("s_setreg_b32 s_setreg_imm32_b32", klass="salu")
def setreg(instruction, context):
    """s_setreg: write MODE, the only register that can be written."""
    read, offset, width = _register(instruction.operands[0])
    if read is not _mode:
        raise UnimplementedInstruction(f"writing the hardware register {instruction.operands[0]} is not implemented")
    source = context.source(context.operand(instruction.operands[1]), "u32", scalar=True)
    field = np.uint32(((1 << width) - 1) << offset)

    def step(wf):
        old = wf.s[:, MODE]
        new = (old & ~field) | (wf.view[source] << np.uint32(offset) & field)
        wf.s[:, MODE] = new

    return step


def written(instruction) -> int:
    """Return the bits of MODE that an instruction may write."""
    if not instruction.mnemonic.startswith("s_setreg"):
        return 0
    number, offset, width = _field(instruction.operands[0])
    return ((1 << width) - 1) << offset if number == _NUMBERS["HW_REG_MODE"] else 0


def _register(text: str):
    """Return a reader of the register named by ``hwreg(...)``, and offset and width of the field."""
    number, offset, width = _field(text)
    if number not in _READS:
        raise UnimplementedInstruction(
            f"the emulator reads the hardware registers {', '.join(_NUMBERS)} only, got {text}"
        )
    return _READS[number], offset, width


def _field(text: str) -> tuple[int, int, int]:
    """Return the number of a register (-1: unknown to the emulator), offset and width of a field in it."""
    match = re.fullmatch(r"hwreg\((\w+)(?:,\s*(\d+),\s*(\d+))?\)", text)
    if match is None:
        word = int(text, 0)
        return word & 0x3F, word >> 6 & 0x1F, (word >> 11) + 1
    name = match.group(1)
    number = _NUMBERS.get(name, int(name) if name.isdigit() else -1)
    return number, int(match.group(2) or 0), int(match.group(3) or 32)


def _mode(wf):
    return wf.s[:, MODE]


def _group(wf):
    return wf.wave // wf.chunk.launch.waves_per_group


def _hardware_id(wf):
    """HW_ID: wavefront slot in bits 3..0, SIMD 5..4, compute unit 11..8, shader engine 15..13."""
    inner = wf.wave % wf.chunk.launch.waves_per_group
    unit = _group(wf) // XCDS % COMPUTE_UNITS
    return (inner // 4 & 15 | (inner & 3) << 4 | (unit % 10) << 8 | unit // 10 << 13).astype(np.uint32)


def _xcc(wf):
    return (_group(wf) % XCDS).astype(np.uint32)


_READS = {_NUMBERS["HW_REG_MODE"]: _mode, _NUMBERS["HW_REG_HW_ID"]: _hardware_id, _NUMBERS["HW_REG_XCC_ID"]: _xcc}
