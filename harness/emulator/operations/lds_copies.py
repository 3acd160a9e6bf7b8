"""Copies from global memory to LDS that bypass registers: ``global_load_lds_*``, ``buffer_load_* lds``.

Source: AMD "CDNA3 ISA", "Memory Buffer Load to LDS", and LLVM's llvm.amdgcn.global.load.lds: lane n writes at M0 + the
instruction's offset + n times the size, whether other lanes are active or not; the instruction's offset is added to the
global address too. A byte or short is extended to a dword. gfx950 adds the forms of 3 and 4 dwords. The time at which
the copy ends, and the counter that an s_waitcnt must wait for, do not matter on a device that executes in order.
"""

from __future__ import annotations

from harness.emulator.native import lds as native_lds
from harness.emulator.operations.access import COPY, CopyAccess, Effect
from harness.emulator.operations.addressing import address_form
from harness.emulator.operations.table import instruction

_WIDTHS = {
    "ubyte": (1, False), "sbyte": (1, True), "ushort": (2, False), "sshort": (2, True), "dword": (4, False),
    "dwordx3@gfx950": (12, False), "dwordx4@gfx950": (16, False),
}  # fmt: skip


@instruction(" ".join(f"global_load_lds_{name}" for name in _WIDTHS), klass="vmem")
def load_to_lds(instruction, context):
    return _copy(instruction, context, instruction.mnemonic.rpartition("_")[2])


def buffer_load_to_lds(instruction, context):
    """``buffer_load_dword v0, s[4:7], 0 offen lds``: the opcode of the plain load, distinguished by its modifier."""
    return _copy(instruction, context, instruction.mnemonic.rpartition("_")[2])


def _copy(instruction, context, width: str):
    size, signed = _WIDTHS.get(width) or _WIDTHS[f"{width}@{context.arch}"]
    _, address = address_form(instruction, context, data_first=True)
    site = context.access(instruction, COPY, size)
    access = CopyAccess(instruction, site, size, address, int(instruction.modifiers.get("offset", "0"), 0), signed)
    native_lds.prepare()

    def step(wf):
        chunk = wf.chunk
        addresses, inside = access.addresses(wf)
        at = access.lds_addresses(wf)
        lane = native_lds.copy(
            wf.exec_mask, addresses, inside, at, wf.wave, *chunk.groups, chunk.lds, chunk.lds_bytes, size, signed,
            *chunk.table, chunk.count(site, wf),
        )  # fmt: skip
        if lane >= 0:
            chunk.fault(wf, instruction, lane, address, size)
        if lane < -1:
            lane = -2 - lane
            chunk.lds_fault_at(wf, instruction, lane, int(at.reshape(-1)[lane]), access.slot)

    return Effect(access, step)
