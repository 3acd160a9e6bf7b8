"""Read-modify-writes on the local data share: ``ds_add_u32``, ``ds_cmpst_rtn_b64``, ...

Source: AMD "CDNA3 ISA", data share instructions. ``_rtn`` forms return the old value. Lanes that access the same
address act one after the other. Unlike its namesake on global memory, ``ds_cmpst`` takes the expected value first, the
new value second; ``ds_mskor`` clears the bits of its first operand and sets those of its second.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.native import lds as native_lds
from harness.emulator.native import memory as native
from harness.emulator.native import steps
from harness.emulator.operations.access import ATOMIC, Effect, LdsAccess
from harness.emulator.operations.atomics import pk_add_bf16, pk_add_f16
from harness.emulator.operations.lds import offset_of
from harness.emulator.operations.table import instruction, with_native
from harness.emulator.wavefront.state import DENORMALS_32

# Name and types: the value in memory.
_OPERATIONS = {
    "add": (native.ADD, "u32 u64"), "sub": (native.SUB, "u32 u64"), "rsub": (native_lds.RSUB, "u32 u64"),
    "inc": (native.INC, "u32 u64"), "dec": (native.DEC, "u32 u64"),
    "min": (native.UMIN, "u32 u64"), "max": (native.UMAX, "u32 u64"),
    "and": (native.AND, "b32 b64"), "or": (native.OR, "b32 b64"), "xor": (native.XOR, "b32 b64"),
    "mskor": (native_lds.MSKOR, "b32 b64"), "cmpst": (native_lds.CMPST, "b32 b64"),
}  # fmt: skip
_SIGNED = {"min": native.SMIN, "max": native.SMAX}
_FLOAT = {"add": native.FADD, "min": native.FMIN, "max": native.FMAX, "cmpst": native_lds.CMPST_F}
_ALL: dict[str, int] = {}
for _name, (_operation, _types) in _OPERATIONS.items():
    for _type in _types.split():
        _ALL[f"ds_{_name}_{_type}"] = _ALL[f"ds_{_name}_rtn_{_type}"] = _operation
for _operations, _types in ((_SIGNED, "i32 i64"), (_FLOAT, "f32 f64")):
    for _name, _operation in _operations.items():
        for _type in _types.split():
            _ALL[f"ds_{_name}_{_type}"] = _ALL[f"ds_{_name}_rtn_{_type}"] = _operation
_ALL |= {
    "ds_wrxchg_rtn_b32": native.SWAP,
    "ds_wrxchg_rtn_b64": native.SWAP,
    "ds_wrap_rtn_b32": native_lds.WRAP,
}
_PACKED = {"ds_pk_add_f16": native.PK_ADD_F16, "ds_pk_add_bf16": native.PK_ADD_BF16,
           "ds_pk_add_rtn_f16": native.PK_ADD_F16, "ds_pk_add_rtn_bf16": native.PK_ADD_BF16}  # fmt: skip


@instruction(" ".join([*_ALL, *_PACKED]), klass="lds")
def atomic(instruction, context):
    size = 8 if instruction.mnemonic.endswith("64") else 4
    operation = _ALL[instruction.mnemonic] if instruction.mnemonic in _ALL else _PACKED[instruction.mnemonic]
    if why := refused(operation, size, context):
        raise UnimplementedInstruction(f"{instruction.mnemonic} {why}")
    access = _access(instruction, context, size, operation)
    return Effect(access, step_of(access))


def refused(operation: int, size: int, context) -> str:
    """Return why an operation is not implemented in this kernel, or nothing."""
    if operation == native.FADD and size == 4 and context.varying & DENORMALS_32:
        # On hardware it flushes as other additions do (LLVM pull request 89468).
        return "in a kernel that changes MODE's denormal bits"
    return ""


def step_of(access: LdsAccess):
    """Return the step that performs an atomic with one part in the active lanes."""
    if access.operation in (native.PK_ADD_F16, native.PK_ADD_BF16):
        return _packed(access)
    instruction, ((offset, data),) = access.instruction, access.parts
    native_lds.prepare()

    def step(wf):
        chunk = wf.chunk
        lane = native_lds.atomic(
            wf.v, wf.exec_mask, wf.wave, *chunk.groups, chunk.lds, chunk.lds_bytes, access.areg, offset,
            access.operation, data, access.second, access.target, access.size,
        )  # fmt: skip
        if lane >= 0:
            chunk.lds_fault(wf, instruction, lane, access.areg, offset, access.size, aligned=True)

    where = (access.areg, offset, access.operation, data, access.second, access.target, access.size)
    return with_native(step, steps.atomic_share, *where)


def _packed(access: LdsAccess):
    """Perform two 16-bit float additions as one 32-bit read-modify-write."""
    add = pk_add_bf16 if access.operation == native.PK_ADD_BF16 else pk_add_f16
    instruction, ((offset, data),) = access.instruction, access.parts

    def step(wf):
        chunk = wf.chunk
        active = wf.exec_mask.reshape(-1)
        at = access.addresses(wf)
        bad = active & ((at + 4 > chunk.lds_bytes) | (at % 4 != 0)).reshape(-1)
        if bad.any():
            chunk.lds_fault(wf, instruction, int(np.flatnonzero(bad)[0]), access.areg, offset, 4, aligned=True)
        where = (at + chunk.group_of(wf.wave)[:, None] * chunk.lds_bytes).reshape(-1)
        value = wf.v[data >> 1][:, :, data & 1].reshape(-1)
        old = np.zeros_like(value)
        pending = np.flatnonzero(active)
        while len(pending):
            # The first lane at each address acts now; other lanes with the same address follow in later rounds.
            _, first = np.unique(where[pending], return_index=True)
            lanes = pending[first]
            cells = where[lanes][:, None] + np.arange(4)
            old[lanes] = np.ascontiguousarray(chunk.lds[cells]).view(np.uint32)[:, 0]
            chunk.lds[cells] = add(old[lanes], value[lanes]).view(np.uint8).reshape(-1, 4)
            pending = np.delete(pending, first)
        if access.target >= 0:
            column = wf.v[access.target >> 1][:, :, access.target & 1]
            np.copyto(column, old.reshape(column.shape), where=wf.exec_mask)

    return step


def _access(instruction, context, size: int, operation: int) -> LdsAccess:
    registers = [context.operand(text).register for text in instruction.operands]
    target = registers.pop(0) if "_rtn_" in instruction.mnemonic else -1
    areg, data, *more = registers
    second = more[0] if more else -1
    parts = ((offset_of(instruction), data),)
    return LdsAccess(instruction, ATOMIC, size, areg, parts, target, operation, second=second)
