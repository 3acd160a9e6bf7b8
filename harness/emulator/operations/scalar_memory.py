"""Scalar stores and read-modify-writes: ``s_store_*``, ``s_atomic_*``, and the same through a buffer descriptor.

Source: AMD "CDNA4 ISA", scalar memory; LLVM's assembler accepts them for gfx942 and gfx950. EXEC does not matter. The
two low bits of an address are ignored; through a descriptor, a dword out of range is not accessed, and its old value
is 0. ``glc`` requests the old value. ``s_scratch_*`` are not modelled: lanes' segments are not interleaved here.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.native import atomics as native_atomics
from harness.emulator.native import memory as native
from harness.emulator.operations import atomics
from harness.emulator.operations.access import ATOMIC, STORE, Effect, ScalarAccess
from harness.emulator.operations.memory import scalar_operands
from harness.emulator.operations.table import instruction

_WIDTHS = ("", "x2", "x4")
_INTEGER = {name: op for name, op in atomics.OPERATIONS.items() if name != "add_f32"}
WRITES = ("s_store_", "s_buffer_store_", "s_scratch_store_", "s_atomic_", "s_buffer_atomic_")
"""Beginnings of the names of these instructions."""


@instruction(" ".join(f"s_{space}store_dword{n}" for space in ("", "buffer_") for n in _WIDTHS), klass="smem")
def store(instruction, context):
    data, base, words, soffset, offset = scalar_operands(instruction)
    access = ScalarAccess(instruction, data.register, words, base.register, soffset, offset, STORE, returns=False)

    def step(wf):
        registers, mask, inside = _lane_zero(access, wf)
        for i in range(words):
            registers[1, :, 0, 0] = wf.s[:, access.target + i]
            mask[:, 0] = inside(i)
            common = (native.GLOBAL, 0, -1, -1, 4 * i, 2, 4, False)
            lane = native.store(registers, wf.s, mask, *common, *wf.chunk.table, np.zeros(2, np.int64))
            if lane >= 0:
                _fault(access, wf, lane, words)

    return Effect(access, step)


@instruction(
    " ".join(f"s_{space}atomic_{name}{x}" for space in ("", "buffer_") for name in _INTEGER for x in ("", "_x2")),
    klass="smem",
)
def atomic(instruction, context):
    data, base, _, soffset, offset = scalar_operands(instruction)
    name, words = instruction.mnemonic.rpartition("atomic_")[2], 1
    if name.endswith("_x2"):
        name, words = name.removesuffix("_x2"), 2
    access = ScalarAccess(
        instruction, data.register, words, base.register, soffset, offset, ATOMIC, _INTEGER[name],
        "glc" in instruction.modifiers,
    )  # fmt: skip
    native_atomics.prepare()
    function = native_atomics.atomic32 if words == 1 else native_atomics.atomic64

    def step(wf):
        registers, mask, inside = _lane_zero(access, wf)
        mask[:, 0] = inside(0, words)
        for i in range(access.data):
            registers[1 + i // 2, :, 0, i % 2] = wf.s[:, access.target + i]
        common = (native.GLOBAL, 0, -1, -1, 0, access.operation, 2, 6)
        lane = function(registers, wf.s, mask, *common, *wf.chunk.table, np.zeros(2, np.int64))
        if lane >= 0:
            _fault(access, wf, lane, words, aligned=True)
        if access.returns:
            for i in range(words):
                wf.s[:, access.target + i] = registers[3, :, 0, i]

    return Effect(access, step)


def _lane_zero(access: ScalarAccess, wf):
    """Return temporary vector registers, of which lane 0 has the address in pair 0, an empty lane mask, and a function
    that returns whether ``count`` dwords from the i-th on are in the range of the descriptor, bool[W]."""
    registers = np.zeros((4, *wf.exec_mask.shape, 2), np.uint32)
    addresses = access.addresses(wf) & ~np.uint64(3)
    registers[0, :, 0, 0], registers[0, :, 0, 1] = addresses & np.uint64(0xFFFFFFFF), addresses >> np.uint64(32)

    def inside(i: int, count: int = 1) -> np.ndarray:
        if "buffer" not in access.instruction.mnemonic:
            return np.ones(len(wf), np.bool_)
        low, high, records = (wf.s[:, access.base + n].astype(np.uint64) for n in range(3))
        stride = high >> np.uint64(16) & np.uint64(0x3FFF)
        end = addresses - (low | (high & np.uint64(0xFFFF)) << np.uint64(32)) + np.uint64(4 * (i + count))
        return end <= records * np.maximum(stride, np.uint64(1))

    return registers, np.zeros_like(wf.exec_mask), inside


def _fault(access: ScalarAccess, wf, lane: int, words: int, aligned: bool = False) -> None:
    address = int(access.addresses(wf)[lane // 64]) & ~3
    wf.chunk.memory_fault(wf, access.instruction, lane, address, 4 * words, aligned)
