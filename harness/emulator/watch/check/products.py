"""Propagation of undefined values through matrix products.

An element of D = A * B + C is undefined if any element of its row of A or its column of B is undefined, or its element
of C. This includes a product with 0: the undefined factor may be a NaN. An undefined scale makes the whole product
undefined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from harness.emulator.operations import matrix, sparse
from harness.emulator.program.decode import Context, Decoded
from harness.emulator.watch.check.shadow import Shadow, lane_bits
from harness.emulator.wavefront.state import Wavefronts

_BITS = {"f64": 64, "f32": 32, "xf32": 32, "f16": 16, "bf16": 16}
# Functions that return the positions of elements.
_layout: Any = matrix
_sparse: Any = sparse


def spread(decoded: Decoded, writes: int) -> Callable[[Wavefronts, Shadow], None]:
    """Return the propagation of a ``v_mfma_*`` to its destination, the registers ``writes``."""
    instruction = decoded.instruction
    # The positions of elements are the same on every arch.
    context = Context("gfx950", decoded.accum_offset, [])
    if "f8f6f4" in instruction.mnemonic:
        modifiers = {"cbsz", "blgp", "op_sel", "op_sel_hi"}
        forms, common = _layout._decode_f8f6f4(instruction, context, modifiers)
        a_bits, b_bits = (form.bits for form in forms)
    else:
        kinds = (_layout._NAME.fullmatch(instruction.mnemonic.removesuffix("_e64")).group(6).split("_") * 2)[:2]
        a_bits, b_bits = (_BITS.get(kind, 8) for kind in kinds)
        common = _layout._decode(instruction, context, a_bits, b_bits, {"cbsz", "abid", "blgp", "neg"})
    (d, a, b, c), (blocks, m, n, k), a_at, b_at, d_at, _ = common
    double = "mfma_f64" in instruction.mnemonic
    scales = [context.operand(text) for text in instruction.operands[4:]]

    def product(wf: Wavefronts, shadow: Shadow) -> None:
        v = shadow.bits.v
        rows = np.asarray(_elements(v, a, a_at, a_bits).reshape(blocks, m, k, -1).any(axis=2))
        columns = np.asarray(_elements(v, b, b_at, b_bits).reshape(blocks, k, n, -1).any(axis=1))
        bad = rows[:, :, None] | columns[:, None]
        if c >= 0:
            bad = bad | _elements(v, c, d_at, 64 if double else 32).reshape(blocks, m, n, -1)
        for scale in scales:
            if scale.space == "v":
                bad = bad | lane_bits(shadow, scale.register, 1).any(axis=1)
        words = np.where(bad.reshape(len(d_at), -1), ~np.uint32(0), np.uint32(0))
        for half in range(2 if double else 1):
            register = d + d_at[:, 0] + half
            v[register >> 1, :, d_at[:, 1], register & 1] = words
        shadow.settle(writes)

    return product


def spread_sparse(decoded: Decoded, writes: int) -> Callable[[Wavefronts, Shadow], None]:
    """Return the propagation of a ``v_smfmac_*`` to its destination, the registers ``writes``."""
    instruction = decoded.instruction
    width = _BITS.get(_sparse.kinds(instruction).partition("_")[0], 8)
    registers, shape, maps = _sparse.decode(instruction, Context("gfx950", decoded.accum_offset, []), width)
    (d, a, b, index), (_, m, n, k), (a_at, b_at, d_at, index_at) = registers, shape, maps

    def product(wf: Wavefronts, shadow: Shadow) -> None:
        v = shadow.bits.v
        stored = np.asarray(_elements(v, a, a_at, width).reshape(m, k // 2, -1).any(axis=1))
        rows = stored | _elements(v, index, index_at, 4).reshape(m, k // 4, -1).any(axis=1)
        columns = _elements(v, b, b_at, width).reshape(k, n, -1)
        bad = rows[:, None] | _elements(v, d, d_at, 32).reshape(m, n, -1)
        # 1 for each k that a row selects, int32[W, m, k].
        words = wf.v[index >> 1][:, :, index & 1][:, index_at[:, 1]] >> index_at[:, 2].astype(np.uint32)
        selected = np.zeros((len(wf), m, k), np.int32)
        at = np.stack([words & np.uint32(3), words >> np.uint32(2) & np.uint32(3)], -1).reshape(len(wf), m, k // 2)
        np.put_along_axis(selected, at.astype(np.int64) + np.arange(k // 2) // 2 * 4, 1, axis=2)
        uses = selected @ np.moveaxis(columns, 2, 0).astype(np.int32)
        bad = bad | np.moveaxis(uses != 0, 0, 2)
        register = d + d_at[:, 0]
        v[register >> 1, :, d_at[:, 1], register & 1] = np.where(bad.reshape(m * n, -1), ~np.uint32(0), np.uint32(0))
        shadow.settle(writes)

    return product


def _elements(v: np.ndarray, base: int, at: np.ndarray, width: int) -> np.ndarray:
    """Return bool[elements, W]: True if an element, which may lie in two registers, has an undefined bit."""
    register, lane, shift = base + at[:, 0], at[:, 1], at[:, 2].astype(np.uint32)[:, None]
    mask = np.uint32((1 << min(width, 32)) - 1)
    bad: np.ndarray = v[register >> 1, :, lane, register & 1] >> shift & mask != 0
    beyond = at[:, 2] + width > 32
    if beyond.any():
        register = register[beyond] + 1
        bad[beyond] |= v[register >> 1, :, lane[beyond], register & 1] != 0
    return bad
