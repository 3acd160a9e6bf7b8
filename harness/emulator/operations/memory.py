"""Global memory and scalar loads: ``global_*``, ``buffer_*``, ``s_load_*``.

Source: AMD "CDNA3 ISA", chapters on vector and scalar memory. Two address forms reach global memory: a 64-bit lane
address (or a scalar base with a 32-bit lane offset), and a buffer descriptor with range checking, which Triton uses for
plain pointer arguments: a masked lane gets an offset out of range, so the range check is part of the mask. The cache
bits (sc0, sc1, nt) choose caches that this device does not have.
"""

from __future__ import annotations

from harness.emulator.native import memory as native
from harness.emulator.native import scalar as native_scalar
from harness.emulator.native import steps
from harness.emulator.operations.access import LOAD, STORE, Effect, GlobalAccess, ScalarAccess
from harness.emulator.operations.addressing import address_form
from harness.emulator.operations.lds_copies import buffer_load_to_lds
from harness.emulator.operations.table import instruction, with_native
from harness.emulator.wavefront import operands

# Suffix: (bytes, sign-extended, half of the register that a narrow access uses: 0 all, 1 low, 2 high).
WIDTHS = {
    "ubyte": (1, False, 0), "sbyte": (1, True, 0), "ushort": (2, False, 0), "sshort": (2, True, 0),
    "byte": (1, False, 0), "short": (2, False, 0), "byte_d16_hi": (1, False, 2), "short_d16_hi": (2, False, 2),
    "ubyte_d16": (1, False, 1), "ubyte_d16_hi": (1, False, 2), "sbyte_d16": (1, True, 1), "sbyte_d16_hi": (1, True, 2),
    "short_d16": (2, False, 1),
    "dword": (4, False, 0), "dwordx2": (8, False, 0), "dwordx3": (12, False, 0), "dwordx4": (16, False, 0),
}  # fmt: skip
LOADS = ("ubyte", "sbyte", "ushort", "sshort", "dword", "dwordx2", "dwordx3", "dwordx4", "ubyte_d16", "ubyte_d16_hi",
          "sbyte_d16", "sbyte_d16_hi", "short_d16", "short_d16_hi")  # fmt: skip
STORES = ("byte", "short", "byte_d16_hi", "short_d16_hi", "dword", "dwordx2", "dwordx3", "dwordx4")


def _each(prefix: str, suffixes) -> str:
    return " ".join(prefix + s for s in suffixes)


@instruction(_each("global_load_", LOADS) + " " + _each("buffer_load_", LOADS), klass="vmem")
def load(instruction, context):
    if "lds" in instruction.modifiers:
        return buffer_load_to_lds(instruction, context)
    size, signed, half = WIDTHS[instruction.mnemonic.split("_", 2)[2]]
    data, address = address_form(instruction, context, data_first=True)
    (register,) = data
    site = context.access(instruction, LOAD, size)
    access = GlobalAccess(instruction, site, LOAD, size, address, register, signed=signed, half=half)

    def step(wf):
        chunk = wf.chunk
        lane = native.load(
            wf.v,
            wf.s,
            wf.exec_mask,
            *address,
            register,
            size,
            signed,
            half,
            *chunk.table,
            chunk.count(site, wf),
        )
        if lane >= 0:
            chunk.fault(wf, instruction, lane, address, size)

    native_step = with_native(step, steps.load, *address, register, size, signed, half, site)
    return Effect(access, native_step)


@instruction(_each("global_store_", STORES) + " " + _each("buffer_store_", STORES), klass="vmem")
def store(instruction, context):
    size, _, half = WIDTHS[instruction.mnemonic.split("_", 2)[2]]
    data, address = address_form(instruction, context, data_first=instruction.mnemonic.startswith("buffer"))
    (register,) = data
    site = context.access(instruction, STORE, size)
    access = GlobalAccess(instruction, site, STORE, size, address, register, half=half)

    def step(wf):
        chunk = wf.chunk
        lane = native.store(
            wf.v,
            wf.s,
            wf.exec_mask,
            *address,
            register,
            size,
            half == 2,
            *chunk.table,
            chunk.count(site, wf),
        )
        if lane >= 0:
            chunk.fault(wf, instruction, lane, address, size)

    return Effect(access, with_native(step, steps.store, *address, register, size, half == 2, site))


@instruction(" ".join(f"s_load_dword{n}" for n in ("", "x2", "x4", "x8", "x16")), klass="smem")
def load_scalar(instruction, context):
    target, base, words, soffset, offset = scalar_operands(instruction)

    def step(wf):
        chunk = wf.chunk
        starts, ends, _ = chunk.table
        wave = native.load_scalar(wf.s, target.register, words, base.register, soffset, offset, starts, ends)
        if wave >= 0:
            address = int(wf.s[wave, base.register]) | int(wf.s[wave, base.register + 1]) << 32
            address += offset + (int(wf.s[wave, soffset]) if soffset >= 0 else 0)
            chunk.memory_fault(wf, instruction, wave * 64, address, 4 * words)

    where = (target.register, words, base.register, soffset, offset)
    return Effect(ScalarAccess(instruction, *where), with_native(step, steps.load_scalar, *where))


@instruction(" ".join(f"s_buffer_load_dword{n}" for n in ("", "x2", "x4", "x8", "x16")), klass="smem")
def load_scalar_buffer(instruction, context):
    target, descriptor, words, soffset, offset = scalar_operands(instruction)
    native_scalar.prepare()

    def step(wf):
        starts, ends, _ = wf.chunk.table
        form = (descriptor.register, soffset, offset)
        wave = native_scalar.load_buffer(wf.s, target.register, words, *form, starts, ends)
        if wave >= 0:
            low, high = wf.s[wave, descriptor.register].item(), wf.s[wave, descriptor.register + 1].item()
            address = (low | (high & 0xFFFF) << 32) + offset + (wf.s[wave, soffset].item() if soffset >= 0 else 0)
            wf.chunk.memory_fault(wf, instruction, wave * 64, address & ~3, 4 * words)

    where = (target.register, words, descriptor.register, soffset, offset)
    return Effect(ScalarAccess(instruction, *where), with_native(step, steps.load_scalar_buffer, *where))


def scalar_operands(instruction):
    """Return target or data, base or descriptor, number of dwords, offset register or -1, and constant offset."""
    words = int(instruction.mnemonic.partition("dwordx")[2] or 1)
    target, base, where = (operands.parse(text) for text in instruction.operands)
    offset = int(instruction.modifiers.get("offset", "0"), 0)
    if where.space == "const":
        return target, base, words, -1, offset + int(where.value)
    return target, base, words, where.register if where.space == "s" else -1, offset
