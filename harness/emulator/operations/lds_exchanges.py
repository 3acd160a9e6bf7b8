"""Exchanges of two values of the local data share, and its counters: ``ds_wrxchg2_rtn_*``, ``ds_append``, ...

Source: AMD "CDNA4 ISA", data share instructions. ``ds_append`` and ``ds_consume`` add the number of active lanes to one
dword, or subtract it, and return the old value to all active lanes; without active lanes they do nothing. The manual
forms their address from the instruction's offset alone; LLVM (``llvm.amdgcn.ds.append``) puts the pointer in M0, and
the constant part into the offset. The emulator follows LLVM, and both agree where M0 is 0.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.native import lds as native_lds
from harness.emulator.native import memory as native
from harness.emulator.operations.access import ATOMIC, Effect, LdsAccess
from harness.emulator.operations.lds import offset_of, two_offsets
from harness.emulator.operations.table import instruction


@instruction("ds_append ds_consume", klass="lds")
def count(instruction, context):
    operation = native.ADD if instruction.mnemonic == "ds_append" else native.SUB
    (target,) = (context.operand(text).register for text in instruction.operands)
    access = LdsAccess(instruction, ATOMIC, 4, -1, ((offset_of(instruction), -1),), target, operation, counts=True)
    native_lds.prepare()

    def step(wf):
        chunk = wf.chunk
        first = np.zeros_like(wf.exec_mask)
        some = wf.exec_mask.any(axis=1)
        first[np.arange(len(wf)), wf.exec_mask.argmax(axis=1)] = some
        # Temporary registers: the address and the count, then the old value.
        registers = np.zeros((2, *wf.exec_mask.shape, 2), np.uint32)
        registers[0, :, :, 0] = access.addresses(wf)
        registers[0, :, :, 1] = wf.exec_mask.sum(axis=1)[:, None]
        lane = native_lds.atomic(
            registers, first, wf.wave, *chunk.groups, chunk.lds, chunk.lds_bytes, 0, 0, operation, 1, -1, 2, 4
        )
        if lane >= 0:
            chunk.lds_fault_at(wf, instruction, lane, int(registers[0].reshape(-1, 2)[lane, 0]), 4)
        old = registers[1, :, :, 0].max(axis=1, where=first, initial=0)
        np.copyto(wf.v[target >> 1][:, :, target & 1], old[:, None], where=wf.exec_mask)

    return Effect(access, step)


@instruction(" ".join(f"ds_wrxchg2{st}_rtn_b{bits}" for st in ("", "st64") for bits in (32, 64)), klass="lds")
def exchange_two(instruction, context):
    size, offsets = two_offsets(instruction)
    target, areg, *data = (context.operand(text).register for text in instruction.operands)
    parts = tuple(zip(offsets, data, strict=True))
    access = LdsAccess(instruction, ATOMIC, size, areg, parts, target, native.SWAP)
    native_lds.prepare()

    def step(wf):
        chunk = wf.chunk
        # Temporary registers: pairs of address, data and old value; the destination may overlap the sources.
        registers = np.zeros((len(parts), 3, *wf.exec_mask.shape, 2), np.uint32)
        for part, (offset, register) in zip(registers, parts, strict=True):
            part[0, :, :, 0] = wf.v[areg >> 1][:, :, areg & 1]
            for half in range(size // 4):
                part[1, :, :, half] = wf.v[(register + half) >> 1][:, :, (register + half) & 1]
            lane = native_lds.atomic(
                part, wf.exec_mask, wf.wave, *chunk.groups, chunk.lds, chunk.lds_bytes, 0, offset, native.SWAP, 2, -1,
                4, size,
            )  # fmt: skip
            if lane >= 0:
                chunk.lds_fault(wf, instruction, lane, areg, offset, size, aligned=True)
        for part, to in zip(registers, access.loaded, strict=True):
            for half in range(size // 4):
                column = wf.v[(to + half) >> 1][:, :, (to + half) & 1]
                np.copyto(column, part[2, :, :, half], where=wf.exec_mask)

    return Effect(access, step)


@instruction("ds_condxchg32_rtn_b64", klass="lds")
def exchange_if(instruction, context):
    """Two dwords, each replaced by the lower 31 bits of the data if its highest bit is set."""
    target, areg, data = (context.operand(text).register for text in instruction.operands)
    access = LdsAccess(instruction, ATOMIC, 8, areg, ((offset_of(instruction), data),), target, aligned=8)
    native_lds.prepare()

    def step(wf):
        chunk = wf.chunk
        # Temporary registers: pairs of address, bits to clear, bits to set and old value.
        registers = np.zeros((4, *wf.exec_mask.shape, 2), np.uint32)
        registers[0, :, :, 0] = access.addresses(wf)
        for half in range(2):
            word = wf.v[(data + half) >> 1][:, :, (data + half) & 1]
            chosen = word >> np.uint32(31) != 0
            registers[1, :, :, half] = np.where(chosen, ~np.uint32(0), np.uint32(0))
            registers[2, :, :, half] = np.where(chosen, word & np.uint32(0x7FFFFFFF), np.uint32(0))
        lane = native_lds.atomic(
            registers, wf.exec_mask, wf.wave, *chunk.groups, chunk.lds, chunk.lds_bytes, 0, 0, native_lds.MSKOR, 2, 4,
            6, 8,
        )  # fmt: skip
        if lane >= 0:
            at = int(registers[0].reshape(-1, 2)[lane, 0])
            chunk.lds_fault_at(wf, instruction, lane, at, 8)
        for half in range(2):
            column = wf.v[(target + half) >> 1][:, :, (target + half) & 1]
            np.copyto(column, registers[3, :, :, half], where=wf.exec_mask)

    return Effect(access, step)
