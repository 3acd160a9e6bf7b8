"""``flat_*``: an address in global memory, the local data share or the private segment, lane by lane.

Source: AMD "CDNA3 ISA", flat memory, and LLVM AMDGPUUsage, "Address Spaces": the upper half of the address selects the
memory; if it is one of the two apertures (``src_shared_base``, ``src_private_base``), the lower half is the offset
there.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.native import lds as native_lds
from harness.emulator.native import memory as native
from harness.emulator.native import scratch as native_scratch
from harness.emulator.operations import atomics, lds_atomics, memory
from harness.emulator.operations.access import ATOMIC, LOAD, Effect, FlatAccess, LdsAccess, ScratchAccess
from harness.emulator.operations.table import TABLE, Builder, instruction


@instruction(" ".join(f"flat_load_{name}" for name in memory.LOADS), klass="vmem")
@instruction(" ".join(f"flat_store_{name}" for name in memory.STORES), klass="vmem")
def access(instruction, context):
    plain = _as_global(instruction)
    whole = _builder(plain)(plain, context)
    plain, (_, areg, *_, offset) = whole.access, whole.access.address
    part = (plain.kind, plain.size)
    form = {"signed": plain.signed, "half": plain.half}
    shared = LdsAccess(instruction, *part, areg, ((offset, plain.data),), **form)
    private = ScratchAccess(instruction, *part, areg, -1, offset, plain.data, **form)
    flat = FlatAccess(**vars(plain), shared=shared, private=private)
    native_lds.prepare()
    native_scratch.prepare()

    def step(wf):
        apertures = flat.apertures(wf)
        if apertures is None:
            whole.step(wf)
            return
        lds, scratch = apertures
        chunk = wf.chunk
        share = (wf.v, lds, wf.wave, *chunk.groups, chunk.lds, chunk.lds_bytes, areg, offset)
        segment = (wf.v, wf.s, scratch, wf.wave, *chunk.private, areg, -1, offset)
        if plain.kind == LOAD:
            target = (plain.data, plain.size, plain.signed, plain.half)
            bad = native_lds.load(*share, -1, *target), native_scratch.load(*segment, *target)
        else:
            source = (plain.data, plain.size, plain.half == 2)
            bad = native_lds.store(*share, *source), native_scratch.store(*segment, *source)
        if bad[0] >= 0:
            chunk.lds_fault(wf, instruction, bad[0], areg, offset, plain.size)
        if bad[1] >= 0:
            chunk.private_fault(wf, private, bad[1])
        _rest(wf, whole.step, lds | scratch)

    return Effect(flat, step)


@instruction(" ".join(atomics.names("flat")), klass="atomic")
def atomic(instruction, context):
    """flat_atomic_*, on global memory and the data share. The private segment has none: LLVM expands them there."""
    plain = _as_global(instruction)
    whole = _builder(plain)(plain, context)
    plain, (_, areg, *_, offset) = whole.access, whole.access.address
    # A compare-and-swap of the share takes the expected value first.
    words, swaps = plain.size // 4, plain.operation == native.CMPSWAP
    data, second = (plain.data + words, plain.data) if swaps else (plain.data, -1)
    operation = native_lds.CMPST if swaps else plain.operation
    shared = LdsAccess(instruction, ATOMIC, plain.size, areg, ((offset, data),), plain.target, operation, second=second)
    flat = FlatAccess(**{**vars(plain), "instruction": instruction}, shared=shared)
    in_share, refused = lds_atomics.step_of(shared), lds_atomics.refused(operation, plain.size, context)

    def step(wf):
        apertures = flat.apertures(wf)
        if apertures is None:
            whole.step(wf)
            return
        lds, scratch = apertures
        if scratch.any():
            lane = int(scratch.argmax())
            address = int(wf.v[areg >> 1].reshape(-1, 2)[lane, areg & 1]) + offset
            message = f"atomic on the private segment at {address:#x}: the hardware has none"
            wf.chunk.raise_fault(message, wf, instruction, lane, address=address)
        if refused:
            raise UnimplementedInstruction(f"{instruction.text!r} on LDS {refused}")
        _rest(wf, in_share, ~lds)
        _rest(wf, whole.step, lds)

    return Effect(flat, step)


def _builder(plain):
    entry = TABLE[plain.mnemonic]
    assert isinstance(entry, Builder)  # sanity check
    return entry.build


def _as_global(instruction):
    """Return the same access as an access to global memory."""
    return replace(
        instruction,
        mnemonic=instruction.mnemonic.replace("flat_", "global_"),
        operands=(*instruction.operands, "off"),
    )


def _rest(wf, step, done):
    """Run a step for the active lanes that are not in ``done``."""
    saved, wf.exec_mask = wf.exec_mask, np.ascontiguousarray(wf.exec_mask & ~done)
    try:
        step(wf)
    finally:
        wf.exec_mask = saved
