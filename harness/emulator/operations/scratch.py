"""The private segment: ``scratch_*``, which access spilled registers and local arrays.

Source: AMD "CDNA3 ISA", flat memory, and LLVM AMDGPUUsage, "Private": each lane has ``private_segment_fixed_size``
bytes. The address is a lane's register, a scalar register, the instruction's signed offset, or a sum of them. Any
alignment is allowed.
"""

from __future__ import annotations

from harness.emulator.native import scratch as native_scratch
from harness.emulator.native import steps
from harness.emulator.operations.access import LOAD, STORE, Effect, ScratchAccess
from harness.emulator.operations.memory import LOADS, STORES, WIDTHS
from harness.emulator.operations.table import instruction, with_native


@instruction(" ".join(f"scratch_load_{name}" for name in LOADS), klass="vmem")
def load(instruction, context):
    data, lane, scalar = (context.operand(text) for text in instruction.operands)
    access = _access(instruction, LOAD, data, lane, scalar)
    address = (access.areg, access.sreg, access.offset)

    def step(wf):
        failed = native_scratch.load(
            wf.v, wf.s, wf.exec_mask, wf.wave, *wf.chunk.private, *address, access.data, access.size, access.signed,
            access.half,
        )  # fmt: skip
        if failed >= 0:
            wf.chunk.private_fault(wf, access, failed)

    where = (*address, access.data, access.size, access.signed, access.half)
    return Effect(access, with_native(step, steps.load_private, *where))


@instruction(" ".join(f"scratch_store_{name}" for name in STORES), klass="vmem")
def store(instruction, context):
    lane, data, scalar = (context.operand(text) for text in instruction.operands)
    access = _access(instruction, STORE, data, lane, scalar)
    address = (access.areg, access.sreg, access.offset)

    def step(wf):
        failed = native_scratch.store(
            wf.v, wf.s, wf.exec_mask, wf.wave, *wf.chunk.private, *address, access.data, access.size,
            access.half == 2,
        )  # fmt: skip
        if failed >= 0:
            wf.chunk.private_fault(wf, access, failed)

    where = (*address, access.data, access.size, access.half == 2)
    return Effect(access, with_native(step, steps.store_private, *where))


def _access(instruction, kind, data, lane, scalar) -> ScratchAccess:
    size, signed, half = WIDTHS[instruction.mnemonic.split("_", 2)[2]]
    areg = lane.register if lane.space == "v" else -1
    sreg = scalar.register if scalar.space == "s" else -1
    offset = int(instruction.modifiers.get("offset", "0"), 0)
    native_scratch.prepare()
    return ScratchAccess(instruction, kind, size, areg, sreg, offset, data.register, signed, half)
