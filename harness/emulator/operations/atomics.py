"""Read-modify-writes on global memory: ``global_atomic_*`` and ``buffer_atomic_*``.

Source: AMD "CDNA3 ISA", and LLVM AMDGPUUsage "Memory Model gfx942": on an atomic, sc0 requests the old value and does
not set a scope; sc1 means system scope. A compare-and-swap takes its new value in the first data register (pair), the
expected value in the next.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.native import atomics as native_atomics
from harness.emulator.native import memory as native
from harness.emulator.native import steps
from harness.emulator.operations.access import ATOMIC, Effect, GlobalAccess
from harness.emulator.operations.addressing import address_form
from harness.emulator.operations.table import instruction, with_native

OPERATIONS = {
    "add": native.ADD,
    "sub": native.SUB,
    "swap": native.SWAP,
    "cmpswap": native.CMPSWAP,
    "and": native.AND,
    "or": native.OR,
    "xor": native.XOR,
    "smin": native.SMIN,
    "smax": native.SMAX,
    "umin": native.UMIN,
    "umax": native.UMAX,
    "inc": native.INC,
    "dec": native.DEC,
    "add_f32": native.FADD,
}
_WIDE = {**{f"{name}_x2": op for name, op in OPERATIONS.items() if name != "add_f32"},
         "add_f64": native.FADD, "min_f64": native.FMIN, "max_f64": native.FMAX}  # fmt: skip


_PACKED = ("pk_add_f16", "pk_add_bf16")


def names(space: str) -> list[str]:
    """Return the atomics of ``global``, ``buffer`` or ``flat`` memory."""
    return [f"{space}_atomic_{name}" for name in (*OPERATIONS, *_WIDE, *_PACKED)]


def _names(ops) -> str:
    return " ".join(f"{space}_atomic_{name}" for space in ("global", "buffer") for name in ops)


@instruction(_names(OPERATIONS), klass="atomic")
def atomic(instruction, context):
    return _rmw(instruction, context, native_atomics.atomic32, OPERATIONS[instruction.mnemonic.split("_", 2)[2]], 4)


@instruction(_names(_WIDE), klass="atomic")
def atomic_x2(instruction, context):
    return _rmw(instruction, context, native_atomics.atomic64, _WIDE[instruction.mnemonic.split("_", 2)[2]], 8)


@instruction(_names(("pk_add_f16",)) + " global_atomic_pk_add_bf16 buffer_atomic_pk_add_bf16@gfx950", klass="atomic")
def atomic_pk_add(instruction, context):
    """Perform two 16-bit float additions as one 32-bit read-modify-write, published by compare-and-swap."""
    add = pk_add_bf16 if instruction.mnemonic.endswith("bf16") else pk_add_f16
    data, target, address = _operands(instruction, context)
    site = context.access(instruction, ATOMIC, 4)
    operation = native.PK_ADD_BF16 if instruction.mnemonic.endswith("bf16") else native.PK_ADD_F16
    access = GlobalAccess(instruction, site, ATOMIC, 4, address, data, target, operation)
    form, areg, sreg, soffset, offset = address

    def step(wf):
        chunk = wf.chunk
        counts = chunk.count(site, wf)
        ignored = np.zeros_like(counts)
        value = wf.v[data >> 1][:, :, data & 1].copy()
        # Temporary registers: pair 0 holds the address, pair 1 the new value and the expected one, pair 2 the old one.
        pairs = np.zeros((3, *wf.exec_mask.shape, 2), np.uint32)
        if areg >= 0:
            pairs[0, :, :, 0] = wf.v[areg >> 1][:, :, areg & 1]
            if form in (native.GLOBAL, native.BUFFER_INDEX_OFFSET):
                pairs[0, :, :, 1] = wf.v[(areg + 1) >> 1][:, :, (areg + 1) & 1]
        lane_register = 0 if areg >= 0 else -1
        pending = wf.exec_mask.copy()
        common = (form, lane_register, sreg, soffset, offset)
        lane = native.load(pairs, wf.s, pending, *common, 3, 4, False, 0, *chunk.table, counts)
        if lane >= 0:
            chunk.fault(wf, instruction, lane, address, 4)
        while pending.any():
            pairs[1, :, :, 0] = add(pairs[1, :, :, 1], value)
            lane = native_atomics.atomic32(pairs, wf.s, pending, *common, native.CMPSWAP, 2, 4, *chunk.table, ignored)
            if lane >= 0:
                chunk.fault(wf, instruction, lane, address, 4, aligned=True)
            old = pairs[2, :, :, 0]
            pending &= old != pairs[1, :, :, 1]
            pairs[1, :, :, 1] = np.where(pending, old, pairs[1, :, :, 1])
        if target >= 0:
            np.copyto(wf.v[target >> 1][:, :, target & 1], pairs[2, :, :, 0], where=wf.exec_mask)

    return Effect(access, step)


def _rmw(instruction, context, function, op, size):
    data, target, address = _operands(instruction, context)
    site = context.access(instruction, ATOMIC, size)
    access = GlobalAccess(instruction, site, ATOMIC, size, address, data, target, op)

    def step(wf):
        chunk = wf.chunk
        lane = function(
            wf.v,
            wf.s,
            wf.exec_mask,
            *address,
            op,
            data,
            target,
            *chunk.table,
            chunk.count(site, wf),
        )
        if lane >= 0:
            chunk.fault(wf, instruction, lane, address, size, aligned=True)

    native_function = steps.atomic32 if size == 4 else steps.atomic64
    return Effect(access, with_native(step, native_function, *address, op, data, target, site))


def _operands(instruction, context):
    """Return data register, register of the old value (-1 without sc0) and address form."""
    native_atomics.prepare()
    returns = "sc0" in instruction.modifiers
    buffer = instruction.mnemonic.startswith("buffer")
    if buffer:
        (data,), address = address_form(instruction, context, data_first=True)
        return data, data if returns else -1, address
    if not returns:
        (data,), address = address_form(instruction, context, data_first=False)
        return data, -1, address
    # vdst, vaddr, vdata, saddr: without the destination, the operands have the form of a store.
    target = context.operand(instruction.operands[0])
    rest = context.without_first_operand(instruction)
    (data,), address = address_form(rest, context, data_first=False)
    return data, target.register, address


def pk_add_f16(a, b):
    left, right = (np.ascontiguousarray(x).view(np.float16) for x in (a, b))
    return (left + right).view(np.uint32).reshape(a.shape)


def pk_add_bf16(a, b):
    left, right = (np.ascontiguousarray(x).view(np.uint16).astype(np.uint32) << np.uint32(16) for x in (a, b))
    total = (left.view(np.float32) + right.view(np.float32)).view(np.uint32)
    # Round to nearest even: a sum of two bf16 in float32 is close enough to the exact sum that the double rounding
    # has no effect.
    rounded = (total + np.uint32(0x7FFF) + (total >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    nan = np.isnan(total.view(np.float32))
    halves = np.where(nan, (total >> np.uint32(16)) | np.uint32(0x40), rounded).astype(np.uint16)
    return halves.view(np.uint32).reshape(a.shape)
